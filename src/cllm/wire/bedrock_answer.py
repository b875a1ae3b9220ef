"""The shapes of what Converse answers, as they travel, and a block built from its pieces.

Types only, with the names that Bedrock gives its fields; what they mean is for `bedrock_reply`.
"""

import base64
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec

from cllm.core.message import RedactedThinking, Thinking, ToolCall
from cllm.wire.bedrock_blocks import encode_blocks

Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class TokenUsage(msgspec.Struct, rename="camel"):
    """What was read from a cache, or written to one, is not among the input tokens."""

    input_tokens: Count = 0
    output_tokens: Count = 0
    cache_read_input_tokens: Count | None = None
    cache_write_input_tokens: Count | None = None
    cache_details: Any = None


class CacheDetail(msgspec.Struct, rename="camel"):
    """What was written to a cache for one lifetime."""

    ttl: str
    input_tokens: Count


class Router(msgspec.Struct, rename="camel"):
    invoked_model_id: str | None = None


class Trace(msgspec.Struct, rename="camel"):
    prompt_router: Router | None = None


class Metadata(msgspec.Struct):
    usage: Any = None
    trace: Trace | None = None


class AnswerMessage(msgspec.Struct):
    content: list[msgspec.Raw]


class Output(msgspec.Struct):
    message: AnswerMessage


class Stop(msgspec.Struct, rename="camel"):
    stop_reason: str
    additional_model_response_fields: Any = None


class Answer(Stop):
    output: Output | None = None
    usage: Any = None
    trace: Trace | None = None


class ToolStart(msgspec.Struct, rename="camel"):
    tool_use_id: str
    name: str
    type: str | None = None


class StartOf(msgspec.Struct, rename="camel"):
    tool_use: ToolStart | None = None
    tool_result: dict[str, Any] | None = None
    image: dict[str, Any] | None = None


class Start(msgspec.Struct, rename="camel"):
    content_block_index: int
    start: StartOf = msgspec.field(default_factory=StartOf)


class ToolInput(msgspec.Struct):
    input: str = ""


class Reasoning(msgspec.Struct, rename="camel"):
    text: str | None = None
    signature: str | None = None
    redacted_content: str | None = None


class DeltaOf(msgspec.Struct, rename="camel"):
    text: str | None = None
    tool_use: ToolInput | None = None
    reasoning_content: Reasoning | None = None
    citation: dict[str, Any] | None = None
    tool_result: list[Any] | None = None
    image: dict[str, Any] | None = None


class Delta(msgspec.Struct, rename="camel"):
    content_block_index: int
    delta: DeltaOf


class BlockStop(msgspec.Struct, rename="camel"):
    content_block_index: int


class ErrorBody(msgspec.Struct):
    message: str | None = None
    Message: str | None = None
    type: str | None = msgspec.field(default=None, name="__type")


class BuiltBlock(msgspec.Struct):
    """A block, put together from its pieces."""

    index: int
    text: list[str] = msgspec.field(default_factory=list)
    thinking: list[str] = msgspec.field(default_factory=list)
    signature: list[str] = msgspec.field(default_factory=list)
    redacted: list[bytes] = msgspec.field(default_factory=list)
    citations: list[Any] = msgspec.field(default_factory=list)
    call: ToolStart | None = None
    input: list[str] = msgspec.field(default_factory=list)
    result: dict[str, Any] | None = None
    image: dict[str, Any] | None = None
    added: bool = False

    def block(self, names: Mapping[str, str]) -> Any:  # noqa: PLR0911
        """The block as it stands in a message."""
        if self.call is not None:
            extra = {} if self.call.type is None else {"type": self.call.type}
            name = names.get(self.call.name, self.call.name)
            arguments = "".join(self.input)
            call = ToolCall(id=self.call.tool_use_id, name=name, arguments=arguments, extra=extra)
            return encode_blocks(call)[0]
        if self.redacted:
            data = base64.b64encode(b"".join(self.redacted)).decode()
            return encode_blocks(RedactedThinking(data=data))[0]
        if self.thinking or self.signature:
            signature = "".join(self.signature) or None
            thought = Thinking(text="".join(self.thinking), signature=signature)
            return encode_blocks(thought)[0]
        if self.citations:
            said = [{"text": "".join(self.text)}]
            return {"citationsContent": {"content": said, "citations": self.citations}}
        if self.result is not None:
            return {"toolResult": self.result}
        if self.image is not None:
            return {"image": self.image}
        return {"text": "".join(self.text)}

    @property
    def comes_whole(self) -> bool:
        return bool(self.redacted) or self.result is not None or self.image is not None

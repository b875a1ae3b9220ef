"""A message, stored as it arrived, and its parts.

Nothing here depends on a protocol: `cllm.wire` converts between JSON and parts.
"""

from collections.abc import Iterator
from typing import Any, Literal

import msgspec

Role = Literal["system", "user", "assistant", "tool"]
Dialect = Literal["openai", "anthropic", "bedrock", "responses"]


class Message(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One message with its unchanged JSON.

    `raw` is UTF-8, spaced as it arrived; in a conversation file it is compact. A message is sent
    back in its own dialect as the same bytes, because provider caches compare bytes. An OpenAI
    `developer` message has the role `system`.
    """

    role: Role
    raw: bytes
    dialect: Dialect = "openai"

    def json(self) -> dict[str, Any]:
        decoded: dict[str, Any] = msgspec.json.decode(self.raw)
        return decoded

    @property
    def text(self) -> str:
        """The text and refusals, without tools and thinking; empty if nested too deeply."""
        try:
            return "\n".join(msgspec.json.decode(self.raw, type=_Content).texts())
        except RecursionError:
            return ""


def _texts(content: list[Any]) -> Iterator[str]:
    """Yield the texts of blocks; a block can be a message with blocks."""
    for block in content:
        if not isinstance(block, dict):
            continue
        inner = block.get("content") if "role" in block else None
        if isinstance(inner, list):
            yield from (text for text in map(_text, inner) if text is not None)
        elif (text := inner if isinstance(inner, str) else _text(block)) is not None:
            yield text


def _text(block: Any) -> str | None:
    text = block.get("text", block.get("refusal")) if isinstance(block, dict) else None
    return text if isinstance(text, str) else None


class _Content(msgspec.Struct):
    content: Any = None
    refusal: Any = None

    def texts(self) -> Iterator[str]:
        if isinstance(self.content, list):
            yield from _texts(self.content)
        elif isinstance(self.content, str) and self.content:
            yield self.content
        if isinstance(self.refusal, str) and self.refusal:
            yield self.refusal


def plain_message(role: Role, text: str) -> Message:
    """Return a message with one text, in OpenAI's format."""
    return Message(role=role, raw=msgspec.json.encode({"role": role, "content": text}))


class CacheMark(msgspec.Struct, frozen=True, kw_only=True):
    ttl: str | None = None


class Part(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    """`extra` has the fields of a block that have no attribute here, so that nothing is lost."""

    cache: CacheMark | None = None
    extra: dict[str, Any] = msgspec.field(default_factory=dict)


class Text(Part, frozen=True, kw_only=True, tag="text"):
    text: str


class Image(Part, frozen=True, kw_only=True, tag="image"):
    media_type: str | None = None
    data: str | None = None
    url: str | None = None


class Document(Part, frozen=True, kw_only=True, tag="document"):
    media_type: str | None = None
    data: str | None = None
    text: str | None = None
    url: str | None = None
    file_id: str | None = None
    name: str | None = None


class ToolCall(Part, frozen=True, kw_only=True, tag="tool_call"):
    """`arguments` is the JSON text as the model wrote it."""

    id: str
    name: str
    arguments: str


class Thinking(Part, frozen=True, kw_only=True, tag="thinking"):
    text: str
    signature: str | None = None


class RedactedThinking(Part, frozen=True, kw_only=True, tag="redacted_thinking"):
    data: str


class Refusal(Part, frozen=True, kw_only=True, tag="refusal"):
    text: str


class Unknown(Part, frozen=True, kw_only=True, tag="unknown"):
    """A block of an unknown type; `field` is the list that contained it."""

    dialect: Dialect
    raw: bytes
    field: str = "content"


class ToolResult(Part, frozen=True, kw_only=True, tag="tool_result"):
    call_id: str
    content: tuple["Text | Image | Document | Unknown", ...] = ()
    is_error: bool = False


AnyPart = (
    Text
    | Image
    | Document
    | ToolCall
    | ToolResult
    | Thinking
    | RedactedThinking
    | Refusal
    | Unknown
)

"""How a protocol answers: a reply as a whole, or as the events of a stream. One voice for each.

A voice puts the codecs of `cllm.wire` together; it carries nothing and decides nothing.
"""

from typing import Any, Protocol

from cllm.core.errors import ErrorReport
from cllm.core.ports import Clock, NewId
from cllm.core.reply import ReplyEvent, ReplyFinished
from cllm.server.errors import encode_openai
from cllm.wire.openai.functions import FunctionCalls, asks_with_functions
from cllm.wire.openai.response_encoder import StreamEncoder, encode_reply
from cllm.wire.translate import parts_of

COMMENT = b": keep-alive\n\n"


class Voice(Protocol):
    """The answer to one request, in the words of its protocol."""

    sign: bytes
    """What a silent stream is kept open with."""

    def encode(self, event: ReplyEvent) -> bytes:
        """An event of a stream; the last one ends it."""
        ...

    def error(self, told: ErrorReport) -> bytes:
        """The end of a stream that failed."""
        ...

    def whole(self, reply: ReplyFinished) -> bytes:
        """A reply that is no stream."""
        ...


class OpenAIVoice:
    """Chat completions."""

    sign = COMMENT

    def __init__(
        self, *, model: str, new_id: NewId, clock: Clock, parameters: dict[str, Any]
    ) -> None:
        self._model = model
        self._new_id = new_id
        self._clock = clock
        self._parameters = parameters
        self._functions = FunctionCalls() if asks_with_functions(parameters) else None
        self._encoder: StreamEncoder | None = None

    def encode(self, event: ReplyEvent) -> bytes:
        if self._encoder is None:
            options = self._parameters.get("stream_options")
            self._encoder = StreamEncoder(
                model=self._model,
                id=self._id(),
                created=self._created(),
                include_usage=isinstance(options, dict) and options.get("include_usage") is True,
            )
        if self._functions is None:
            return self._encoder.encode(event)
        return b"".join(map(self._encoder.encode, self._functions.told(event)))

    def error(self, told: ErrorReport) -> bytes:
        return b"data: " + encode_openai(told) + b"\n\n"

    def whole(self, reply: ReplyFinished) -> bytes:
        if reply.message.dialect == "openai" and reply.raw is not None:
            return encode_reply(reply, parts=())
        return encode_reply(
            reply,
            parts=parts_of(reply.message),
            model=reply.model or self._model,
            id=self._id(),
            created=self._created(),
            functions=self._functions is not None,
        )

    def _id(self) -> str:
        return f"chatcmpl-{self._new_id()}"

    def _created(self) -> int:
        return int(self._clock().timestamp())

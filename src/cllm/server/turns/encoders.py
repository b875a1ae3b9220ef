"""Encoders of replies, one per protocol: a whole response, or the events of a stream."""

from typing import Any, Protocol

from cllm.core.errors import ErrorReport
from cllm.core.ports import Clock, NewId
from cllm.core.reply import ReplyEvent, ReplyFinished, Verbatim
from cllm.server.http.errors import encode_anthropic, encode_openai
from cllm.wire.anthropic.parts import DIALECT
from cllm.wire.anthropic.response_encoder import PING, encode_answer
from cllm.wire.anthropic.response_encoder import StreamEncoder as AnthropicStreamEncoder
from cllm.wire.openai.functions import FunctionCalls, asks_with_functions
from cllm.wire.openai.response_encoder import StreamEncoder, encode_reply
from cllm.wire.translate import parts_of

COMMENT = b": keep-alive\n\n"


class Voice(Protocol):
    """Encodes the reply to one request. `sign` is the keep-alive of a stream."""

    sign: bytes

    def encode(self, event: ReplyEvent) -> bytes: ...

    def error(self, report: ErrorReport) -> bytes: ...

    def whole(self, reply: ReplyFinished) -> bytes: ...


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

    def error(self, report: ErrorReport) -> bytes:
        return b"data: " + encode_openai(report) + b"\n\n"

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


class AnthropicVoice:
    """Messages."""

    sign = PING

    def __init__(self, *, model: str, new_id: NewId) -> None:
        self._model = model
        self._new_id = new_id
        self._encoder: AnthropicStreamEncoder | None = None
        self._is_verbatim = False
        self._ending: list[bytes] = []

    def encode(self, event: ReplyEvent) -> bytes:
        if type(event) is Verbatim:
            self._is_verbatim = True
            if not event.closes:
                return event.data
            self._ending.append(event.data)
            return b""
        if self._is_verbatim:
            return b"".join(self._ending) if isinstance(event, ReplyFinished) else b""
        if self._encoder is None:
            self._encoder = AnthropicStreamEncoder(message_id=self._id(), model=self._model)
        return self._encoder.encode(event)

    def error(self, report: ErrorReport) -> bytes:
        return b"event: error\ndata: %b\n\n" % encode_anthropic(report)

    def whole(self, reply: ReplyFinished) -> bytes:
        is_native = reply.message.dialect == DIALECT
        return encode_answer(
            reply,
            message_id=self._id(),
            model=reply.model or self._model,
            parts=None if is_native else parts_of(reply.message),
        )

    def _id(self) -> str:
        return f"msg_{self._new_id()}"

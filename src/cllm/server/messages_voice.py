"""How Anthropic's clients are answered: a message, or the events of one.

What comes from Anthropic itself goes on as it came; the end of it waits until the turn is kept. An
answer of any other provider is told in the same words.
"""

from cllm.core.errors import ErrorReport
from cllm.core.ports import NewId
from cllm.core.reply import ReplyEvent, ReplyFinished, Verbatim
from cllm.server.errors import encode_anthropic
from cllm.wire.anthropic.parts import DIALECT
from cllm.wire.anthropic.response_encoder import PING, StreamEncoder, encode_answer
from cllm.wire.translate import parts_of


class AnthropicVoice:
    """Messages."""

    sign = PING

    def __init__(self, *, model: str, new_id: NewId) -> None:
        self._model = model
        self._new_id = new_id
        self._encoder: StreamEncoder | None = None
        self._is_verbatim = False
        self._ending: list[bytes] = []

    def encode(self, event: ReplyEvent) -> bytes:
        if type(event) is Verbatim:
            return self._as_it_came(event)
        if self._is_verbatim:
            return b"".join(self._ending) if isinstance(event, ReplyFinished) else b""
        if self._encoder is None:
            self._encoder = StreamEncoder(message_id=self._id(), model=self._model)
        return self._encoder.encode(event)

    def _as_it_came(self, event: Verbatim) -> bytes:
        self._is_verbatim = True
        if not event.closes:
            return event.data
        self._ending.append(event.data)
        return b""

    def error(self, told: ErrorReport) -> bytes:
        return b"event: error\ndata: %b\n\n" % encode_anthropic(told)

    def whole(self, reply: ReplyFinished) -> bytes:
        own = reply.message.dialect == DIALECT
        return encode_answer(
            reply,
            message_id=self._id(),
            model=reply.model or self._model,
            parts=None if own else parts_of(reply.message),
        )

    def _id(self) -> str:
        return f"msg_{self._new_id()}"

"""What the library gives back: the reply of a turn, and what there is to know about it."""

from typing import Self

import msgspec

from cllm.core.message import Message
from cllm.core.notice import Notice
from cllm.core.reply import StopReason, Usage
from cllm.engine.request import TurnEnded


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A reply. `str()` of it is its text.

    `cost` is in US dollars, None if nobody can say. `conversation` is the id of the one in which
    it is kept.
    """

    text: str
    message: Message
    stop_reason: StopReason
    model: str
    usage: Usage | None = None
    cost: float | None = None
    conversation: str | None = None
    notices: tuple[Notice, ...] = ()

    @classmethod
    def of(cls, ended: TurnEnded, *, conversation: str | None, notices: tuple[Notice, ...]) -> Self:
        usage = ended.reply.usage if ended.turn is None else ended.turn.usage
        return cls(
            text=ended.reply.message.text,
            message=ended.reply.message,
            stop_reason=ended.reply.stop_reason,
            model=ended.model,
            usage=usage,
            cost=ended.cost,
            conversation=conversation,
            notices=notices,
        )

    def __str__(self) -> str:
        return self.text

"""What the library returns: the reply of a turn, whole or as a stream of text.

A stream runs on cllm's own loop; TextStream and AsyncTextStream are two views of it.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing
from types import TracebackType
from typing import Self

import msgspec

from cllm.core.message import Message
from cllm.core.notice import Notice
from cllm.core.reply import StopReason, Usage
from cllm.engine.request import TurnEnded
from cllm.library.loop import background


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


Pieces = AsyncGenerator[str | Answer, None]
"""The text of an answer as it comes, and at last the answer."""


async def whole(pieces: Pieces) -> Answer:
    """The answer at the end of the pieces."""
    async with aclosing(pieces) as coming:
        async for piece in coming:
            if isinstance(piece, Answer):
                return piece
    raise AssertionError("a turn ends with an answer or an error")


class TextStream:
    """The pieces of an answer's text; iterate over it, then look at `answer`.

    `close`, or the end of a `with` block, stops early; a conversation keeps what was said so far.
    """

    def __init__(self, pieces: Pieces) -> None:
        self._pieces = background().iterate(pieces)
        self.answer: Answer | None = None

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        for piece in self._pieces:
            if isinstance(piece, str):
                return piece
            self.answer = piece
        raise StopIteration

    def close(self) -> None:
        self._pieces.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class AsyncTextStream:
    """`TextStream` for asynchronous code: `async for`, `aclose`, `async with`."""

    def __init__(self, pieces: Pieces) -> None:
        self._pieces = background().iterate_elsewhere(pieces)
        self.answer: Answer | None = None

    def __aiter__(self) -> AsyncIterator[str]:
        return self

    async def __anext__(self) -> str:
        async for piece in self._pieces:
            if isinstance(piece, str):
                return piece
            self.answer = piece
        raise StopAsyncIteration

    async def aclose(self) -> None:
        await self._pieces.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

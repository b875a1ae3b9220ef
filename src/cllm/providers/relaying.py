"""A short way for the pieces of a stream: from the provider's connection straight to who is told.

Most of what a server's stream costs is waking, for every few words, each of the steps that pass
them on unseen. A server that answers a stream without keeping it offers a relay for the time of
the turn. The first pieces come the long way; then whoever reads the stream gives to the relay what
that takes, and wakes nobody. The relay knows no provider, and a provider nothing of who listens.
"""

from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

from cllm.core.reply import ReplyEvent
from cllm.providers.http import Response
from cllm.wire.malformed import MalformedError


class Relay(Protocol):
    """Where the events of one answer may be given to, in place of the way they came before."""

    @property
    def is_open(self) -> bool:
        """Whether an event would be out at once: something of the answer is, and all there was."""
        ...

    def take(self, event: ReplyEvent) -> bool:
        """Pass an event on; False, and nothing is done, for one that has to go the long way."""
        ...


_offered: ContextVar[Relay | None] = ContextVar("relay", default=None)


@contextmanager
def offered(relay: Relay | None) -> Iterator[None]:
    """Offer a relay to the one turn that is begun within."""
    token = _offered.set(relay)
    try:
        yield
    finally:
        _offered.reset(token)


class Reader(Protocol):
    """Reads a stream: bytes in, events out, until it is done."""

    @property
    def done(self) -> bool: ...

    def feed(self, piece: bytes) -> Iterable[ReplyEvent]: ...


class Relayed:
    """A stream on the short way: is called with each piece, and says whether it takes the next.

    What the relay did not take, and what was wrong with a piece, is in `rest` for the long way.
    """

    def __init__(self, reader: Reader, relay: Relay) -> None:
        self._reader = reader
        self._relay = relay
        self._left: list[ReplyEvent] = []
        self._failure: MalformedError | None = None

    @property
    def is_open(self) -> bool:
        return self._relay.is_open and not self._reader.done

    def __call__(self, piece: bytes) -> bool:
        left, take = self._left, self._relay.take
        try:
            for event in self._reader.feed(piece):
                if left or not take(event):
                    left.append(event)
        except MalformedError as error:
            self._failure = error
            return False
        return not left and self.is_open

    def rest(self) -> Iterator[ReplyEvent]:
        """The events that were not relayed; then the error, if there is one."""
        left, self._left = self._left, []
        yield from left
        if self._failure is not None:
            raise self._failure


async def events_of(response: Response, reader: Reader) -> AsyncIterator[Iterable[ReplyEvent]]:
    """What the pieces of a stream say, up to its end; not what the relay of this turn has taken."""
    relay = _offered.get()
    relayed = None if relay is None else Relayed(reader, relay)
    async for piece in response.chunks():
        yield reader.feed(piece)
        if relayed is not None and relayed.is_open:
            await response.hand_on(relayed)
            yield relayed.rest()
        if reader.done:
            return

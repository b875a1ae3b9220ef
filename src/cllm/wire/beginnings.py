"""How requests began, so that the next one of the same conversation is read from there on.

A client sends a conversation again with every request, a little longer each time, and its body
begins with the bytes of the one before. The messages in these were read then; in their place one of
ours is put, and what is left is read as any body is. It makes no difference to what is read: a body
that does not begin as one before, or of which the rest cannot be read so, is read whole. Only so
many bytes are kept, the latest, by this process alone.
"""

from collections.abc import Callable

import msgspec

from cllm.core.message import Message
from cllm.core.prompt import Original
from cllm.wire.history import MESSAGE_BYTES
from cllm.wire.malformed import FieldError

LIMIT = 5_000_000
MOST = 64
SHORTEST = 4_000
"""Bytes; a shorter body is read before it could be looked for."""
ENDING = 64
SEPARATORS = (b",", b", ")
KNOWN = b'{"role":"user","content":"(the messages that cllm has read before)"}'
"""Stands for the messages that are known; of every protocol that is read here."""

Decode = Callable[[bytes], Original]


class Beginning(msgspec.Struct, frozen=True, kw_only=True):
    """A body with these messages in it, from `start` to `end`, with `separator` between them."""

    body: bytes
    start: int
    end: int
    separator: bytes
    messages: tuple[Message, ...]

    @property
    def size(self) -> int:
        """About how many bytes it takes: the messages are there twice."""
        return 2 * len(self.body) + MESSAGE_BYTES * len(self.messages)

    def is_of(self, body: bytes) -> bool:
        """Whether the body begins so; of two conversations the ends are looked at first."""
        head = memoryview(self.body)[: self.end]
        place = max(self.end - ENDING, 0)
        return body.startswith(head[place:], place) and body.startswith(head)

    def shortened(self, body: bytes) -> bytes:
        """The body, which begins so, with one message of ours in the place of these."""
        return b"".join((self.body[: self.start], KNOWN, body[self.end :]))

    def grown(self, body: bytes, new: tuple[Message, ...]) -> "Beginning | None":
        """The same with what is new in the body, if that is written in the same way."""
        more = b"".join([self.separator + message.raw for message in new])
        if not body.startswith(more, self.end):
            return None
        return Beginning(
            body=body,
            start=self.start,
            end=self.end + len(more),
            separator=self.separator,
            messages=(*self.messages, *new),
        )


def beginning_of(body: bytes, messages: tuple[Message, ...]) -> Beginning | None:
    """The beginning of a body with these messages, if they are written in one of the usual ways."""
    start = body.find(messages[0].raw) if messages else -1
    for separator in SEPARATORS if start >= 0 else ():
        said = separator.join([message.raw for message in messages])
        if body.startswith(said, start):
            return Beginning(
                body=body,
                start=start,
                end=start + len(said),
                separator=separator,
                messages=messages,
            )
    return None


class Beginnings:
    """The latest beginnings of bodies of one protocol, which `decode` reads."""

    def __init__(self, decode: Decode, *, limit: int = LIMIT) -> None:
        self._decode = decode
        self._limit = limit
        self._latest: list[Beginning] = []

    def read(self, body: bytes) -> Original:
        """What the body says, as `decode` would read it."""
        if len(body) < SHORTEST:
            return self._decode(body)
        known = next((one for one in self._latest if one.is_of(body)), None)
        original = None if known is None else self._read_on(known, body)
        if original is None:
            original = self._decode(body)
            self._keep(beginning_of(body, original.messages))
        return original

    def _read_on(self, known: Beginning, body: bytes) -> Original | None:
        """What a body says that begins so; None if it has to be read whole."""
        shortened = known.shortened(body)
        if shortened.count(KNOWN) != 1:
            return None
        try:
            read = self._decode(shortened)
        except FieldError:
            return None
        ours, new = read.messages[:1], read.messages[1:]
        if not ours or ours[0].raw != KNOWN:
            return None
        self._latest.remove(known)
        grown = known.grown(body, new)
        self._keep(grown)
        messages = (*known.messages, *new) if grown is None else grown.messages
        return msgspec.structs.replace(read, body=body, messages=messages)

    def _keep(self, beginning: Beginning | None) -> None:
        """Have this one first, and as many of the others as there is room for."""
        if beginning is None or beginning.size > self._limit:
            return
        self._latest.insert(0, beginning)
        room = self._limit - sum([one.size for one in self._latest])
        while self._latest and (room < 0 or len(self._latest) > MOST):
            room += self._latest.pop().size

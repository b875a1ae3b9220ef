"""A history as it is sent, to which more can be put: for conversations that are sent again longer.

Most messages are encoded to the same bytes whatever stands beside them. Where all of a history are
such, what was sent of it stays what is sent, and what is new stands behind it. Whether a history is
in order is not decided here.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from cllm.core.message import AnyPart, Document, Message, Role, ToolCall, ToolResult, Unknown
from cllm.wire.spoken import Spoken

Order = Callable[[Sequence[Spoken]], Sequence[Spoken] | None]
"""The messages as the target takes them, if only results had to be put together for that."""
COUNTED = (Document, Unknown)
"""Parts that have a title, or may have a mark that is not looked for in them."""
KIND_BYTES = 8
NAME_BYTES = 60
MESSAGE_BYTES = 150


class End(msgspec.Struct, frozen=True, kw_only=True):
    """Who says a message that is sent, and the kinds of its parts."""

    role: Role
    kinds: tuple[type[AnyPart], ...]


def end_of(role: Role, parts: Sequence[AnyPart]) -> End:
    return End(role=role, kinds=tuple(map(type, parts)))


class History(msgspec.Struct, frozen=True, kw_only=True):
    """The messages of a request as they are sent: the JSON of a list's inside, in pieces.

    `ends` says who says the last two, `called` are the names of the tools that were called. `lead`
    are system messages that stood before them. With `own` all of it is the bytes that it came as.
    """

    said: tuple[bytes, ...]
    ends: tuple[End, ...]
    own: bool = False
    called: tuple[str, ...] = ()
    lead: tuple[Message, ...] = ()

    @property
    def size_beside(self) -> int:
        """About how many bytes it takes beside what is said in it."""
        kinds = sum([len(end.kinds) for end in self.ends])
        return KIND_BYTES * kinds + sum([NAME_BYTES + len(name) for name in self.called])

    def led_by(self, lead: tuple[Message, ...]) -> "History":
        """The same behind messages of the system's."""
        return msgspec.structs.replace(self, own=False, lead=lead) if lead else self

    def followed_by(self, more: "History") -> "History":
        """The same, and what was said since."""
        called = dict.fromkeys(self.called) | dict.fromkeys(more.called)
        return History(
            said=(*self.said, b",", *more.said),
            ends=(*self.ends, *more.ends)[-2:],
            own=self.own and more.own,
            called=tuple(called),
        )

    def listed(self, *first: Any) -> msgspec.Raw:
        """The list of the messages, with these before them."""
        before = [msgspec.json.encode(message) + b"," for message in first]
        return msgspec.Raw(b"".join((b"[", *before, *self.said, b"]")))


def size_of(messages: Iterable[Message]) -> int:
    """About how many bytes messages take."""
    return sum([MESSAGE_BYTES + len(message.raw) for message in messages])


def stands_alone(spoken: Spoken) -> bool:
    """Whether nothing in a message is counted through the whole request, as marks and titles."""
    return not spoken.extra and all(map(_stands_alone, spoken.parts))


def _stands_alone(part: AnyPart) -> bool:
    if part.cache is not None or part.extra or isinstance(part, COUNTED):
        return False
    return type(part) is not ToolResult or all(map(_stands_alone, part.content))


def names_called(parts: Iterable[AnyPart]) -> tuple[str, ...]:
    """The names of the tools that are called, each once."""
    return tuple(dict.fromkeys(part.name for part in parts if isinstance(part, ToolCall)))

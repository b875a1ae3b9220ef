"""What the codecs share: a message on its way into another protocol, and a request made of many.

Types, and what is told of them in every protocol alike. A codec imports this and core, and no other
codec.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec

from cllm.core.message import AnyPart, Dialect, RedactedThinking, Role, Thinking, ToolCall
from cllm.core.notice import Notice, NoticeCollector
from cllm.wire.malformed import NotExpressibleError
from cllm.wire.reasoning import TEXT_FIELDS

NOTHING: Mapping[str, Any] = MappingProxyType({})
UNSAID: Mapping[str, Any] = MappingProxyType({"image_url": {"detail": "auto"}})
# What is lost with a field of which the rest is said in another way.
LOST_WITH: Mapping[str, str] = MappingProxyType({"image_url": "image_url.detail"})


class Spoken(msgspec.Struct, frozen=True, kw_only=True):
    """One message to be encoded: its parts, and its own bytes if it is in the codec's dialect.

    A codec sends `raw` as it is where nothing has to change, and goes through the parts otherwise.
    `place` is its position in the prompt, by which a notice names it. `dialect` is the protocol it
    came in, None if it came in none; `extra` are its fields beside the parts, for that one only.
    """

    role: Role
    parts: tuple[AnyPart, ...]
    raw: bytes | None = None
    place: int = 0
    dialect: Dialect | None = None
    extra: Mapping[str, Any] = NOTHING

    def is_own(self, dialect: Dialect) -> bool:
        """Whether it came in the words of this protocol."""
        return self.raw is not None or self.dialect == dialect


def rewritten(spoken: Spoken, parts: Sequence[AnyPart]) -> Spoken:
    """The message with other parts: its own bytes no longer say the same."""
    return Spoken(
        role=spoken.role,
        parts=tuple(parts),
        place=spoken.place,
        dialect=spoken.dialect,
        extra=spoken.extra,
    )


def check_still_asks(before: Spoken, after: Spoken, target: str) -> None:
    """An error if nothing is left of a message of the user's that said something.

    For the newest one only: that nothing is asked is for the person to know.
    """
    if after.role == "user" and before.parts and not after.parts:
        raise NotExpressibleError(
            f"messages[{before.place}]: nothing in it can be said to {target}: "
            "say it as text, or leave the message out."
        )


def telling_fields(part: AnyPart) -> set[str]:
    """The names of a part's fields of another protocol that say more than is so without them."""
    return {
        LOST_WITH.get(name, name) for name, value in part.extra.items() if value != UNSAID.get(name)
    }


class Mended(msgspec.Struct, frozen=True, kw_only=True):
    """A history as the target takes it, and what had to be changed for that."""

    messages: tuple[Spoken, ...]
    notices: tuple[Notice, ...] = ()


Mend = Callable[[Sequence[Spoken]], Mended]
"""Makes a history one that the target takes. A codec calls it with messages that the protocol has
words for, and takes care of nothing that it does; it raises what cannot be sent at all."""


def unmended(messages: Sequence[Spoken]) -> Mended:
    """The history as it is, for a caller who knows it to be in order."""
    return Mended(messages=tuple(messages))


class Encoded(msgspec.Struct, frozen=True, kw_only=True):
    """A request's body, and what could not be said in it.

    `names` and `ids` are the aliases that stand in it for names of tools and ids of calls which
    the target refuses: alias → the client's own. `own` says that all of it is what the codec was
    given in its own words, and nothing else.
    """

    body: bytes
    notices: tuple[Notice, ...] = ()
    names: Mapping[str, str] = msgspec.field(default_factory=dict)
    ids: Mapping[str, str] = msgspec.field(default_factory=dict)
    own: bool = False


def called_names(parts: Iterable[AnyPart]) -> tuple[str, ...]:
    """The names of the tools that are called, each once."""
    return tuple(dict.fromkeys(part.name for part in parts if isinstance(part, ToolCall)))


def starts_with_thinking(parts: Sequence[AnyPart]) -> bool:
    return bool(parts) and isinstance(parts[0], Thinking | RedactedThinking)


def left_out_fields(messages: Iterable[Spoken]) -> tuple[Notice, ...]:
    """What is to be told of messages whose fields beside their parts are not sent.

    Reasoning text is one of the parts as well, and is told of as such.
    """
    places: dict[str, list[int]] = {}
    for spoken in messages:
        for name in spoken.extra:
            if name not in TEXT_FIELDS:
                places.setdefault(name, []).append(spoken.place)
    notices = (
        Notice(
            code="field_left_out",
            path=f"messages[{where[0]}].{name}",
            message=f"The field {name} of a message cannot be sent with it."
            + (f" ({len(where)} times)" if where[1:] else ""),
        )
        for name, where in places.items()
    )
    return tuple(NoticeCollector(notices))

"""What the codecs share: a message on its way into another protocol, and a request made of many.

Types, and what is told of them in every protocol alike. A codec imports this and core, and no other
codec.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec

from cllm.core.message import AnyPart, Dialect, RedactedThinking, Role, Thinking, ToolCall
from cllm.core.notice import MAX_NOTICES, Notice, NoticeCollector, notices_left_out
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


Sentences = Mapping[str, tuple[str, str]]
"""What a codec has to tell again and again: reason → the notice's code and its sentence."""

NO_SENTENCES: Sentences = MappingProxyType({})
LONGEST_NAME = 128


class Notes:
    """The notices of one request: one for each thing, at the first place it stood.

    Of more than MAX_NOTICES things the first are told; the others are counted, each time.
    """

    def __init__(self, sentences: Sentences = NO_SENTENCES) -> None:
        self._sentences = sentences
        # The first path of each thing, and how often it happened.
        self._told: dict[tuple[str, str, str], tuple[str, int]] = {}
        self._left_out = 0

    def add(self, code: str, path: str, message: str, *, subject: str = "") -> None:
        """Tell of something; about another `subject` the same sentence is another notice."""
        key = (code, message, subject)
        first, count = self._told.get(key, (path, 0))
        if count or len(self._told) < MAX_NOTICES:
            self._told[key] = first, count + 1
        else:
            self._left_out += 1

    def tell(self, reason: str, path: str, *, subject: str = "") -> None:
        """Tell what the codec has a sentence for."""
        code, message = self._sentences[reason]
        self.add(code, path, message, subject=subject)

    def extend(self, notices: Iterable[Notice]) -> None:
        for notice in notices:
            self.add(notice.code, notice.path, notice.message)

    def notices(self) -> tuple[Notice, ...]:
        told = (
            Notice(code=code, path=path, message=message + _times(count))
            for (code, message, _), (path, count) in self._told.items()
        )
        return (*told, notices_left_out(self._left_out)) if self._left_out else tuple(told)


def shortened(name: str) -> str:
    """A name that a client chose, as it can stand in the path of many notices."""
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"


def _times(count: int) -> str:
    return "" if count == 1 else f" ({count} times)"

"""Types that the codecs share: a message to be encoded, an encoded request, its notices.

A codec imports this module and core, and no other codec.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar

import msgspec

from cllm.core.message import (
    AnyPart,
    Dialect,
    RedactedThinking,
    Refusal,
    Role,
    Text,
    Thinking,
    ToolCall,
)
from cllm.core.notice import MAX_NOTICES, Notice, NoticeCollector, notices_left_out
from cllm.core.reply import (
    PartAdded,
    RefusalDelta,
    ReplyDelta,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
)
from cllm.wire.malformed import FieldError, NotExpressibleError
from cllm.wire.reasoning import TEXT_FIELDS

NOTHING: Mapping[str, Any] = MappingProxyType({})
UNSAID: Mapping[str, Any] = MappingProxyType({"image_url": {"detail": "auto"}})
# What is lost with a field whose rest is sent in another form.
LOST_WITH: Mapping[str, str] = MappingProxyType({"image_url": "image_url.detail"})


class Spoken(msgspec.Struct, frozen=True, kw_only=True):
    """One message to be encoded. `raw` is set if it is in the target's dialect already.

    A codec sends `raw` unchanged if it can, and encodes the parts otherwise. `place` is the
    index in the prompt, for notices. `dialect` is the source protocol; `extra` holds fields
    beside the parts, for that protocol only.
    """

    role: Role
    parts: tuple[AnyPart, ...]
    raw: bytes | None = None
    place: int = 0
    dialect: Dialect | None = None
    extra: Mapping[str, Any] = NOTHING

    def is_own(self, dialect: Dialect) -> bool:
        return self.raw is not None or self.dialect == dialect


def rewritten(spoken: Spoken, parts: Sequence[AnyPart]) -> Spoken:
    """Return the message with other parts, without `raw`."""
    return Spoken(
        role=spoken.role,
        parts=tuple(parts),
        place=spoken.place,
        dialect=spoken.dialect,
        extra=spoken.extra,
    )


def check_still_asks(before: Spoken, after: Spoken, target: str) -> None:
    """Raise NotExpressibleError if the newest user message has nothing left to send."""
    if after.role == "user" and before.parts and not after.parts:
        raise NotExpressibleError(
            f"messages[{before.place}]: nothing in it can be said to {target}: "
            "say it as text, or leave the message out."
        )


def telling_fields(part: AnyPart) -> set[str]:
    """Return the names of a part's foreign fields that differ from their defaults."""
    return {
        LOST_WITH.get(name, name) for name, value in part.extra.items() if value != UNSAID.get(name)
    }


def delta_of(part: AnyPart, index: int) -> ReplyDelta:
    """Return a whole part as one delta; PartAdded for kinds without a delta of their own."""
    match part:
        case Text():
            return TextDelta(text=part.text, index=index)
        case Refusal():
            return RefusalDelta(text=part.text, index=index)
        case Thinking():
            return ThinkingDelta(text=part.text, signature=part.signature, index=index)
        case ToolCall():
            return ToolCallDelta(index=index, id=part.id, name=part.name, arguments=part.arguments)
        case _:
            return PartAdded(part=part, index=index)


Shape = TypeVar("Shape")


def convert(value: Any, shape: type[Shape], path: str = "") -> Shape:
    """Convert JSON to a type; raises FieldError with the path below `path`."""
    try:
        return msgspec.convert(value, shape)
    except (msgspec.ValidationError, RecursionError) as error:
        raise field_error(error, path) from error


def field_error(error: Exception, path: str = "") -> FieldError:
    """Return a FieldError with the path of msgspec's error: `messages[3].content`."""
    problem, _, place = str(error).partition(" - at `$")
    place = place.removesuffix("`")
    return FieldError(f"{path}{place}" if path else place.removeprefix("."), problem)


class Mended(msgspec.Struct, frozen=True, kw_only=True):
    """A history that the target accepts, and what was changed for that."""

    messages: tuple[Spoken, ...]
    notices: tuple[Notice, ...] = ()


Mend = Callable[[Sequence[Spoken]], Mended]
"""Repairs a history for the target. Raises an error if it cannot be sent."""


def unmended(messages: Sequence[Spoken]) -> Mended:
    return Mended(messages=tuple(messages))


class Encoded(msgspec.Struct, frozen=True, kw_only=True):
    """A request body and its notices.

    `names` and `ids` map aliases in the body to the client's tool names and call ids. `own` is
    True if the body only contains input that was in the codec's own protocol.
    """

    body: bytes
    notices: tuple[Notice, ...] = ()
    names: Mapping[str, str] = msgspec.field(default_factory=dict)
    ids: Mapping[str, str] = msgspec.field(default_factory=dict)
    own: bool = False


def called_names(parts: Iterable[AnyPart]) -> tuple[str, ...]:
    """Return the names of the called tools, each once."""
    return tuple(dict.fromkeys(part.name for part in parts if isinstance(part, ToolCall)))


def starts_with_thinking(parts: Sequence[AnyPart]) -> bool:
    return bool(parts) and isinstance(parts[0], Thinking | RedactedThinking)


def left_out_fields(messages: Iterable[Spoken]) -> tuple[Notice, ...]:
    """Return notices for the fields of these messages that are not sent.

    Reasoning text is excluded: it is also a part, which has its own notice.
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
            message=f"The field {name} of a message cannot be sent with it.{times(len(where))}",
        )
        for name, where in places.items()
    )
    return tuple(NoticeCollector(notices))


Sentences = Mapping[str, tuple[str, str]]
"""Reason → notice code and sentence."""

NO_SENTENCES: Sentences = MappingProxyType({})
LONGEST_NAME = 128


class Notes:
    """The notices of one request: one for each subject, with its first path and a count.

    At most MAX_NOTICES are listed; the others are counted.
    """

    def __init__(self, sentences: Sentences = NO_SENTENCES) -> None:
        self._sentences = sentences
        self._told: dict[tuple[str, str, str], tuple[str, int]] = {}
        self._left_out = 0

    def add(self, code: str, path: str, message: str, *, subject: str = "") -> None:
        """Add a notice; the same sentence about another `subject` is another notice."""
        key = (code, message, subject)
        first, count = self._told.get(key, (path, 0))
        if count or len(self._told) < MAX_NOTICES:
            self._told[key] = first, count + 1
        else:
            self._left_out += 1

    def tell(self, reason: str, path: str, *, subject: str = "") -> None:
        """Add the notice that the codec's table has for this reason."""
        code, message = self._sentences[reason]
        self.add(code, path, message, subject=subject)

    def extend(self, notices: Iterable[Notice]) -> None:
        for notice in notices:
            self.add(notice.code, notice.path, notice.message)

    def notices(self) -> tuple[Notice, ...]:
        told = (
            Notice(code=code, path=path, message=message + times(count))
            for (code, message, _), (path, count) in self._told.items()
        )
        return (*told, notices_left_out(self._left_out)) if self._left_out else tuple(told)


def shortened(name: str) -> str:
    """Return a client's name, shortened for the path of a notice."""
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"


def times(count: int) -> str:
    return "" if count == 1 else f" ({count} times)"

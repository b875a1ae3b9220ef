"""Types that the codecs share: messages to encode, encoded requests, notices and aliases.

A tool name or id that the target refuses gets an alias, computed from it alone, so that equal
requests are equal bytes. Arguments that are no JSON object, as after a cut answer, are sent under
the key INVALID_JSON where a protocol requires an object, and unwrapped when read back. A codec
imports this module and core, and no other codec.
"""

import hashlib
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
    ToolResult,
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
from cllm.wire.errors import FieldError, NotExpressibleError
from cllm.wire.reasoning import TEXT_FIELDS

EMPTY: Mapping[str, Any] = MappingProxyType({})
DEFAULT_EXTRA: Mapping[str, Any] = MappingProxyType({"image_url": {"detail": "auto"}})
# What is lost with a field whose rest is sent in another form.
LOST_FIELDS: Mapping[str, str] = MappingProxyType({"image_url": "image_url.detail"})
Shape = TypeVar("Shape")
Sentences = Mapping[str, tuple[str, str]]
"""Reason → notice code and sentence."""
NO_SENTENCES: Sentences = MappingProxyType({})
MAX_NAME_LENGTH = 128
DIGEST_LENGTH = 16
INVALID_JSON = "INVALID_JSON"
PREFIX = b'{"INVALID_JSON":'
BLANKS = " \t\n\r"
UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, UnicodeEncodeError, RecursionError)
_OUTSIDE = re.compile(r'["{}\[\]]')
_INSIDE = re.compile(r'["\\]')


class OutgoingMessage(msgspec.Struct, frozen=True, kw_only=True):
    """One message to be encoded. `raw` is set if it is in the target's dialect already.

    A codec sends `raw` unchanged if it can, and encodes the parts otherwise. `prompt_index` is the
    index in the prompt, for notices. `dialect` is the source protocol; `extra` holds fields
    beside the parts, for that protocol only.
    """

    role: Role
    parts: tuple[AnyPart, ...]
    raw: bytes | None = None
    prompt_index: int = 0
    dialect: Dialect | None = None
    extra: Mapping[str, Any] = EMPTY

    def is_own(self, dialect: Dialect) -> bool:
        return self.raw is not None or self.dialect == dialect


def replace_parts(spoken: OutgoingMessage, parts: Sequence[AnyPart]) -> OutgoingMessage:
    """Return the message with other parts, without `raw`."""
    return OutgoingMessage(
        role=spoken.role,
        parts=tuple(parts),
        prompt_index=spoken.prompt_index,
        dialect=spoken.dialect,
        extra=spoken.extra,
    )


def check_not_emptied(before: OutgoingMessage, after: OutgoingMessage, target: str) -> None:
    """Raise NotExpressibleError if the newest user message has nothing left to send."""
    if after.role == "user" and before.parts and not after.parts:
        raise NotExpressibleError(
            f"messages[{before.prompt_index}]: nothing in it can be said to {target}: "
            "say it as text, or leave the message out."
        )


def lost_extra_fields(part: AnyPart) -> set[str]:
    """Return the names of a part's foreign fields that differ from their defaults."""
    return {
        LOST_FIELDS.get(name, name)
        for name, value in part.extra.items()
        if value != DEFAULT_EXTRA.get(name)
    }


def to_delta(part: AnyPart, index: int) -> ReplyDelta:
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


def convert(value: Any, shape: type[Shape], path: str = "") -> Shape:
    """Convert JSON to a type; raises FieldError with the path below `path`."""
    try:
        return msgspec.convert(value, shape)
    except (msgspec.ValidationError, RecursionError) as error:
        raise field_error(error, path) from error


def field_error(error: Exception, path: str = "") -> FieldError:
    """Return a FieldError with the path of msgspec's error: `messages[3].content`."""
    problem, _, location = str(error).partition(" - at `$")
    location = location.removesuffix("`")
    return FieldError(f"{path}{location}" if path else location.removeprefix("."), problem)


class RepairedHistory(msgspec.Struct, frozen=True, kw_only=True):
    """A history that the target accepts, and what was changed for that."""

    messages: tuple[OutgoingMessage, ...]
    notices: tuple[Notice, ...] = ()


Repair = Callable[[Sequence[OutgoingMessage]], RepairedHistory]
"""Repairs a history for the target. Raises an error if it cannot be sent."""


def no_repair(messages: Sequence[OutgoingMessage]) -> RepairedHistory:
    return RepairedHistory(messages=tuple(messages))


class EncodedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request body and its notices.

    `names` and `ids` map aliases in the body to the client's tool names and call ids.
    `unconverted`: the body only contains input that was in the codec's own protocol.
    """

    body: bytes
    notices: tuple[Notice, ...] = ()
    names: Mapping[str, str] = msgspec.field(default_factory=dict)
    ids: Mapping[str, str] = msgspec.field(default_factory=dict)
    unconverted: bool = False


def list_called_tools(parts: Iterable[AnyPart]) -> tuple[str, ...]:
    """Return the names of the called tools, each once."""
    return tuple(dict.fromkeys(part.name for part in parts if isinstance(part, ToolCall)))


def starts_with_thinking(parts: Sequence[AnyPart]) -> bool:
    return bool(parts) and isinstance(parts[0], Thinking | RedactedThinking)


def omitted_field_notices(messages: Iterable[OutgoingMessage]) -> tuple[Notice, ...]:
    """Return notices for the fields of these messages that are not sent.

    Reasoning text is excluded: it is also a part, which has its own notice.
    """
    places: dict[str, list[int]] = {}
    for spoken in messages:
        for name in spoken.extra:
            if name not in TEXT_FIELDS:
                places.setdefault(name, []).append(spoken.prompt_index)
    notices = (
        Notice(
            code="field_left_out",
            path=f"messages[{where[0]}].{name}",
            message=f"The field {name} of a message cannot be sent with it."
            f"{count_suffix(len(where))}",
        )
        for name, where in places.items()
    )
    return tuple(NoticeCollector(notices))


class NoticeMerger:
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

    def report(self, reason: str, path: str, *, subject: str = "") -> None:
        """Add the notice that the codec's table has for this reason."""
        code, message = self._sentences[reason]
        self.add(code, path, message, subject=subject)

    def extend(self, notices: Iterable[Notice]) -> None:
        for notice in notices:
            self.add(notice.code, notice.path, notice.message)

    def notices(self) -> tuple[Notice, ...]:
        told = (
            Notice(code=code, path=path, message=message + count_suffix(count))
            for (code, message, _), (path, count) in self._told.items()
        )
        return (*told, notices_left_out(self._left_out)) if self._left_out else tuple(told)


def shorten(name: str) -> str:
    """Return a client's name, shortened for the path of a notice."""
    return name if len(name) <= MAX_NAME_LENGTH else f"{name[: MAX_NAME_LENGTH - 1]}…"


def count_suffix(count: int) -> str:
    return "" if count == 1 else f" ({count} times)"


class AliasRule:
    """Which words a target accepts: 1 to `longest` of these characters, any if None."""

    def __init__(self, *, allowed: str | None = "a-zA-Z0-9_-", longest: int = 64) -> None:
        self._longest = longest
        self._taken = None if allowed is None else re.compile(rf"[{allowed}]{{1,{longest}}}")
        self._other = None if allowed is None else re.compile(rf"[^{allowed}]")

    def takes(self, word: str) -> bool:
        if self._taken is None:
            return len(word) <= self._longest
        return self._taken.fullmatch(word) is not None

    def alias(self, word: str, *, again: int = 0) -> str:
        """Return a readable prefix of the word and a digest of the whole."""
        readable = word if self._other is None else self._other.sub("_", word)
        whole = f"{word}#{again}" if again else word
        digest = hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()[:DIGEST_LENGTH]
        return f"{readable[: self._longest - DIGEST_LENGTH - 1]}_{digest}"


class Aliases:
    """The aliases of one request.

    `names` None leaves names unchanged. `keeps_own` keeps ids in messages of the target's own
    protocol.
    """

    def __init__(self, *, names: AliasRule | None, ids: AliasRule, keeps_own: bool = False) -> None:
        self._name_rule = names
        self._id_rule = ids
        self._keeps_own = keeps_own
        self._known: dict[str, str] = {}
        self.names: dict[str, str] = {}
        self.ids: dict[str, str] = {}

    def name(self, name: str) -> str:
        known = self._known.get(name)
        if known is None:
            known = name
            if self._name_rule is not None and not self._name_rule.takes(name):
                known = self._name_rule.alias(name)
                self.names[known] = name
            self._known[name] = known
        return known

    def id(self, call_id: str, *, again: int = 0, own: bool = False) -> str:
        """Return the id to send; `again` numbers calls that share one id in a message."""
        if not again and ((own and self._keeps_own) or self._id_rule.takes(call_id)):
            return call_id
        alias = self._id_rule.alias(call_id, again=again)
        self.ids[alias] = call_id
        return alias


def apply_aliases(
    messages: Sequence[OutgoingMessage], aliases: Aliases
) -> Iterator[OutgoingMessage]:
    """Give calls and results the names and ids to send.

    Results of calls with the same id are assigned in order. An unchanged message is the same
    object.
    """
    seen: dict[str, int] = {}
    waiting: dict[str, deque[str]] = {}
    answered = False
    for spoken in messages:
        kinds = list(map(type, spoken.parts))
        if spoken.role == "assistant":
            if answered:
                seen, waiting, answered = {}, {}, False
            yield _called(spoken, aliases, seen, waiting) if ToolCall in kinds else spoken
        else:
            answers = ToolResult in kinds
            answered = answered or answers or not _says_nothing(spoken.parts)
            yield _answering(spoken, aliases, waiting) if answers else spoken


def _says_nothing(parts: Sequence[AnyPart]) -> bool:
    return all(isinstance(part, Text) and not part.text.strip() for part in parts)


def _called(
    spoken: OutgoingMessage, aliases: Aliases, seen: dict[str, int], waiting: dict[str, deque[str]]
) -> OutgoingMessage:
    parts = list(spoken.parts)
    own = spoken.raw is not None
    changed = False
    for index, part in enumerate(spoken.parts):
        if type(part) is ToolCall:
            again = seen.get(part.id, 0)
            seen[part.id] = again + 1
            sent = aliases.id(part.id, again=again, own=own)
            name = aliases.name(part.name)
            waiting.setdefault(part.id, deque()).append(sent)
            if sent != part.id or name != part.name:
                changed = True
                parts[index] = msgspec.structs.replace(part, id=sent, name=name)
    return replace_parts(spoken, parts) if changed else spoken


def _answering(
    spoken: OutgoingMessage, aliases: Aliases, waiting: dict[str, deque[str]]
) -> OutgoingMessage:
    parts = list(spoken.parts)
    own = spoken.raw is not None
    changed = False
    for index, part in enumerate(spoken.parts):
        if type(part) is ToolResult:
            queue = waiting.get(part.call_id)
            sent = queue.popleft() if queue else aliases.id(part.call_id, own=own)
            if sent != part.call_id:
                changed = True
                parts[index] = msgspec.structs.replace(part, call_id=sent)
    return replace_parts(spoken, parts) if changed else spoken


def alias_field(holder: Any, aliases: Aliases, *path: str) -> Any:
    """Return JSON with the alias for the name at this path; the same object if there is none."""
    if not isinstance(holder, dict):
        return holder
    field, *rest = path
    inner = holder.get(field)
    changed: Any = inner
    if rest:
        changed = alias_field(inner, aliases, *rest)
    elif isinstance(inner, str):
        changed = aliases.name(inner)
    return holder if changed is inner or changed == inner else {**holder, field: changed}


def alias_tools(parameters: Mapping[str, Any], aliases: Aliases, *path: str) -> Mapping[str, Any]:
    """Return parameters with aliases in `tools` and `tool_choice`, whose names are at this path."""
    fields = dict(parameters)
    if isinstance(tools := fields.get("tools"), list):
        fields["tools"] = [alias_field(tool, aliases, *path) for tool in tools]
    if isinstance(choice := fields.get("tool_choice"), dict):
        fields["tool_choice"] = alias_field(choice, aliases, *path)
    return fields if aliases.names else parameters


_objects = msgspec.json.Decoder(dict[str, msgspec.Raw])
_values = msgspec.json.Decoder(msgspec.Raw)


def is_json(text: str) -> bool:
    try:
        _values.decode(text)
    except UNREADABLE:
        return False
    return True


def is_json_object(text: str) -> bool:
    try:
        _objects.decode(text)
    except UNREADABLE:
        return False
    return True


class ObjectScanner:
    """Tells whether a growing list of text pieces is one complete JSON object.

    Scans each piece once and parses the text at most once, so repeated checks take linear time
    in total.
    """

    def __init__(self, pieces: Sequence[str]) -> None:
        self._pieces = pieces
        self._scanned = 0
        self._is_blank = True
        self._depth = 0
        self._in_string = False
        self._is_escaped = False
        self._is_object: bool | None = None

    def is_object(self) -> bool:
        while self._scanned < len(self._pieces):
            self._take(self._pieces[self._scanned])
            self._scanned += 1
        is_open = self._is_blank or self._in_string or self._depth > 0
        if self._is_object is None and not is_open:
            self._is_object = is_json_object("".join(self._pieces))
        return self._is_object is True

    def _take(self, piece: str) -> None:
        if not piece.strip(BLANKS):
            return
        self._is_blank = False
        if self._is_object is None:
            self._scan(piece)
        else:
            # Nothing can follow an object, and invalid JSON stays invalid.
            self._is_object = False

    def _scan(self, piece: str) -> None:
        at = 0
        while at < len(piece):
            if self._is_escaped:
                self._is_escaped = False
                at += 1
                continue
            found = (_INSIDE if self._in_string else _OUTSIDE).search(piece, at)
            if found is None:
                return
            at = found.end()
            match found[0]:
                case '"':
                    self._in_string = not self._in_string
                case "\\":
                    self._is_escaped = True
                case "{" | "[":
                    self._depth += 1
                case _:
                    self._depth -= 1


def wrap_arguments(arguments: str) -> str:
    return msgspec.json.encode({INVALID_JSON: arguments}).decode()


def to_json_object(arguments: str) -> str:
    """Return the arguments if they are a JSON object, else wrapped in one."""
    if not arguments:
        return "{}"
    return arguments if is_json_object(arguments) else wrap_arguments(arguments)


def unwrap_arguments(given: bytes) -> str:
    """Return the arguments as the model wrote them; `given` is an object, perhaps our wrapper."""
    if given.startswith(PREFIX):
        fields: Any = msgspec.json.decode(given)
        text = fields[INVALID_JSON]
        if len(fields) == 1 and isinstance(text, str) and not is_json_object(text):
            return text
    return given.decode()

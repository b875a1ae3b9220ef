"""What stands in a request for a tool's name or a call's id that the target refuses.

An alias is made of what it stands for and nothing else, so the same request is the same bytes. The
same id twice in one message is told apart here, by position, because only the whole history says
which result is whose. What an alias stands for is remembered, and a reply is given back under it.
"""

import hashlib
import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from cllm.core.message import AnyPart, Text, ToolCall, ToolResult
from cllm.wire.spoken import Spoken, rewritten

DIGEST = 16


class Rule:
    """What a target takes: words of these characters, at least one, at most so many.

    With `allowed` None it takes any characters.
    """

    def __init__(self, *, allowed: str | None = "a-zA-Z0-9_-", longest: int = 64) -> None:
        self._longest = longest
        self._taken = None if allowed is None else re.compile(rf"[{allowed}]{{1,{longest}}}")
        self._other = None if allowed is None else re.compile(rf"[^{allowed}]")

    def takes(self, word: str) -> bool:
        if self._taken is None:
            return len(word) <= self._longest
        return self._taken.fullmatch(word) is not None

    def alias(self, word: str, *, again: int = 0) -> str:
        """As much of the word as can be read, and what tells it from every other."""
        readable = word if self._other is None else self._other.sub("_", word)
        whole = f"{word}#{again}" if again else word
        digest = hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()[:DIGEST]
        return f"{readable[: self._longest - DIGEST - 1]}_{digest}"


class Aliases:
    """The aliases of one request.

    `names` None leaves names as they are. With `keeps_own` an id in a message of the target's own
    words stays: it was taken before.
    """

    def __init__(self, *, names: Rule | None, ids: Rule, keeps_own: bool = False) -> None:
        self._name_rule = names
        self._id_rule = ids
        self._keeps_own = keeps_own
        self._known: dict[str, str] = {}
        self.names: dict[str, str] = {}
        self.ids: dict[str, str] = {}

    def name(self, name: str) -> str:
        known = self._known.get(name)
        if known is None:
            known = self._known[name] = self._new_name(name)
        return known

    def _new_name(self, name: str) -> str:
        if self._name_rule is None or self._name_rule.takes(name):
            return name
        alias = self._name_rule.alias(name)
        self.names[alias] = name
        return alias

    def id(self, call_id: str, *, again: int = 0, own: bool = False) -> str:
        """The id to send; `again` tells apart calls that share one id in one message."""
        if not again and ((own and self._keeps_own) or self._id_rule.takes(call_id)):
            return call_id
        alias = self._id_rule.alias(call_id, again=again)
        self.ids[alias] = call_id
        return alias


def address(messages: Sequence[Spoken], aliases: Aliases) -> Iterator[Spoken]:
    """The messages with calls and results under the names and ids that they are sent with.

    Of several calls with one id, the first result is the first one's. A message in which nothing
    has to change is the same object.
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
    spoken: Spoken, aliases: Aliases, seen: dict[str, int], waiting: dict[str, deque[str]]
) -> Spoken:
    parts: list[AnyPart] = []
    own = spoken.raw is not None
    changed = False
    for part in spoken.parts:
        if type(part) is not ToolCall:
            parts.append(part)
            continue
        again = seen.get(part.id, 0)
        seen[part.id] = again + 1
        sent = aliases.id(part.id, again=again, own=own)
        name = aliases.name(part.name)
        waiting.setdefault(part.id, deque()).append(sent)
        if sent == part.id and name == part.name:
            parts.append(part)
        else:
            changed = True
            parts.append(msgspec.structs.replace(part, id=sent, name=name))
    return rewritten(spoken, parts) if changed else spoken


def _answering(spoken: Spoken, aliases: Aliases, waiting: dict[str, deque[str]]) -> Spoken:
    parts: list[AnyPart] = []
    own = spoken.raw is not None
    changed = False
    for part in spoken.parts:
        if type(part) is not ToolResult:
            parts.append(part)
            continue
        queue = waiting.get(part.call_id)
        sent = queue.popleft() if queue else aliases.id(part.call_id, own=own)
        if sent == part.call_id:
            parts.append(part)
        else:
            changed = True
            parts.append(msgspec.structs.replace(part, call_id=sent))
    return rewritten(spoken, parts) if changed else spoken


def named(holder: Any, aliases: Aliases, *path: str) -> Any:
    """A piece of JSON with the name at this path as it is sent; the same object if that is it."""
    if not isinstance(holder, dict):
        return holder
    field, *rest = path
    inner = holder.get(field)
    changed: Any = inner
    if rest:
        changed = named(inner, aliases, *rest)
    elif isinstance(inner, str):
        changed = aliases.name(inner)
    return holder if changed is inner or changed == inner else {**holder, field: changed}


def with_named_tools(
    parameters: Mapping[str, Any], aliases: Aliases, *path: str
) -> Mapping[str, Any]:
    """Parameters whose tools and choice of a tool, named at this path, are as they are sent."""
    fields = dict(parameters)
    if isinstance(tools := fields.get("tools"), list):
        fields["tools"] = [named(tool, aliases, *path) for tool in tools]
    if isinstance(choice := fields.get("tool_choice"), dict):
        fields["tool_choice"] = named(choice, aliases, *path)
    return fields if aliases.names else parameters


INVALID_JSON = "INVALID_JSON"
PREFIX = b'{"INVALID_JSON":'
BLANKS = " \t\n\r"
UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, UnicodeEncodeError, RecursionError)

# What opens and closes outside of a JSON string, and what matters inside one.
_OUTSIDE = re.compile(r'["{}\[\]]')
_INSIDE = re.compile(r'["\\]')

_objects = msgspec.json.Decoder(dict[str, msgspec.Raw])
_values = msgspec.json.Decoder(msgspec.Raw)


def is_json(text: str) -> bool:
    """Whether this text is one JSON value and nothing else."""
    try:
        _values.decode(text)
    except UNREADABLE:
        return False
    return True


def is_json_object(text: str) -> bool:
    """Whether this text is one JSON object and nothing else."""
    try:
        _objects.decode(text)
    except UNREADABLE:
        return False
    return True


class ObjectScanner:
    """Tells whether pieces of text, to which more are added, are one JSON object so far.

    Each piece is scanned once and the text is parsed at most once, so that asking after every piece
    takes time proportional to the length of the text.
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
        """Whether the pieces are one JSON object and nothing else, at this moment."""
        while self._scanned < len(self._pieces):
            self._take(self._pieces[self._scanned])
            self._scanned += 1
        # The beginning of an object is always inside of its first bracket.
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
            # Nothing can follow an object, and what was none never becomes one.
            self._is_object = False

    def _scan(self, piece: str) -> None:
        """Follow the brackets outside of strings."""
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


def wrapped(arguments: str) -> str:
    """The text as the only value of an object."""
    return msgspec.json.encode({INVALID_JSON: arguments}).decode()


def as_object(arguments: str) -> str:
    """Arguments where an object has to stand: themselves if they are one, else wrapped."""
    if not arguments:
        return "{}"
    return arguments if is_json_object(arguments) else wrapped(arguments)


def unwrapped(given: bytes) -> str:
    """Arguments as the model wrote them; `given` is an object, which may be our wrapping."""
    if given.startswith(PREFIX):
        fields: Any = msgspec.json.decode(given)
        text = fields[INVALID_JSON]
        if len(fields) == 1 and isinstance(text, str) and not is_json_object(text):
            return text
    return given.decode()

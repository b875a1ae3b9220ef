"""Names, ids and arguments of tool calls in the form that a target accepts.

A name or id that the target refuses gets an alias, computed from it alone, so that equal requests
are equal bytes. Arguments that are no JSON object, as after a cut answer, are sent under the key
INVALID_JSON where a protocol requires an object, and unwrapped when read back.
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
        digest = hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()[:DIGEST]
        return f"{readable[: self._longest - DIGEST - 1]}_{digest}"


class Aliases:
    """The aliases of one request.

    `names` None leaves names unchanged. `keeps_own` keeps ids in messages of the target's own
    protocol.
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


def address(messages: Sequence[Spoken], aliases: Aliases) -> Iterator[Spoken]:
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
    spoken: Spoken, aliases: Aliases, seen: dict[str, int], waiting: dict[str, deque[str]]
) -> Spoken:
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
    return rewritten(spoken, parts) if changed else spoken


def _answering(spoken: Spoken, aliases: Aliases, waiting: dict[str, deque[str]]) -> Spoken:
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
    return rewritten(spoken, parts) if changed else spoken


def named(holder: Any, aliases: Aliases, *path: str) -> Any:
    """Return JSON with the alias for the name at this path; the same object if there is none."""
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
    """Return parameters with aliases in `tools` and `tool_choice`, whose names are at this path."""
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

_OUTSIDE = re.compile(r'["{}\[\]]')
_INSIDE = re.compile(r'["\\]')

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


def wrapped(arguments: str) -> str:
    return msgspec.json.encode({INVALID_JSON: arguments}).decode()


def as_object(arguments: str) -> str:
    """Return the arguments if they are a JSON object, else wrapped in one."""
    if not arguments:
        return "{}"
    return arguments if is_json_object(arguments) else wrapped(arguments)


def unwrapped(given: bytes) -> str:
    """Return the arguments as the model wrote them; `given` is an object, perhaps our wrapper."""
    if given.startswith(PREFIX):
        fields: Any = msgspec.json.decode(given)
        text = fields[INVALID_JSON]
        if len(fields) == 1 and isinstance(text, str) and not is_json_object(text):
            return text
    return given.decode()

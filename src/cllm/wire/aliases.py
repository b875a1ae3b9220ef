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

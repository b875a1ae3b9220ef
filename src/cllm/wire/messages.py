"""Shared by the codecs: tool-name aliases, outgoing messages, encoded requests and notices.

A tool name or call id that the target refuses gets an alias, computed from it alone, so that equal
requests are equal bytes.
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
from cllm.wire.errors import FieldError, NotExpressibleError, describe_problem
from cllm.wire.reasoning import TEXT_FIELDS

EMPTY: Mapping[str, Any] = MappingProxyType({})
DEFAULT_EXTRA: Mapping[str, Any] = MappingProxyType({"image_url": {"detail": "auto"}})
# The lost part of a field whose rest is sent in another form.
LOST_FIELDS: Mapping[str, str] = MappingProxyType({"image_url": "image_url.detail"})
Shape = TypeVar("Shape")
Sentences = Mapping[str, tuple[str, str]]
"""Reason → notice code and sentence."""
NO_SENTENCES: Sentences = MappingProxyType({})
MAX_NAME_LENGTH = 128
DIGEST_LENGTH = 16


class OutgoingMessage(msgspec.Struct, frozen=True, kw_only=True):
    """One message to be encoded. `raw` is set if it is in the target's dialect already.

    A codec sends `raw` unchanged if it can, and encodes the parts otherwise. `prompt_index` is the
    index in the prompt, for notices. `dialect` is the source protocol; `extra` has the other
    fields, for that protocol only.
    """

    role: Role
    parts: tuple[AnyPart, ...]
    raw: bytes | None = None
    prompt_index: int = 0
    dialect: Dialect | None = None
    extra: Mapping[str, Any] = EMPTY

    def is_own(self, dialect: Dialect) -> bool:
        return self.raw is not None or self.dialect == dialect


def replace_parts(message: OutgoingMessage, parts: Sequence[AnyPart]) -> OutgoingMessage:
    """Return the message with these parts and without `raw`."""
    return OutgoingMessage(
        role=message.role,
        parts=tuple(parts),
        prompt_index=message.prompt_index,
        dialect=message.dialect,
        extra=message.extra,
    )


def check_not_emptied(before: OutgoingMessage, after: OutgoingMessage, target: str) -> None:
    """Raise NotExpressibleError if the newest user message has nothing left to send."""
    if after.role == "user" and before.parts and not after.parts:
        raise NotExpressibleError(
            f"messages[{before.prompt_index}]: nothing in it can be sent to {target}; "
            "send it as text, or omit the message."
        )


def find_stray_system(messages: Sequence[OutgoingMessage]) -> frozenset[int]:
    """Return the indexes of system messages between two replies, or after the last one.

    No user turn contains them. Some clients send the output of tools like this.
    """
    stray: set[int] = set()
    run: list[int] = []
    before: Role | None = None
    for index, message in enumerate(messages):
        if message.role == "system":
            run.append(index)
            continue
        if before == message.role == "assistant":
            stray.update(run)
        before, run = message.role, []
    return frozenset((*stray, *run) if before == "assistant" else stray)


def lost_extra_fields(part: AnyPart) -> set[str]:
    """Return the names of a part's foreign fields that differ from their defaults."""
    return {
        LOST_FIELDS.get(name, name)
        for name, value in part.extra.items()
        if value != DEFAULT_EXTRA.get(name)
    }


def to_delta(part: AnyPart, index: int) -> ReplyDelta:
    """Return a whole part as one delta; PartAdded for kinds that have no delta."""
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
    return FieldError(
        f"{path}{location}" if path else location.removeprefix("."), describe_problem(problem)
    )


class RepairedHistory(msgspec.Struct, frozen=True, kw_only=True):
    """A history that the target accepts, with notices about the changes."""

    messages: tuple[OutgoingMessage, ...]
    notices: tuple[Notice, ...] = ()


Repair = Callable[[Sequence[OutgoingMessage]], RepairedHistory]
"""Repairs a history for the target. Raises an error if it cannot be sent."""


def no_repair(messages: Sequence[OutgoingMessage]) -> RepairedHistory:
    return RepairedHistory(messages=tuple(messages))


class EncodedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request body and its notices.

    `names` and `ids` map aliases in the body to the client's tool names and call ids.
    `is_unconverted`: the body only contains input that was in the codec's own protocol.
    """

    body: bytes
    notices: tuple[Notice, ...] = ()
    names: Mapping[str, str] = msgspec.field(default_factory=dict)
    ids: Mapping[str, str] = msgspec.field(default_factory=dict)
    is_unconverted: bool = False


def list_called_tools(parts: Iterable[AnyPart]) -> tuple[str, ...]:
    """Return the names of the called tools, each once."""
    return tuple(dict.fromkeys(part.name for part in parts if isinstance(part, ToolCall)))


def starts_with_thinking(parts: Sequence[AnyPart]) -> bool:
    return bool(parts) and isinstance(parts[0], Thinking | RedactedThinking)


def omitted_field_notices(messages: Iterable[OutgoingMessage]) -> tuple[Notice, ...]:
    """Return notices for the fields of these messages that are not sent.

    Reasoning text is excluded: it is also a part, which has its own notice.
    """
    indexes: dict[str, list[int]] = {}
    for message in messages:
        for name in message.extra:
            if name not in TEXT_FIELDS:
                indexes.setdefault(name, []).append(message.prompt_index)
    notices = (
        Notice(
            code="field_left_out",
            path=f"messages[{found_in[0]}].{name}",
            message=f"The field {name} of a message is not sent.{count_suffix(len(found_in))}",
        )
        for name, found_in in indexes.items()
    )
    return tuple(NoticeCollector(notices))


class NoticeMerger:
    """The notices of one request: one for each subject, with its first path and a count.

    At most MAX_NOTICES are listed; the others are counted.
    """

    def __init__(self, sentences: Sentences = NO_SENTENCES) -> None:
        self._sentences = sentences
        self._entries: dict[tuple[str, str, str], tuple[str, int]] = {}
        self._left_out = 0

    def add(self, code: str, path: str, message: str, *, subject: str = "") -> None:
        """Add a notice; the same sentence about another `subject` is another notice."""
        key = (code, message, subject)
        first, count = self._entries.get(key, (path, 0))
        if count or len(self._entries) < MAX_NOTICES:
            self._entries[key] = first, count + 1
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
        listed = (
            Notice(code=code, path=path, message=message + count_suffix(count))
            for (code, message, _), (path, count) in self._entries.items()
        )
        return (*listed, notices_left_out(self._left_out)) if self._left_out else tuple(listed)


def shorten(name: str) -> str:
    """Shorten a client's name for the path of a notice."""
    return name if len(name) <= MAX_NAME_LENGTH else f"{name[: MAX_NAME_LENGTH - 1]}…"


def count_suffix(count: int) -> str:
    return "" if count == 1 else f" ({count} times)"


class AliasRule:
    """Accepts names of 1 to `max_length` of the `allowed` characters, any if None."""

    def __init__(self, *, allowed: str | None = "a-zA-Z0-9_-", max_length: int = 64) -> None:
        self._max_length = max_length
        self._accepted = None if allowed is None else re.compile(rf"[{allowed}]{{1,{max_length}}}")
        self._refused = None if allowed is None else re.compile(rf"[^{allowed}]")

    def accepts(self, name: str) -> bool:
        if self._accepted is None:
            return len(name) <= self._max_length
        return self._accepted.fullmatch(name) is not None

    def alias(self, name: str, *, again: int = 0) -> str:
        """Return a readable prefix of the name and a digest."""
        readable = name if self._refused is None else self._refused.sub("_", name)
        whole = f"{name}#{again}" if again else name
        digest = hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()[:DIGEST_LENGTH]
        return f"{readable[: self._max_length - DIGEST_LENGTH - 1]}_{digest}"


class Aliases:
    """The tool-name and call-id aliases of one request.

    `names` None leaves names unchanged. `keep_own_ids` keeps ids in messages of the target's own
    protocol.
    """

    def __init__(
        self, *, names: AliasRule | None, ids: AliasRule, keep_own_ids: bool = False
    ) -> None:
        self._name_rule = names
        self._id_rule = ids
        self._keep_own_ids = keep_own_ids
        self._sent_names: dict[str, str] = {}
        self.names: dict[str, str] = {}
        self.ids: dict[str, str] = {}

    def name(self, name: str) -> str:
        sent = self._sent_names.get(name)
        if sent is None:
            sent = name
            if self._name_rule is not None and not self._name_rule.accepts(name):
                sent = self._name_rule.alias(name)
                self.names[sent] = name
            self._sent_names[name] = sent
        return sent

    def id(self, call_id: str, *, again: int = 0, own: bool = False) -> str:
        """Return the id to send; `again` numbers calls that share one id in a message."""
        if not again and ((own and self._keep_own_ids) or self._id_rule.accepts(call_id)):
            return call_id
        alias = self._id_rule.alias(call_id, again=again)
        self.ids[alias] = call_id
        return alias


def apply_aliases(
    messages: Sequence[OutgoingMessage], aliases: Aliases
) -> Iterator[OutgoingMessage]:
    """Replace tool names and call ids that the target refuses by aliases.

    Results of calls with the same id are assigned in order.
    """
    repeats: dict[str, int] = {}
    pending: dict[str, deque[str]] = {}
    is_answered = False
    for message in messages:
        kinds = list(map(type, message.parts))
        if message.role == "assistant":
            if is_answered:
                repeats, pending, is_answered = {}, {}, False
            yield _alias_calls(message, aliases, repeats, pending) if ToolCall in kinds else message
        else:
            has_results = ToolResult in kinds
            is_answered = is_answered or has_results or not _is_blank(message.parts)
            yield _alias_results(message, aliases, pending) if has_results else message


def _is_blank(parts: Sequence[AnyPart]) -> bool:
    return all(isinstance(part, Text) and not part.text.strip() for part in parts)


def _alias_calls(
    message: OutgoingMessage,
    aliases: Aliases,
    repeats: dict[str, int],
    pending: dict[str, deque[str]],
) -> OutgoingMessage:
    parts = list(message.parts)
    own = message.raw is not None
    changed = False
    for index, part in enumerate(message.parts):
        if type(part) is ToolCall:
            again = repeats.get(part.id, 0)
            repeats[part.id] = again + 1
            sent = aliases.id(part.id, again=again, own=own)
            name = aliases.name(part.name)
            pending.setdefault(part.id, deque()).append(sent)
            if sent != part.id or name != part.name:
                changed = True
                parts[index] = msgspec.structs.replace(part, id=sent, name=name)
    return replace_parts(message, parts) if changed else message


def _alias_results(
    message: OutgoingMessage, aliases: Aliases, pending: dict[str, deque[str]]
) -> OutgoingMessage:
    parts = list(message.parts)
    own = message.raw is not None
    changed = False
    for index, part in enumerate(message.parts):
        if type(part) is ToolResult:
            queue = pending.get(part.call_id)
            sent = queue.popleft() if queue else aliases.id(part.call_id, own=own)
            if sent != part.call_id:
                changed = True
                parts[index] = msgspec.structs.replace(part, call_id=sent)
    return replace_parts(message, parts) if changed else message


def alias_field(value: Any, aliases: Aliases, *path: str) -> Any:
    """Return JSON with the alias of the tool name at this path; the same object if unchanged."""
    if not isinstance(value, dict):
        return value
    field, *rest = path
    inner = value.get(field)
    replacement: Any = inner
    if rest:
        replacement = alias_field(inner, aliases, *rest)
    elif isinstance(inner, str):
        replacement = aliases.name(inner)
    return value if replacement is inner or replacement == inner else {**value, field: replacement}


def alias_tools(parameters: Mapping[str, Any], aliases: Aliases, *path: str) -> Mapping[str, Any]:
    """Return parameters with aliases in `tools` and `tool_choice`; names are at this path."""
    fields = dict(parameters)
    if isinstance(tools := fields.get("tools"), list):
        fields["tools"] = [alias_field(tool, aliases, *path) for tool in tools]
    if isinstance(choice := fields.get("tool_choice"), dict):
        fields["tool_choice"] = alias_field(choice, aliases, *path)
    return fields if aliases.names else parameters

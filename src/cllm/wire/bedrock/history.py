"""Messages as Converse blocks. Changes apply to the request only, with a notice for each.

The order of messages is not checked here.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from cllm.core.message import (
    AnyPart,
    CacheMark,
    Document,
    Image,
    RedactedThinking,
    Refusal,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Unknown,
)
from cllm.wire.bedrock.models import Features
from cllm.wire.bedrock.parts import TTLS, Block, encode_blocks, encode_mark
from cllm.wire.calls import INVALID_JSON, is_json_object, wrapped
from cllm.wire.media import checked, is_base64
from cllm.wire.spoken import Notes, Spoken, check_still_asks, rewritten, telling_fields

EMPTY = "(empty)"
CACHE_POINT = b'{"cachePoint"'
SHARED_FIELDS: dict[type, frozenset[str]] = {Document: frozenset({"context", "citations"})}
"""Fields with the same name and meaning in another protocol."""

_TITLE = re.compile(r"[a-zA-Z0-9()\[\]-]+(?:\s[a-zA-Z0-9()\[\]-]+)*", re.ASCII)
_NOT_TITLE = re.compile(r"[^a-zA-Z0-9\s()\[\]-]+", re.ASCII)
_LONGEST_TITLE = 200
_DATA_URL = re.compile(r"data:([^,]*);base64,")


class Cleaner:
    """Converts the parts of one request; remembers the document titles it assigned."""

    def __init__(self, known: Features, notes: Notes) -> None:
        self._known = known
        self._notes = notes
        self._titles: set[str] = set()
        # Title prefix → the highest number that was appended to it.
        self._numbers: dict[str, int] = {}

    def clean(self, part: AnyPart, *, role: Role, path: str, own: bool) -> AnyPart | None:
        """Return the part to send, or None. `own`: it is in Converse's format."""
        part = self._with_mark(part, path)
        if not own:
            part = self._without_foreign(part, path)
            if role == "assistant" and isinstance(part, Image | Document):
                self._notes.add("part_left_out", path, "Bedrock takes files from the user only")
                return None
        return self._by_kind(part, path)

    def _by_kind(self, part: AnyPart, path: str) -> AnyPart | None:
        cleaned: AnyPart | None = CLEANERS[type(part)](self, part, path)
        return cleaned

    def clean_refusal(self, part: Refusal, path: str) -> Text:
        self._notes.add("refusal_as_text", path, "a refusal is sent as plain text")
        return Text(text=part.text, cache=part.cache)

    def _with_mark(self, part: AnyPart, path: str) -> AnyPart:
        mark = part.cache
        if mark is None:
            return part
        kept = self.clean_mark(mark, path)
        if kept is not None and isinstance(part, Thinking | RedactedThinking):
            self._notes.add("cache_mark_left_out", path, "thinking carries no cache mark")
            kept = None
        return part if kept is mark else msgspec.structs.replace(part, cache=kept)

    def clean_mark(self, mark: CacheMark, path: str) -> CacheMark | None:
        """Return the mark as this model accepts it, or None."""
        if not self._known.cache:
            self._notes.add("cache_mark_left_out", path, "this model keeps no prompt cache")
            return None
        if mark.ttl is None or (mark.ttl in TTLS and (self._known.cache_hour or mark.ttl == "5m")):
            return mark
        self._notes.add("cache_ttl_left_out", path, f"this model keeps no cache for {mark.ttl}")
        return CacheMark()

    def _without_foreign(self, part: AnyPart, path: str) -> AnyPart:
        """Drop fields of other protocols, also in the content of a result."""
        if isinstance(part, ToolResult) and any(piece.extra for piece in part.content):
            content = [self._without_foreign(piece, path) for piece in part.content]
            part = msgspec.structs.replace(part, content=tuple(content))
        if not part.extra:
            return part
        shared = SHARED_FIELDS.get(type(part), frozenset())
        for name in sorted(telling_fields(part)):
            if name not in shared:
                self._notes.add("field_left_out", path, f"Bedrock has no field {name} here")
        kept = {name: value for name, value in part.extra.items() if name in shared}
        return msgspec.structs.replace(part, extra=kept)

    def clean_document(self, part: Document, _path: str) -> Document:
        if part.data is not None:
            part = checked(part, part.data)
        unique = self._unique_title(_title(part.name))
        return part if unique == part.name else msgspec.structs.replace(part, name=unique)

    def _unique_title(self, title: str) -> str:
        """Return the title, with the lowest free number if it is taken."""
        unique, beginning = title, title[: _LONGEST_TITLE - 8]
        while unique in self._titles:
            number = self._numbers[beginning] = self._numbers.get(beginning, 1) + 1
            unique = f"{beginning} ({number})"
        self._titles.add(unique)
        return unique

    def clean_call(self, part: ToolCall, path: str) -> ToolCall:
        if not part.arguments or is_json_object(part.arguments):
            return part
        problem = f"a call's arguments were no JSON object, and go as {INVALID_JSON}"
        self._notes.add("arguments_changed", path, problem)
        return msgspec.structs.replace(part, arguments=wrapped(part.arguments))

    def clean_result(self, part: ToolResult, path: str) -> ToolResult:
        """Fill an empty result; a mark inside moves to the whole result."""
        content: list[Any] = []
        mark = part.cache
        for piece in part.content:
            if piece.cache is None and type(piece) is Text and piece.text.strip():
                content.append(piece)
                continue
            marked = self._with_mark(piece, path)
            mark = mark or marked.cache
            kept = self._by_kind(
                marked if marked.cache is None else msgspec.structs.replace(marked, cache=None),
                path,
            )
            if kept is not None and not (isinstance(kept, Text) and not kept.text.strip()):
                content.append(kept)
        if not content:
            self._notes.add("result_filled", path, "Bedrock takes no empty tool result")
            content.append(Text(text=EMPTY))
        if mark is part.cache and _same(content, part.content):
            return part
        return msgspec.structs.replace(part, content=tuple(content), cache=mark)

    def clean_thinking(self, part: Thinking, path: str) -> Thinking | None:
        if self._known.thinking != "none":
            return part
        self._notes.add("thinking_left_out", path, "this model takes no thinking")
        return None

    def clean_redacted(self, part: RedactedThinking, path: str) -> RedactedThinking | None:
        if self._known.thinking != "none" and part.data and is_base64(part.data):
            return part
        self._notes.add("thinking_left_out", path, "redacted thinking that cannot be sent here")
        return None

    def clean_unknown(self, part: Unknown, path: str) -> Unknown | None:
        if part.dialect != "bedrock":
            self._notes.add("part_left_out", path, f"a block that only {part.dialect} has")
            return None
        if part.raw.startswith(CACHE_POINT):
            self._notes.add("cache_mark_left_out", path, "a cache point where none may stand")
            return None
        return part


def _unchanged(_cleaner: Cleaner, part: Text, _path: str) -> Text:
    return part


def _same(one: list[Any], other: tuple[Any, ...]) -> bool:
    return len(one) == len(other) and all(a is b for a, b in zip(one, other, strict=True))


def _clean_image(_cleaner: Cleaner, part: Image, _path: str) -> Image:
    found = _DATA_URL.match(part.url or "") if part.data is None else None
    if found is not None and part.url is not None:
        part = msgspec.structs.replace(
            part, url=None, media_type=found.group(1), data=part.url[found.end() :]
        )
    return part if part.data is None else checked(part, part.data)


def _title(name: str | None) -> str:
    """Return a document's name in the characters that Bedrock accepts."""
    if name and len(name) <= _LONGEST_TITLE and _TITLE.fullmatch(name):
        return name
    plain = " ".join(_NOT_TITLE.sub("-", name or "").split())[:_LONGEST_TITLE].strip()
    return plain if plain.strip("- ") else "document"


CLEANERS: dict[type, Callable[[Cleaner, Any, str], AnyPart | None]] = {
    Document: Cleaner.clean_document,
    Image: _clean_image,
    RedactedThinking: Cleaner.clean_redacted,
    Refusal: Cleaner.clean_refusal,
    Text: _unchanged,
    Thinking: Cleaner.clean_thinking,
    ToolCall: Cleaner.clean_call,
    ToolResult: Cleaner.clean_result,
    Unknown: Cleaner.clean_unknown,
}


ATTACHED = "(document attached)"


class Sent(msgspec.Struct, kw_only=True):
    """A message to send: its blocks, and its own bytes if nothing changed."""

    role: Role
    blocks: list[Block]
    raw: bytes | None = None


def clean_history(messages: Sequence[Spoken], cleaner: Cleaner) -> Iterator[Spoken]:
    """Yield the messages in Converse's format, without system messages."""
    for number, spoken in enumerate(messages, start=1):
        if spoken.role != "system":
            cleaned = clean_message(spoken, f"messages[{spoken.place}]", cleaner)
            if number == len(messages):
                check_still_asks(spoken, cleaned, "Bedrock")
            yield cleaned


def clean_message(spoken: Spoken, path: str, cleaner: Cleaner) -> Spoken:
    """Return the message in parts that Converse accepts; the same object if nothing changes."""
    parts: list[AnyPart] = []
    same = True
    own = spoken.is_own("bedrock")
    for part in spoken.parts:
        kept = cleaner.clean(part, role=spoken.role, path=path, own=own)
        same = same and kept is part
        if kept is not None:
            parts.append(kept)
        elif part.cache is not None and parts and _can_be_marked(parts[-1]):
            mark = cleaner.clean_mark(part.cache, path)
            parts[-1] = msgspec.structs.replace(parts[-1], cache=mark)
    return spoken if same else rewritten(spoken, parts)


def _can_be_marked(part: AnyPart) -> bool:
    return part.cache is None and not isinstance(part, Thinking | RedactedThinking)


def encode_message(spoken: Spoken) -> Sent:
    role: Role = "assistant" if spoken.role == "assistant" else "user"
    if Document in map(type, spoken.parts):
        return _encode_documents(role, spoken.parts, spoken.raw)
    blocks: list[Block] = []
    for part in spoken.parts:
        blocks += encode_blocks(part)
    return Sent(role=role, blocks=blocks, raw=spoken.raw)


def _encode_documents(role: Role, parts: Sequence[AnyPart], raw: bytes | None) -> Sent:
    """The same with documents: a text beside them, and no cache point directly after one."""
    blocks: list[Block] = []
    waiting: CacheMark | None = None
    for part in parts:
        if isinstance(part, Document):
            waiting = part.cache or waiting
            blocks += encode_blocks(msgspec.structs.replace(part, cache=None))
            raw = raw if part.cache is None else None
            continue
        blocks += encode_blocks(part)
        if waiting is not None and _can_be_marked(part):
            blocks.append(encode_mark(waiting))
        waiting = waiting if isinstance(part, Thinking | RedactedThinking) else None
    if waiting is not None or not any(isinstance(p, Text) and not p.extra for p in parts):
        blocks.append({"text": ATTACHED})
        raw = None
    if waiting is not None:
        blocks.append(encode_mark(waiting))
    return Sent(role=role, blocks=blocks, raw=raw)

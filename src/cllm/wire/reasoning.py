"""Reasoning in OpenAI-compatible messages, for which OpenAI's own protocol has no field.

A rule says which past reasoning a server accepts. Knows no provider by name.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

REASONING = b'"reasoning'
THINKING_BLOCK = b'"thinking"'
# Either of the two: one search instead of two, in every past message of every prompt.
REASONING_OR_THINKING = re.compile(rb'"(?:reasoning|thinking")')
CALLS = b'"tool_calls"'
CONTENT = "content"
DETAILS = "reasoning_details"
TEXT_FIELDS = ("reasoning_content", "reasoning")
REASONING_FIELDS = (*TEXT_FIELDS, DETAILS)
# Types of reasoning details that come in pieces, with the field of their text.
JOINED = {"reasoning.text": "text", "reasoning.summary": "summary"}
SEALS = ("signature", "data")
SIGNED_BLOCKS = ("thinking", "redacted_thinking")
"""Types of Claude's own blocks, stored as reasoning details for LiteLLM."""

Place = Literal["reasoning_content", "reasoning", "content"]


class ReasoningRule(msgspec.Struct, frozen=True, kw_only=True):
    """Which reasoning of past assistant messages a server accepts.

    `fields` are sent unchanged; `content` stands for thinking blocks in the content. `text` is
    the field for plain reasoning text from elsewhere. `blank` is sent with a tool call to a
    server that refuses one without reasoning. Details that are Claude's blocks are sent only if
    `signed_blocks`.
    """

    fields: frozenset[str]
    text: Place | None
    blank: str | None = None
    signed_blocks: bool = False


TAKES_NONE = ReasoningRule(fields=frozenset(), text=None)
TAKES_REASONING_CONTENT = ReasoningRule(
    fields=frozenset({"reasoning_content"}), text="reasoning_content"
)
NEEDS_REASONING_CONTENT = msgspec.structs.replace(TAKES_REASONING_CONTENT, blank=" ")
TAKES_REASONING = ReasoningRule(fields=frozenset({"reasoning"}), text="reasoning")
TAKES_EITHER = ReasoningRule(fields=frozenset(TEXT_FIELDS), text="reasoning_content")
PREFERS_REASONING = msgspec.structs.replace(TAKES_EITHER, text="reasoning")
TAKES_DETAILS = ReasoningRule(fields=frozenset(REASONING_FIELDS), text="reasoning")
TAKES_THINKING_BLOCKS = ReasoningRule(fields=frozenset({CONTENT}), text="content")
AS_SENT = ReasoningRule(fields=frozenset({*REASONING_FIELDS, CONTENT}), text="reasoning_content")
NAMED_RULES: Mapping[str, ReasoningRule] = {
    "as_sent": AS_SENT,
    "none": TAKES_NONE,
    "reasoning": TAKES_REASONING,
    "reasoning_content": TAKES_REASONING_CONTENT,
}
"""The rules that a provider's settings can name."""


class FittedReasoning(NamedTuple):
    """A message fitted to a rule; `lost` is the field whose reasoning is not sent at all."""

    raw: bytes
    lost: str | None = None
    filled: bool = False


def fit_reasoning(raw: bytes, rule: ReasoningRule, *, is_foreign: bool = False) -> FittedReasoning:
    """Fit an assistant message's JSON to the rule; returns the same bytes if nothing changes.

    Sealed reasoning of a foreign message is not sent; details always count as sealed. Only a
    foreign message is filled with a blank.
    """
    may_fill = is_foreign and rule.blank is not None and CALLS in raw
    if not may_fill and REASONING_OR_THINKING.search(raw) is None:
        return FittedReasoning(raw)
    fields: dict[str, Any] = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
    found = _find_reasoning(fields)
    sealed = _find_sealed(found, rule, is_foreign=is_foreign)
    kept = {k: v for k, v in found.items() if k in rule.fields and k not in sealed}
    dropped = {k: v for k, v in found.items() if k not in kept}
    sent = reasoning_text(kept)
    moved = reasoning_text(dropped) if rule.text is not None and not sent else ""
    fills = may_fill and not sent and not moved
    fills = fills and bool(msgspec.json.decode(fields.get("tool_calls", b"null")))
    if not dropped and not fills:
        return FittedReasoning(raw)
    said = {k: v for k, v in fields.items() if k == CONTENT or k not in dropped}
    if CONTENT in dropped:
        said[CONTENT] = _without_blocks(msgspec.json.decode(fields[CONTENT]))
    if moved or fills:
        put_text(said, moved or rule.blank or "", rule)
    lost = (k for k, v in dropped.items() if _is_lost(k, v, sent or moved))
    return FittedReasoning(msgspec.json.encode(said), next(lost, None), fills)


def _find_reasoning(fields: Mapping[str, msgspec.Raw]) -> dict[str, Any]:
    found = {name: msgspec.json.decode(fields[name]) for name in REASONING_FIELDS if name in fields}
    content = fields.get(CONTENT)
    if content is not None and THINKING_BLOCK in bytes(content):
        blocks = thinking_blocks(msgspec.json.decode(content))
        found |= {CONTENT: blocks} if blocks else {}
    return found


def _find_sealed(found: Mapping[str, Any], rule: ReasoningRule, *, is_foreign: bool) -> set[str]:
    sealed: set[str] = set()
    details = found.get(DETAILS)
    listed = details if isinstance(details, list) else []
    signed = any(isinstance(item, dict) and item.get("type") in SIGNED_BLOCKS for item in listed)
    if is_foreign or (signed and not rule.signed_blocks):
        sealed.add(DETAILS)
    if is_foreign and any(map(_is_sealed, found.get(CONTENT, ()))):
        sealed.add(CONTENT)
    return sealed


def put_text(fields: dict[str, Any], text: str, rule: ReasoningRule) -> None:
    """Add plain reasoning text where the server accepts it."""
    if rule.text == CONTENT:
        content = fields.get(CONTENT)
        if isinstance(content, msgspec.Raw):
            content = msgspec.json.decode(content)
        block = {"type": "thinking", "thinking": [{"type": "text", "text": text}]}
        rest = [{"type": "text", "text": content}] if isinstance(content, str) and content else []
        fields[CONTENT] = [block, *(content if isinstance(content, list) else rest)]
    elif rule.text is not None:
        fields[rule.text] = text


def reasoning_text(fields: Mapping[str, Any]) -> str:
    """Return the plain reasoning text, from the first field that has any."""
    for name in TEXT_FIELDS:
        if isinstance(fields.get(name), str) and fields[name]:
            return str(fields[name])
    details = fields.get(DETAILS)
    items = (
        [item for item in details if isinstance(item, dict)] if isinstance(details, list) else []
    )
    texts = [item.get(JOINED.get(str(item.get("type")), "text")) for item in items]
    found = "\n".join(text for text in texts if isinstance(text, str) and text)
    return found or "\n".join(map(block_text, thinking_blocks(fields.get(CONTENT))))


def thinking_blocks(content: Any) -> list[dict[str, Any]]:
    """Return the blocks that are thinking, in Mistral's form."""
    return [block for block in content if is_thinking(block)] if isinstance(content, list) else []


def is_thinking(block: Any) -> bool:
    return (
        isinstance(block, dict)
        and block.get("type") == "thinking"
        and isinstance(block.get("thinking"), list)
    )


def block_text(block: Mapping[str, Any]) -> str:
    pieces = [piece.get("text") for piece in block["thinking"] if isinstance(piece, dict)]
    return "".join(piece for piece in pieces if isinstance(piece, str))


def _without_blocks(content: list[Any]) -> Any:
    rest = [block for block in content if not is_thinking(block)]
    only = rest[0] if len(rest) == 1 and isinstance(rest[0], dict) else {}
    is_plain = only.keys() == {"type", "text"} and only["type"] == "text"
    return only["text"] if is_plain else (rest or None)


def _is_lost(name: str, value: Any, sent: str) -> bool:
    """Whether dropping the field loses something that no other field contains."""
    if not value:
        return False
    if name in TEXT_FIELDS:
        return bool(value != sent)
    return not sent or any(map(_is_sealed, value if isinstance(value, list) else [value]))


def _is_sealed(item: Any) -> bool:
    return not isinstance(item, dict) or any(item.get(name) for name in SEALS)


class StreamedDetails:
    """Joins streamed `reasoning_details`: pieces of the same type and index.

    Texts are concatenated; other fields take the last value that is not null. Encrypted details
    and unknown types come whole.
    """

    def __init__(self) -> None:
        self._items: list[Any] = []
        self._texts: dict[int, list[str]] = {}
        self._places: dict[tuple[str, int | None], int] = {}

    def add(self, pieces: Iterable[Any]) -> None:
        for piece in pieces:
            kind = piece.get("type") if isinstance(piece, dict) else None
            if not isinstance(kind, str) or kind not in JOINED:
                self._items.append(piece)
                continue
            index = piece["index"] if isinstance(piece.get("index"), int) else None
            place = self._find(kind, index, piece.get("id"))
            if place is None:
                place = self._places[kind, index] = len(self._items)
                self._items.append({})
            self._merge(place, JOINED[kind], piece)

    def _find(self, kind: str, index: int | None, named: Any) -> int | None:
        place = self._places.get((kind, index))
        if place is None or (index is None and place != len(self._items) - 1):
            return None
        known = self._items[place].get("id")
        return place if known is None or named is None or known == named else None

    def _merge(self, place: int, field: str, piece: dict[str, Any]) -> None:
        item = self._items[place]
        for name, value in piece.items():
            if name == field and isinstance(value, str):
                self._texts.setdefault(place, []).append(value)
                item.setdefault(name, "")
            elif value is not None or name not in item:
                item[name] = value

    def whole(self) -> list[Any]:
        joined = {place: "".join(texts) for place, texts in self._texts.items()}
        return [
            {**item, JOINED[item["type"]]: joined[place]} if place in joined else item
            for place, item in enumerate(self._items)
        ]


class StreamedThinking:
    """Joins streamed thinking blocks, each with its position among the pieces of text."""

    def __init__(self) -> None:
        self._blocks: list[tuple[int, dict[str, Any]]] = []

    def add(self, block: Mapping[str, Any], *, before: int) -> None:
        """Add a block, or a piece of the last one, before that piece of text."""
        if not self._blocks or self._blocks[-1][0] != before:
            self._blocks.append((before, {**block, "thinking": list(block["thinking"])}))
            return
        last = self._blocks[-1][1]
        last["thinking"].extend(block["thinking"])
        last.update({k: v for k, v in block.items() if k != "thinking" and v is not None})

    def whole(self, texts: Sequence[str]) -> list[dict[str, Any]]:
        """Return the content with these texts; empty if there was no thinking."""
        content: list[dict[str, Any]] = []
        start = 0
        for place, block in self._blocks:
            content += _text_block(texts[start:place])
            content.append({**block, "thinking": _joined(block["thinking"])})
            start = place
        return content and [*content, *_text_block(texts[start:])]


def _text_block(texts: Sequence[str]) -> list[dict[str, Any]]:
    text = "".join(texts)
    return [{"type": "text", "text": text}] if text else []


def _joined(pieces: Iterable[Any]) -> list[Any]:
    joined: list[Any] = []
    texts: list[str] = []
    for piece in (*pieces, None):
        is_text = isinstance(piece, dict) and isinstance(piece.get("text"), str)
        if is_text and piece.keys() <= {"type", "text"}:
            texts.append(piece["text"])
            continue
        if texts:
            joined.append({"type": "text", "text": "".join(texts)})
            texts = []
        joined += [] if piece is None else [piece]
    return joined


def without_reasoning(raw: bytes) -> bytes:
    """Return a message's JSON without reasoning fields; the same bytes if it has none."""
    if REASONING not in raw:
        return raw
    fields = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
    kept = {name: value for name, value in fields.items() if name not in REASONING_FIELDS}
    return raw if len(kept) == len(fields) else msgspec.json.encode(kept)


EFFORT_ORDER = ("none", "minimal", "low", "medium", "high", "xhigh", "max")


def nearest_effort(wanted: str, efforts: tuple[str, ...]) -> str | None:
    """Return the closest effort, the higher one of two; None for an unknown effort."""
    if wanted not in EFFORT_ORDER or not efforts:
        return None
    rank = EFFORT_ORDER.index
    return min(efforts, key=lambda effort: (abs(rank(effort) - rank(wanted)), -rank(effort)))

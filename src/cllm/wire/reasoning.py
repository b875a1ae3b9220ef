"""Reasoning in OpenAI-compatible messages, for which OpenAI's own protocol has no field.

A rule defines which past reasoning a server accepts. No provider is named here.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

REASONING = b'"reasoning'
THINKING_BLOCK = b'"thinking"'
# One search for both, because it runs on every past message of every prompt.
REASONING_OR_THINKING = re.compile(rb'"(?:reasoning|thinking")')
CALLS = b'"tool_calls"'
CONTENT = "content"
DETAILS = "reasoning_details"
TEXT_FIELDS = ("reasoning_content", "reasoning")
REASONING_FIELDS = (*TEXT_FIELDS, DETAILS)
# Types of reasoning details that are streamed in pieces, with the field of their text.
STREAMED_TEXT_FIELDS = {"reasoning.text": "text", "reasoning.summary": "summary"}
SIGNATURE_FIELDS = ("signature", "data")
SIGNED_BLOCKS = ("thinking", "redacted_thinking")
"""Types of Claude's own blocks, stored as reasoning details for LiteLLM."""

TextField = Literal["reasoning_content", "reasoning", "content"]


class ReasoningRule(msgspec.Struct, frozen=True, kw_only=True):
    """Which reasoning of past assistant messages a server accepts.

    `fields` are sent unchanged; `content` means thinking blocks in the content. `text` is
    the field for plain reasoning text from elsewhere. `blank` is sent with a tool call to a
    server that refuses one without reasoning. Details that are Claude's blocks are sent only if
    `signed_blocks`.
    """

    fields: frozenset[str]
    text: TextField | None
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
    """A message after a rule; `lost` is a field whose reasoning is not sent at all."""

    raw: bytes
    lost: str | None = None
    filled: bool = False


def fit_reasoning(raw: bytes, rule: ReasoningRule, *, is_foreign: bool = False) -> FittedReasoning:
    """Fit an assistant message's JSON to the rule; returns the same bytes if nothing changes.

    Encrypted reasoning of a foreign message, of another model, is not sent; details count as
    encrypted. Only foreign messages get a blank.
    """
    may_fill = is_foreign and rule.blank is not None and CALLS in raw
    if not may_fill and REASONING_OR_THINKING.search(raw) is None:
        return FittedReasoning(raw)
    fields: dict[str, Any] = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
    reasoning = _find_reasoning(fields)
    encrypted = _find_encrypted(reasoning, rule, is_foreign=is_foreign)
    sent_fields = {k: v for k, v in reasoning.items() if k in rule.fields and k not in encrypted}
    dropped = {k: v for k, v in reasoning.items() if k not in sent_fields}
    sent_text = reasoning_text(sent_fields)
    moved_text = reasoning_text(dropped) if rule.text is not None and not sent_text else ""
    fill = may_fill and not sent_text and not moved_text
    fill = fill and bool(msgspec.json.decode(fields.get("tool_calls", b"null")))
    if not dropped and not fill:
        return FittedReasoning(raw)
    result = {k: v for k, v in fields.items() if k == CONTENT or k not in dropped}
    if CONTENT in dropped:
        result[CONTENT] = _without_blocks(msgspec.json.decode(fields[CONTENT]))
    if moved_text or fill:
        put_reasoning_text(result, moved_text or rule.blank or "", rule)
    lost_fields = (k for k, v in dropped.items() if _is_lost(k, v, sent_text or moved_text))
    return FittedReasoning(msgspec.json.encode(result), next(lost_fields, None), fill)


def _find_reasoning(fields: Mapping[str, msgspec.Raw]) -> dict[str, Any]:
    reasoning = {
        name: msgspec.json.decode(fields[name]) for name in REASONING_FIELDS if name in fields
    }
    content = fields.get(CONTENT)
    if content is not None and THINKING_BLOCK in bytes(content):
        blocks = thinking_blocks(msgspec.json.decode(content))
        reasoning |= {CONTENT: blocks} if blocks else {}
    return reasoning


def _find_encrypted(
    reasoning: Mapping[str, Any], rule: ReasoningRule, *, is_foreign: bool
) -> set[str]:
    encrypted: set[str] = set()
    details = reasoning.get(DETAILS)
    items = details if isinstance(details, list) else []
    has_signed_blocks = any(
        isinstance(item, dict) and item.get("type") in SIGNED_BLOCKS for item in items
    )
    if is_foreign or (has_signed_blocks and not rule.signed_blocks):
        encrypted.add(DETAILS)
    if is_foreign and any(map(_is_encrypted, reasoning.get(CONTENT, ()))):
        encrypted.add(CONTENT)
    return encrypted


def put_reasoning_text(fields: dict[str, Any], text: str, rule: ReasoningRule) -> None:
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
    texts = [item.get(STREAMED_TEXT_FIELDS.get(str(item.get("type")), "text")) for item in items]
    joined = "\n".join(text for text in texts if isinstance(text, str) and text)
    return joined or "\n".join(map(block_text, thinking_blocks(fields.get(CONTENT))))


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
    return not sent or any(map(_is_encrypted, value if isinstance(value, list) else [value]))


def _is_encrypted(item: Any) -> bool:
    return not isinstance(item, dict) or any(item.get(name) for name in SIGNATURE_FIELDS)


class StreamedDetails:
    """Joins streamed `reasoning_details`: pieces of the same type and index.

    Texts are concatenated; other fields take the last value that is not null. Encrypted details
    and unknown types arrive whole.
    """

    def __init__(self) -> None:
        self._items: list[Any] = []
        self._texts: dict[int, list[str]] = {}
        self._indexes: dict[tuple[str, int | None], int] = {}

    def add(self, pieces: Iterable[Any]) -> None:
        for piece in pieces:
            kind = piece.get("type") if isinstance(piece, dict) else None
            if not isinstance(kind, str) or kind not in STREAMED_TEXT_FIELDS:
                self._items.append(piece)
                continue
            stream_index = piece["index"] if isinstance(piece.get("index"), int) else None
            index = self._find(kind, stream_index, piece.get("id"))
            if index is None:
                index = self._indexes[kind, stream_index] = len(self._items)
                self._items.append({})
            self._merge(index, STREAMED_TEXT_FIELDS[kind], piece)

    def _find(self, kind: str, stream_index: int | None, detail_id: Any) -> int | None:
        index = self._indexes.get((kind, stream_index))
        if index is None or (stream_index is None and index != len(self._items) - 1):
            return None
        known_id = self._items[index].get("id")
        return index if known_id is None or detail_id is None or known_id == detail_id else None

    def _merge(self, index: int, field: str, piece: dict[str, Any]) -> None:
        item = self._items[index]
        for name, value in piece.items():
            if name == field and isinstance(value, str):
                self._texts.setdefault(index, []).append(value)
                item.setdefault(name, "")
            elif value is not None or name not in item:
                item[name] = value

    def whole(self) -> list[Any]:
        joined = {index: "".join(texts) for index, texts in self._texts.items()}
        return [
            {**item, STREAMED_TEXT_FIELDS[item["type"]]: joined[index]} if index in joined else item
            for index, item in enumerate(self._items)
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
        for position, block in self._blocks:
            content += _text_block(texts[start:position])
            content.append({**block, "thinking": _join_texts(block["thinking"])})
            start = position
        return content and [*content, *_text_block(texts[start:])]


def _text_block(texts: Sequence[str]) -> list[dict[str, Any]]:
    text = "".join(texts)
    return [{"type": "text", "text": text}] if text else []


def _join_texts(pieces: Iterable[Any]) -> list[Any]:
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
    rest = {name: value for name, value in fields.items() if name not in REASONING_FIELDS}
    return raw if len(rest) == len(fields) else msgspec.json.encode(rest)


EFFORT_ORDER = ("none", "minimal", "low", "medium", "high", "xhigh", "max")


def nearest_effort(requested: str, efforts: tuple[str, ...]) -> str | None:
    """Return the closest effort, the higher one of two; None for an unknown effort."""
    if requested not in EFFORT_ORDER or not efforts:
        return None
    rank = EFFORT_ORDER.index
    return min(efforts, key=lambda effort: (abs(rank(effort) - rank(requested)), -rank(effort)))

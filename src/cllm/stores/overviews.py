"""Overviews of conversations for lists: the start of the last message, tokens, cost, state."""

import re
from typing import Any

import msgspec

from cllm.core.conversation import StoredConversation
from cllm.core.message import Message
from cllm.core.ports import Overview

MAX_PREVIEWED = 20_000
"""Characters of the JSON of a message."""
MAX_LINE_LENGTH = 200
TEXT = re.compile(r'"(?:content|text)":\s*"((?:[^"\\]|\\.)*)')


def build_overview(conversation: StoredConversation) -> Overview:
    turns = (*conversation.turns, *conversation.variants)
    usages = [turn.usage for turn in turns if turn.usage is not None]
    costs = [turn.cost for turn in turns if turn.cost is not None]
    messages = [turn.messages for turn in conversation.turns if turn.messages]
    return Overview(
        last_line=read_line(messages[-1][-1].raw.decode()[:MAX_PREVIEWED]) if messages else "",
        tokens=sum(usage.total for usage in usages),
        cost=sum(costs) if costs else None,
        unpriced=sum(turn.usage is not None and turn.cost is None for turn in turns),
        state=max(turns, key=lambda turn: turn.started_at).state if turns else None,
    )


def decode_overview(row: tuple[Any, ...]) -> tuple[str, Overview]:
    """Decode a row: ID, JSON of the last message, state, tokens, cost, calls without a price."""
    own_id, raw, state, tokens, cost, unpriced = row
    overview = Overview(
        last_line="" if raw is None else read_line(raw),
        tokens=int(tokens),
        cost=cost,
        unpriced=int(unpriced),
        state=state,
    )
    return own_id, overview


def read_line(raw: str) -> str:
    """Return the start of the text of a message on one line, from its JSON or the start of it."""
    try:
        text = Message(role="assistant", raw=raw.encode()).text
    except msgspec.MsgspecError:
        match = TEXT.search(raw)
        text = "" if match is None else _unescape(match[1])
    return " ".join(text[: 10 * MAX_LINE_LENGTH].split())[:MAX_LINE_LENGTH]


def _unescape(text: str) -> str:
    try:
        return msgspec.json.decode(f'"{text}"', type=str)
    except msgspec.MsgspecError:
        return text

"""Branches and variants as a drawing with links (SVG)."""

from collections.abc import Iterator

import msgspec
from markupsafe import Markup

from cllm.core.conversation import StoredConversation, Summary
from cllm.engine.conversation_tree import (
    TreeNode,
    TreeVariant,
    build_node,
    find_children,
    find_root,
)
from cllm.server.api.conversation_ref import ConversationRef
from cllm.server.page.conversation_list import conversation_url
from cllm.server.page.layout import EMPTY, render
from cllm.server.page.message_view import turn_url
from cllm.server.page.texts import TEXTS
from cllm.stores.views import build_summary

MAX_FAMILY = 50
MAX_ROWS = 60
MAX_DEPTH = 6
MAX_LABEL = 34
ROW, STEP, MARGIN = 28, 16, 12


class TreeRow(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the drawing; `path` connects it with its parent."""

    label: str
    title: str
    url: str
    x: int
    y: int
    path: str | None
    is_variant: bool
    is_current: bool


async def render_tree(
    ref: ConversationRef, conversation: StoredConversation, turn_id: str
) -> Markup:
    """Return the drawing of the family, with the variants of this conversation; empty if alone."""
    family = await ref.store.list_family(conversation.family_key, owner=ref.owner, limit=MAX_FAMILY)
    own = build_summary(conversation)
    summaries = {summary.id: summary for summary in family} | {own.id: own}
    children = find_children(summaries)
    node = build_node(find_root(own, summaries), children, {own.id: conversation})
    rows = list(list_rows(node, ref, current=own.id, turn_id=turn_id))
    if len(rows) <= 1:
        return EMPTY
    shown = rows[:MAX_ROWS]
    return render("tree.html", rows=shown, height=len(shown) * ROW, missing=len(rows) - len(shown))


def list_rows(
    node: TreeNode, ref: ConversationRef, *, current: str, turn_id: str
) -> Iterator[TreeRow]:
    """Yield the rows from top to bottom."""
    position = 0

    def place(depth: int, parent: int | None) -> dict[str, object]:
        nonlocal position
        x, y = MARGIN + min(depth, MAX_DEPTH) * STEP, position * ROW + ROW // 2
        position += 1
        path = None if parent is None else f"M{x - STEP} {parent}V{y}H{x}"
        return {"x": x, "y": y, "path": path}

    def walk(inner: TreeNode, depth: int, parent: int | None) -> Iterator[TreeRow]:
        row = _view_conversation(inner.summary, ref, current, place(depth, parent))
        yield row
        for one in inner.inner:
            if isinstance(one, TreeVariant):
                yield _view_variant(one, ref, current, turn_id, place(depth + 1, row.y))
            else:
                yield from walk(one, depth + 1, row.y)

    yield from walk(node, 0, None)


def _view_conversation(
    summary: Summary, ref: ConversationRef, current: str, position: dict[str, object]
) -> TreeRow:
    title = summary.title or TEXTS["untitled"]
    return msgspec.convert(
        {
            "label": _shorten(title),
            "title": title,
            "url": conversation_url(f"{ref.prefix}{summary.id}"),
            "is_variant": False,
            "is_current": summary.id == current,
            **position,
        },
        TreeRow,
    )


def _view_variant(
    variant: TreeVariant,
    ref: ConversationRef,
    current: str,
    turn_id: str,
    position: dict[str, object],
) -> TreeRow:
    text = " ".join(variant.text[: 2 * MAX_LABEL].split()) or variant.state
    number = variant.label.rpartition("@")[2]
    title = f"{TEXTS['variant']} {number}: {text}"
    return msgspec.convert(
        {
            "label": _shorten(title),
            "title": title,
            "url": turn_url(f"{ref.prefix}{current}", variant.turn_id),
            "is_variant": True,
            "is_current": variant.turn_id == turn_id,
            **position,
        },
        TreeRow,
    )


def _shorten(text: str) -> str:
    return text if len(text) <= MAX_LABEL else f"{text[: MAX_LABEL - 1]}…"

"""The inspector column: what the model saw in one turn.

A document without `/t/TURN` has only a link: the prompt of a long conversation takes time.
"""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec
from markupsafe import Markup

from cllm.core.conversation import StoredConversation, Turn, find_turn
from cllm.core.errors import CllmError, TurnNotFoundError
from cllm.engine.sent_prompt import LeftOutView, PromptView, SentView, read_sent_prompt
from cllm.prices.book import PriceBook
from cllm.server.api.conversation_ref import ConversationRef, find_conversation
from cllm.server.page.conversation_list import conversation_url
from cllm.server.page.figures import UNKNOWN, format_cost, format_tokens
from cllm.server.page.layout import render
from cllm.server.page.message_view import turn_url
from cllm.server.page.texts import TEXTS
from cllm.server.page.tree import render_tree
from cllm.server.state import ApiRequest
from cllm.window.cache_report import build_cache_report

MAX_PREVIEW = 120
MAX_CONTENT = 2_000
MAX_HISTORY = 60
"""The messages of the history that are listed; the others are counted."""
BAR_WIDTH = 1000
KINDS = ("system", "template", "context", "summary", "history", "request")


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the bar. `x` and `width` are in thousandths of the window."""

    kind: str
    label: str
    tokens: str
    x: float = 0
    width: float = 0


class PromptRow(msgspec.Struct, frozen=True, kw_only=True):
    """A sent message, or a run of messages that were left out (`reason`)."""

    kind: str
    label: str
    preview: str
    content: str = ""
    tokens: str = ""
    url: str | None = None
    reason: str | None = None


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    label: str
    value: str


async def render_inspector(request: ApiRequest) -> Markup:
    """Return the column, or a link to it if only the conversation is requested."""
    ref = await find_conversation(request)
    turn_id = request.path_params.get("turn_id")
    if turn_id is None and request.query_params.get("part") != "inspector":
        newest = await ref.store.load(ref.id, owner=ref.owner, tail=1)
        url = turn_url(ref.public_id, newest.turns[-1].id) if newest.turns else None
        return render("inspector_link.html", url=url)
    conversation = await ref.store.load(ref.id, owner=ref.owner)
    turn = _choose_turn(ref, conversation, turn_id)
    if turn is None:
        return render("inspector_link.html", url=None)
    prompt = await read_sent_prompt(
        ref.store, conversation, turn, owner=ref.owner, prefix=ref.prefix
    )
    window, saved = await asyncio.to_thread(_look_up, request, conversation, turn)
    return render(
        "inspector.html",
        turn=turn,
        prompt=prompt,
        number=_find_number(conversation, turn),
        url=turn_url(ref.public_id, turn.id),
        json_url=_json_url(ref, turn),
        segments=list_segments(prompt, window),
        total=format_tokens(_count_tokens(prompt)),
        window=None if window is None else format_tokens(window),
        rows=list_rows(prompt, ref.public_id),
        figures=list(list_figures(turn, saved)),
        tree=await render_tree(ref, conversation, turn.id),
    )


def _choose_turn(
    ref: ConversationRef, conversation: StoredConversation, turn_id: str | None
) -> Turn | None:
    """Return the turn, or the last one if none is named. Raises TurnNotFoundError."""
    if turn_id is None:
        return conversation.turns[-1] if conversation.turns else None
    turn = find_turn(conversation, turn_id)
    if turn is None:
        raise TurnNotFoundError(ref.id, turn_id)
    return turn


def _find_number(conversation: StoredConversation, turn: Turn) -> int:
    places = [each.place for each in conversation.turns]
    return places.index(turn.place) + 1 if turn.place in places else 0


def _json_url(ref: ConversationRef, turn: Turn) -> str:
    path = conversation_url(ref.public_id).removeprefix("/c/")
    return f"/v1/conversations/{path}/turns/{turn.id}/prompt"


def _look_up(
    request: ApiRequest, conversation: StoredConversation, turn: Turn
) -> tuple[int | None, float | None]:
    """Return the context window and what the cache saved; the first look-up takes 200 ms."""
    app = request.server.app
    return _find_window(app.model_context, turn), find_savings(app.prices, conversation, turn)


def _find_window(model_context: Any, turn: Turn) -> int | None:
    if turn.model is None or turn.provider is None:
        return None
    name = turn.model.removeprefix(f"{turn.provider}/")
    with suppress(CllmError):
        window: int | None = model_context(f"{turn.provider}/{name}").context_window()
        return window
    return None


def find_savings(prices: PriceBook, conversation: StoredConversation, turn: Turn) -> float | None:
    """Return the dollars that the cache saved in this turn; None if unknown or not used."""
    alone = msgspec.structs.replace(conversation, turns=(turn,), variants=(), summary=None)
    saved = build_cache_report([alone], prices.price_turn).saved
    return saved.dollars if saved.known else None


def _count_tokens(prompt: PromptView) -> int:
    return prompt.estimated_tokens if prompt.counted_tokens is None else prompt.counted_tokens


def list_segments(prompt: PromptView, window: int | None) -> list[Segment]:
    """Return the kinds of messages in the prompt with their tokens, and the free part."""
    sums = {kind: sum(one.tokens or 0 for one in prompt.sent if one.kind == kind) for kind in KINDS}
    estimated, total = sum(sums.values()), _count_tokens(prompt)
    size = max(window or 0, total, 1)
    # The parts are estimates; together they have the length that the provider counted.
    scale = total / estimated / size * BAR_WIDTH if estimated else 0
    segments, x = [], 0.0
    for kind, tokens in sums.items():
        is_hidden = kind == "system" and prompt.system_policy == "dynamic"
        if not tokens and not is_hidden:
            continue
        width = tokens * scale
        shown = UNKNOWN if is_hidden else format_tokens(tokens)
        segments.append(
            Segment(
                kind=kind,
                label=TEXTS[f"segment_{kind}"],
                tokens=shown,
                x=round(x, 1),
                width=round(width, 1),
            )
        )
        x += width
    if window is not None:
        free = format_tokens(max(window - total, 0))
        segments.append(Segment(kind="free", label=TEXTS["segment_free"], tokens=free))
    return segments


def list_rows(prompt: PromptView, public_id: str) -> list[PromptRow]:
    """Return sent messages in order, and before the history those that were left out."""
    history = [one for one in prompt.sent if one.kind == "history"]
    hidden = max(len(history) - MAX_HISTORY, 0)
    view = partial(_view_sent, is_dynamic=prompt.system_policy == "dynamic", public_id=public_id)
    before = [view(one) for one in prompt.sent if one.kind in {"system", "template", "summary"}]
    after = [view(one) for one in prompt.sent if one.kind in {"context", "request"}]
    left_out = list(_view_left_out(prompt.left_out))
    folded = [_count_row(hidden)] if hidden else []
    return [*before, *left_out, *folded, *map(view, history[hidden:]), *after]


def _count_row(count: int) -> PromptRow:
    return PromptRow(
        kind="history",
        label=TEXTS["segment_history"],
        preview=TEXTS["earlier_sent"].format(count=f"{count:,}"),
    )


def _view_left_out(runs: Sequence[LeftOutView]) -> Iterator[PromptRow]:
    for run in runs:
        numbers = f"{run.first}" if run.first == run.last else f"{run.first}-{run.last}"
        yield PromptRow(
            kind="left-out",
            label=TEXTS["left_out"].format(numbers=numbers),
            preview="",
            reason=TEXTS[f"left_out_{run.reason}"],
        )


def _view_sent(one: SentView, *, is_dynamic: bool, public_id: str) -> PromptRow:
    is_hidden = one.role == "system" and is_dynamic
    system = "segment_template" if one.kind == "template" else "segment_system"
    if one.is_unknown:
        text = TEXTS["system_not_stored"]
    else:
        is_stored = one.is_stored and not is_hidden
        text = _read_text(one.content) if is_stored else TEXTS["not_stored"]
    anchor = one.sequence_number
    conversation = conversation_url(one.conversation_id or public_id)
    return PromptRow(
        kind=one.kind,
        label=TEXTS.get(f"speaker_{one.role}", TEXTS[system]),
        preview=" ".join(text[: 4 * MAX_PREVIEW].split())[:MAX_PREVIEW],
        content=text[:MAX_CONTENT] + ("…" if len(text) > MAX_CONTENT else ""),
        tokens="" if one.tokens is None or is_hidden else format_tokens(one.tokens),
        url=None if anchor is None else f"{conversation}?at={anchor}#m-{anchor}",
        reason=TEXTS["differs"] if one.differs else None,
    )


def _read_text(content: Any) -> str:
    """Return the content as text; other blocks by their types."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(map(_read_block, content))
    return TEXTS["tool_calls"] if content is None else msgspec.json.encode(content).decode()


def _read_block(block: Any) -> str:
    fields = block if isinstance(block, dict) else {"text": block}
    for name in ("text", "thinking", "type"):
        if isinstance(fields.get(name), str):
            return fields[name] if name != "type" else f"[{fields[name]}]"
    return msgspec.json.encode(block).decode()[:MAX_CONTENT]


def list_figures(turn: Turn, saved: float | None) -> Iterator[Figure]:
    """Yield the model, the provider, tokens with the cached part, and the cost."""
    yield Figure(label=TEXTS["model"], value=turn.model or UNKNOWN)
    yield Figure(label=TEXTS["provider"], value=turn.provider or UNKNOWN)
    usage = turn.usage
    if usage is not None:
        for name, tokens in (
            ("uncached", usage.input),
            ("cache_read", usage.cache_read),
            ("cache_write", usage.cache_write),
            ("output", usage.output),
            ("reasoning", usage.reasoning),
        ):
            if tokens or name in {"uncached", "output"}:
                yield Figure(label=TEXTS[f"figure_{name}"], value=f"{tokens:,}")
    yield Figure(label=TEXTS["figure_cost"], value=format_cost(turn.cost))
    if saved is not None:
        sign = "-" if saved < 0 else ""
        yield Figure(label=TEXTS["figure_saved"], value=f"{sign}{format_cost(abs(saved))}")

"""The column of one conversation: a range of its messages, the newest unless the URL says another.

`?before=N`, `?after=N` and `?at=N` select messages by number, `/t/TURN` those around a turn.
`?whole=1` does not cut texts.
"""

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from itertools import pairwise

import msgspec
from markupsafe import Markup

from cllm.core.conversation import (
    CONTEXT_START,
    Branch,
    StoredConversation,
    Summary,
    find_turn,
)
from cllm.core.errors import ConversationNotFoundError, InvalidIdError, TurnNotFoundError
from cllm.core.ports import Overview
from cllm.server.api.conversation_ref import ConversationRef, find_conversation
from cllm.server.api.views import run_in_thread_if_large, view_system
from cllm.server.http.parameters import Count, read_query
from cllm.server.page.conversation_list import conversation_url
from cllm.server.page.figures import format_cost
from cllm.server.page.layout import render
from cllm.server.page.markdown import MAX_MARKDOWN, render_plain
from cllm.server.page.message_view import (
    NumberedTurn,
    RenderLimits,
    TurnArticle,
    number_turns,
    replace_turn,
    view_turns,
)
from cllm.server.page.texts import TEXTS
from cllm.server.state import ApiRequest

PAGE_MESSAGES = 60
"""The messages of a response; turns are shown whole."""
RENDERED_BYTES = 100
"""The bytes of JSON that are encoded in the time in which a byte of a message is rendered."""


class RangeQuery(msgspec.Struct, frozen=True, kw_only=True):
    before: Count | None = None
    after: Count | None = None
    at: Count | None = None
    whole: bool = False
    part: str = ""


class NumberRange(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of messages, from `first` to before `end`."""

    first: int
    end: int


class LoadedTurns(msgspec.Struct, frozen=True, kw_only=True):
    """The turns to show; `earlier` and `later` are the numbers from which others continue."""

    conversation: StoredConversation
    turns: tuple[NumberedTurn, ...]
    earlier: int | None
    later: int | None


class SystemBlock(msgspec.Struct, frozen=True, kw_only=True):
    """The system prompt and its context blocks, or that they are not stored."""

    is_dynamic: bool
    source: str | None = None
    blocks: tuple[tuple[str, Markup], ...] = ()


class ParentLink(msgspec.Struct, frozen=True, kw_only=True):
    label: str
    url: str
    title: str


async def render_conversation(request: ApiRequest) -> tuple[str, Markup]:
    """Return the title and the column."""
    ref = await find_conversation(request)
    query = read_query(request, RangeQuery)
    summary = await ref.store.summary(ref.id, owner=ref.owner)
    loaded = await load_turns(ref, summary, query, request.path_params.get("turn_id"))
    size = sum(len(message.raw) for one in loaded.turns for message in one.turn.messages)
    limits = RenderLimits(is_whole=query.whole)
    work = partial(
        view_turns, loaded.conversation, loaded.turns, public_id=ref.public_id, limits=limits
    )
    turns = await run_in_thread_if_large(work, size=size * RENDERED_BYTES)
    overviews = await ref.store.read_overviews([summary.id], owner=ref.owner)
    title = summary.title or TEXTS["untitled"]
    column = _render_column(ref, summary, loaded, turns, overviews.get(summary.id, Overview()))
    parent = await _find_parent(ref, summary.parent)
    return title, render("conversation.html", title=title, parent=parent, **column)


async def load_turns(
    ref: ConversationRef, summary: Summary, query: RangeQuery, turn_id: str | None
) -> LoadedTurns:
    """Load what the URL selects. Raises TurnNotFoundError."""
    count = summary.message_count
    wanted = _select_range(query, count)
    if turn_id is None:
        conversation = await ref.store.load(
            ref.id, owner=ref.owner, tail=max(count - wanted.first + 1, 0)
        )
        return _cut(conversation, list(number_turns(conversation)), wanted)
    conversation = await ref.store.load(ref.id, owner=ref.owner)
    turn = find_turn(conversation, turn_id)
    if turn is None:
        raise TurnNotFoundError(ref.id, turn_id)
    turns = replace_turn(number_turns(conversation), turn)
    first = next((one.first for one in turns if one.turn.id == turn.id), count)
    return _cut(conversation, turns, _surround(first))


def _select_range(query: RangeQuery, count: int) -> NumberRange:
    if query.before is not None:
        return NumberRange(first=query.before - PAGE_MESSAGES, end=query.before)
    if query.after is not None:
        return NumberRange(first=query.after + 1, end=query.after + 1 + PAGE_MESSAGES)
    if query.at is not None:
        return _surround(query.at)
    return NumberRange(first=count - PAGE_MESSAGES + 1, end=count + 1)


def _surround(number: int) -> NumberRange:
    half = PAGE_MESSAGES // 2
    return NumberRange(first=number - half, end=number + half)


def _cut(
    conversation: StoredConversation, turns: Sequence[NumberedTurn], wanted: NumberRange
) -> LoadedTurns:
    """Return the turns that have a message in the range. A turn without messages is after it."""
    is_newest = wanted.end > conversation.message_count
    shown = [
        one
        for one in turns
        if (one.first < wanted.end or is_newest)
        and one.first + max(len(one.turn.messages), 1) > wanted.first
    ]
    first = shown[0].first if shown else 1
    has_later = bool(shown) and shown[-1].turn.id != turns[-1].turn.id
    last = shown[-1].first + len(shown[-1].turn.messages) - 1 if shown else 0
    return LoadedTurns(
        conversation=conversation,
        turns=tuple(shown),
        earlier=first if first > 1 else None,
        later=last if has_later else None,
    )


def _render_column(
    ref: ConversationRef,
    summary: Summary,
    loaded: LoadedTurns,
    turns: Sequence[TurnArticle],
    overview: Overview,
) -> dict[str, object]:
    return {
        "id": ref.public_id,
        "url": conversation_url(ref.public_id),
        "summary": summary,
        "cost": format_cost(overview.cost),
        "turns": turns,
        "earlier": loaded.earlier,
        "later": loaded.later,
        "system": None if loaded.earlier else view_system_block(loaded.conversation),
    }


def view_system_block(conversation: StoredConversation) -> SystemBlock | None:
    """Return the stored prompt, that none is stored, or None if the conversation has none."""
    system = view_system(conversation)
    if system.policy == "dynamic":
        return SystemBlock(is_dynamic=True)
    if not system.prompt:
        return None
    return SystemBlock(
        is_dynamic=False, source=system.source, blocks=tuple(split_system_prompt(system.prompt))
    )


def split_system_prompt(prompt: str) -> list[tuple[str, Markup]]:
    """Return the prompt and its context blocks, each with a label."""
    starts = [match.start() for match in CONTEXT_START.finditer(prompt)]
    first = starts[0] if starts else len(prompt)
    blocks = [(TEXTS["system_prompt"], prompt[:first])]
    for start, end in pairwise([*starts, len(prompt)]):
        blocks.append((TEXTS["context_block"], prompt[start:end]))
    return [(label, render_plain(text.strip()[:MAX_MARKDOWN])) for label, text in blocks if text]


async def _find_parent(ref: ConversationRef, parent: Branch | None) -> ParentLink | None:
    """Return the link to the parent, if it exists."""
    if parent is None:
        return None
    with suppress(ConversationNotFoundError, InvalidIdError):
        summary = await ref.store.summary(parent.conversation, owner=ref.owner)
        url = conversation_url(f"{ref.prefix}{summary.id}")
        target = f"{url}?at={parent.sequence}#m-{parent.sequence}" if parent.sequence else url
        label = TEXTS[f"{parent.kind}_from"]
        return ParentLink(label=label, url=target, title=summary.title or TEXTS["untitled"])
    return None

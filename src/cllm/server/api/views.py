"""JSON responses of the conversations endpoints.

Docstrings of types appear in the OpenAPI description. A system prompt is shown only if the policy
stores it, and never among the messages.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

import msgspec
from msgspec.structs import asdict, replace
from starlette.responses import Response

from cllm.core.conversation import (
    MAX_TITLE_LENGTH,
    Branch,
    ParentKind,
    Policy,
    StoredConversation,
    Summary,
    Turn,
    TurnState,
    cut_text,
    make_message_id,
)
from cllm.core.message import AnyPart, Message, Role, ToolCall, ToolResult, Unknown
from cllm.core.notice import Notice
from cllm.core.ports import Hit, ImportedFields
from cllm.core.reply import Usage
from cllm.server.http.errors import JSON
from cllm.server.http.parameters import MAX_METADATA_BYTES
from cllm.server.turns.headers import DELETED_RESPONSES
from cllm.server.turns.model_selection import MAX_MODEL_LENGTH
from cllm.wire.convert import parts_of
from cllm.wire.errors import MalformedError

MAX_FOUND_CHARACTERS = 10_000
"""Of the text of a message in the results of a search."""
# Larger work is done in a thread.
MANY_MESSAGES = 500
MANY_BYTES = 500_000

T = TypeVar("T")
Imported = Mapping[str, ImportedFields]
NOTHING_IMPORTED: Imported = {}


class ParentView(msgspec.Struct, frozen=True, kw_only=True):
    """The parent of a conversation, and the number of its last message that belongs here.

    `kind`: `branch` shares the parent's messages up to that one, the first messages of a
    `compaction` summarise them, and the client sent them before those of a `side` conversation.
    """

    conversation_id: str
    sequence_number: int
    kind: ParentKind = "branch"


class SummaryView(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation without its messages. `source` is the client that it was recorded from."""

    id: str
    title: str | None
    created_at: datetime
    updated_at: datetime
    archived_at: datetime | None
    message_count: int
    metadata: dict[str, Any]
    model: str | None = None
    name: str | None = None
    source: str | None = None
    side: bool = False
    parent: ParentView | None = None


class ListView(msgspec.Struct, frozen=True, kw_only=True):
    """A page of conversations, newest first. Send `next_cursor` as `cursor` for the next page."""

    conversations: tuple[SummaryView, ...]
    total: int
    limit: int
    offset: int
    next_cursor: str | None = None


class UsageView(msgspec.Struct, frozen=True, kw_only=True):
    """Token usage. `total_tokens` is the sum of the other five numbers, which do not overlap."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    total_tokens: int = 0
    estimated: bool = False


class MessageView(msgspec.Struct, frozen=True, kw_only=True):
    """One message: `content` in OpenAI's format if possible, all of it in `parts`.

    `usage` and `cost` (in US dollars) are totals of the turn; only its last reply has them. A
    message of an older deployment has its own `cost`, `metadata` and `reasoning_events`.
    """

    id: str
    role: Role
    content: Any
    parts: list[dict[str, Any]]
    sequence_number: int | None
    model: str | None
    usage: UsageView | None
    cost: float | None
    state: TurnState
    turn_id: str
    created_at: datetime
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)
    tool_calls: list[dict[str, Any]] | msgspec.UnsetType = msgspec.UNSET
    tool_call_id: str | msgspec.UnsetType = msgspec.UNSET
    reasoning_events: Any = msgspec.UNSET


class NoticeView(msgspec.Struct, frozen=True, kw_only=True):
    code: str
    path: str
    message: str


class FailureView(msgspec.Struct, frozen=True, kw_only=True):
    code: str
    message: str


class TurnView(msgspec.Struct, frozen=True, kw_only=True):
    """One turn with its messages."""

    id: str
    state: TurnState
    started_at: datetime
    ended_at: datetime | None
    model: str | None
    provider: str | None
    usage: UsageView | None
    cost: float | None
    notices: tuple[NoticeView, ...]
    failure: FailureView | None
    on_default_path: bool
    messages: tuple[MessageView, ...]


class SystemView(msgspec.Struct, frozen=True, kw_only=True):
    """The system prompt policy of a conversation, and its `prompt` if the policy stores one."""

    policy: Policy | None
    source: str | None = None
    prompt: str | None = None


class DetailView(SummaryView, frozen=True, kw_only=True):
    """A conversation with its messages. If more messages follow, send `next_after` as `after`."""

    system: SystemView
    messages: tuple[MessageView, ...]
    variants: tuple[TurnView, ...] | None = None
    next_after: int | None = None


class HitView(msgspec.Struct, frozen=True, kw_only=True):
    """A message that matches a search.

    `content` is its text, up to 10,000 characters. `highlight` is `snippet` as HTML with the words
    in `<b>`. `relevance` is from 0 to 1.
    """

    conversation_id: str
    title: str | None
    message_id: str
    sequence_number: int
    role: Role
    content: str
    snippet: str
    highlight: str
    relevance: float
    created_at: datetime


class SearchView(msgspec.Struct, frozen=True, kw_only=True):
    """The results of a search. If `more` is true, `total` is a lower bound."""

    results: tuple[HitView, ...]
    total: int
    more: bool
    limit: int
    offset: int


def json_response(value: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type=JSON)


async def run_in_thread_if_large(work: Callable[[], T], *, messages: int = 0, size: int = 0) -> T:
    """Run the work, in a thread if it is large."""
    if messages < MANY_MESSAGES and size < MANY_BYTES:
        return work()
    return await asyncio.to_thread(work)


def view_summary(summary: Summary | StoredConversation, prefix: str = "") -> SummaryView:
    parent = summary.parent
    return SummaryView(
        id=f"{prefix}{summary.id}",
        title=summary.title,
        created_at=summary.created_at,
        updated_at=summary.updated_at,
        archived_at=summary.archived_at,
        message_count=summary.message_count,
        metadata=hide_deleted_responses(summary.metadata),
        model=summary.model,
        name=summary.name,
        source=summary.source,
        side=summary.is_side,
        parent=None if parent is None else view_parent(parent, prefix),
    )


def hide_deleted_responses(metadata: dict[str, Any]) -> dict[str, Any]:
    """Return the metadata of the client."""
    if DELETED_RESPONSES not in metadata:
        return metadata
    return {name: value for name, value in metadata.items() if name != DELETED_RESPONSES}


def view_parent(parent: Branch, prefix: str = "") -> ParentView:
    return ParentView(
        conversation_id=f"{prefix}{parent.conversation}",
        sequence_number=parent.sequence,
        kind=parent.kind,
    )


def view_list_items(
    summaries: Iterable[Summary],
) -> tuple[tuple[SummaryView, ...], tuple[Notice, ...]]:
    """Return summaries of bounded size, and a notice for each that was shortened."""
    items: list[SummaryView] = []
    notices: list[Notice] = []
    for summary in summaries:
        view = view_summary(summary)
        items.append(_shorten(view))
        if items[-1] != view:
            notices.append(
                Notice(
                    code="summary_shortened",
                    path=view.id,
                    message="The list shortens long titles, model names and sources and leaves out "
                    "metadata of more than 16 KB; GET the conversation to see them.",
                )
            )
    return tuple(items), tuple(notices)


def _shorten(view: SummaryView) -> SummaryView:
    is_large = len(msgspec.json.encode(view.metadata)) > MAX_METADATA_BYTES
    parent = view.parent
    if parent is not None:
        shortened = cut_text(parent.conversation_id, MAX_TITLE_LENGTH)
        parent = replace(parent, conversation_id=shortened)
    return replace(
        view,
        title=_cut(view.title, MAX_TITLE_LENGTH),
        model=_cut(view.model, MAX_MODEL_LENGTH),
        source=_cut(view.source, MAX_MODEL_LENGTH),
        parent=parent,
        metadata={} if is_large else view.metadata,
    )


def _cut(text: str | None, length: int) -> str | None:
    return None if text is None else cut_text(text, length)


def view_detail(
    conversation: StoredConversation,
    messages: Sequence[MessageView],
    *,
    prefix: str = "",
    parent: ParentView | None = None,
    variants: Sequence[TurnView] | None = None,
    next_after: int | None = None,
) -> DetailView:
    summary = replace(view_summary(conversation, prefix), parent=parent)
    return DetailView(
        **asdict(summary),
        system=view_system(conversation),
        messages=tuple(messages),
        variants=None if variants is None else tuple(variants),
        next_after=next_after,
    )


def view_system(conversation: StoredConversation) -> SystemView:
    record, stored = conversation.system_record, conversation.kept_prompt
    prompt = None if stored is None else stored.text
    if record is None:
        return SystemView(policy=None if stored is None else "captured", prompt=prompt)
    if record.policy == "dynamic":
        return SystemView(policy="dynamic")
    return SystemView(policy=record.policy, source=record.source, prompt=prompt)


def view_messages(
    conversation: StoredConversation, imported: Imported = NOTHING_IMPORTED
) -> Iterator[MessageView]:
    for turn, number in _number_turns(conversation):
        yield from _view_turn_messages(turn, imported, first=number)


def view_variants(
    conversation: StoredConversation, imported: Imported = NOTHING_IMPORTED
) -> Iterator[TurnView]:
    starts = {turn.place: number for turn, number in _number_turns(conversation)}
    for turn in conversation.variants:
        yield _view_turn(turn, imported, first=starts.get(turn.place), on_default_path=False)


def find_turn_view(
    conversation: StoredConversation, turn_id: str, imported: Imported = NOTHING_IMPORTED
) -> TurnView | None:
    for turn, number in _number_turns(conversation):
        if turn.id == turn_id:
            return _view_turn(turn, imported, first=number, on_default_path=True)
    variants = view_variants(conversation, imported)
    return next((view for view in variants if view.id == turn_id), None)


def _number_turns(conversation: StoredConversation) -> Iterator[tuple[Turn, int]]:
    """Yield turns with the sequence number of their first message."""
    number = conversation.first_sequence
    for turn in conversation.turns:
        yield turn, number
        number += len(turn.messages)


def _view_turn(
    turn: Turn, imported: Imported, *, first: int | None, on_default_path: bool
) -> TurnView:
    return TurnView(
        id=turn.id,
        state=turn.state,
        started_at=turn.started_at,
        ended_at=turn.ended_at,
        model=turn.model,
        provider=turn.provider,
        usage=view_usage(turn.usage),
        cost=turn.cost,
        notices=msgspec.convert(turn.notices, tuple[NoticeView, ...], from_attributes=True),
        failure=msgspec.convert(turn.failure, FailureView | None, from_attributes=True),
        on_default_path=on_default_path,
        messages=tuple(_view_turn_messages(turn, imported, first=first)),
    )


def view_usage(usage: Usage | None) -> UsageView | None:
    return None if usage is None else UsageView(**token_fields(usage))


def token_fields(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.input,
        "output_tokens": usage.output,
        "cache_read_tokens": usage.cache_read,
        "cache_write_tokens": usage.cache_write,
        "reasoning_tokens": usage.reasoning,
        "total_tokens": usage.total,
        "estimated": usage.estimated,
    }


def _view_turn_messages(
    turn: Turn, imported: Imported, *, first: int | None
) -> Iterator[MessageView]:
    replies = [index for index, one in enumerate(turn.messages) if one.role == "assistant"]
    for ordinal, message in enumerate(turn.messages):
        if message.role == "system":
            continue
        is_last = bool(replies) and ordinal == replies[-1]
        is_reply = message.role in ("assistant", "tool")
        view = MessageView(
            id=make_message_id(turn.id, ordinal),
            role=message.role,
            sequence_number=None if first is None else first + ordinal,
            model=turn.model if message.role == "assistant" else None,
            usage=view_usage(turn.usage) if is_last else None,
            cost=turn.cost if is_last else None,
            state=turn.state,
            turn_id=turn.id,
            created_at=(turn.ended_at if is_reply else None) or turn.started_at,
            **_view_content(message),
        )
        yield _with_imported(view, imported.get(view.id))


def _with_imported(view: MessageView, fields: ImportedFields | None) -> MessageView:
    if fields is None:
        return view
    events = fields.reasoning_events
    return replace(
        view,
        metadata=fields.metadata,
        reasoning_events=msgspec.UNSET if events is None else events,
        cost=fields.total_cost,
        created_at=fields.created_at or view.created_at,
    )


def view_hit(hit: Hit, prefix: str = "") -> HitView:
    return HitView(
        conversation_id=f"{prefix}{hit.conversation}",
        title=_cut(hit.title, MAX_TITLE_LENGTH),
        message_id=hit.message_id,
        sequence_number=hit.sequence,
        role=hit.role,
        content=hit.content[:MAX_FOUND_CHARACTERS],
        snippet=hit.snippet,
        highlight=hit.highlight,
        relevance=hit.relevance,
        created_at=hit.created_at,
    )


def _view_content(message: Message) -> dict[str, Any]:
    try:
        parts = parts_of(message)
    except MalformedError:
        parts = (Unknown(dialect=message.dialect, raw=message.raw, field="message"),)
    view: dict[str, Any] = {"parts": list(map(_view_part, parts))}
    if message.dialect != "openai":
        calls = [_view_call(part) for part in parts if isinstance(part, ToolCall)]
        results = [part.call_id for part in parts if isinstance(part, ToolResult)]
        if calls:
            view["tool_calls"] = calls
        if len(results) == 1:
            view["tool_call_id"] = results[0]
        return {**view, "content": message.text or None}
    fields = message.json()
    stored, call_id = fields.get("tool_calls"), fields.get("tool_call_id")
    # Fields of an imported file can have any type.
    if stored and isinstance(stored, list) and all(isinstance(call, dict) for call in stored):
        view["tool_calls"] = stored
    if call_id and isinstance(call_id, str):
        view["tool_call_id"] = call_id
    return {**view, "content": fields.get("content")}


def _view_call(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}


def _view_part(part: AnyPart) -> dict[str, Any]:
    encoded: dict[str, Any] = msgspec.to_builtins(part, enc_hook=str)
    if isinstance(part, Unknown):
        encoded["raw"] = msgspec.json.decode(part.raw)
    elif isinstance(part, ToolResult):
        encoded["content"] = list(map(_view_part, part.content))
    return {name: value for name, value in encoded.items() if value not in (None, {})}

"""The items of OpenAI's Conversations API: the stored messages as items of the Responses API."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace
from starlette.responses import Response

from cllm.core.conversation import StoredConversation, Summary, Turn, find_running
from cllm.core.errors import ConversationBusyError, ConversationNotFoundError
from cllm.core.message import Message
from cllm.core.notice import Notice
from cllm.core.ports import NewConversation, TurnStart
from cllm.server.api.conversation_ref import ConversationRef, add_notices
from cllm.server.api.conversations import delete_from
from cllm.server.api.item_references import resolve_references
from cllm.server.api.response_views import list_items
from cllm.server.api.stored_responses import InputItemsQuery, json_body, page_items, view_page
from cllm.server.api.views import hide_deleted_responses, run_in_thread_if_large
from cllm.server.http.errors import ApiError
from cllm.server.http.limits import check_counts, read_body
from cllm.server.http.parameters import decode, read_query
from cllm.server.state import ApiRequest
from cllm.server.turns.headers import UUID
from cllm.server.turns.previous_response import StoredResponse
from cllm.wire.responses.ids import make_conversation_id, read_conversation_id, read_item_id
from cllm.wire.responses.parts import item_kind
from cllm.wire.responses.request import decode_items, has_references

ITEMS = "items"
SYSTEM_ROLES = ("developer", "system")


class NewItemsBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Items to add to a conversation."""

    items: list[msgspec.Raw]


class NewItems(msgspec.Struct, frozen=True, kw_only=True):
    """The messages of new items, without system messages, and notices about those."""

    messages: tuple[Message, ...]
    notices: tuple[Notice, ...]


class ConversationItem(msgspec.Struct, frozen=True, kw_only=True):
    """An item of a conversation. `sequence` is the number of its message."""

    fields: Any
    sequence: int
    turn: str


async def list_conversation_items(request: ApiRequest) -> Response:
    """GET /v1/conversations/{conversation_id}/items."""
    ref = find_openai_conversation(request)
    conversation = await ref.store.load(ref.id, owner=ref.owner)
    query = read_query(request, InputItemsQuery)
    work = partial(_view_items, conversation, query)
    return await run_in_thread_if_large(work, messages=conversation.message_count)


def _view_items(conversation: StoredConversation, query: InputItemsQuery) -> Response:
    items = [item.fields for item in iterate_items(conversation)]
    return json_body(page_items(items, query))


async def create_conversation_items(request: ApiRequest) -> Response:
    """POST /v1/conversations/{conversation_id}/items: one turn, without a call of a model."""
    ref = find_openai_conversation(request)
    summary = await ref.store.summary(ref.id, owner=ref.owner)
    if summary.archived_at is not None:
        raise ConversationNotFoundError(ref.id)
    encoded = await read_body(request, request.server.body_quota)
    body = decode(encoded, NewItemsBody)
    items = await decode_new_items(encoded, body.items, request)
    added: list[Any] = []
    if items.messages:
        added = [fields for _, fields in list_items(await add_items(ref.id, items, request))]
    return add_notices(json_body(view_page(added)), items.notices)


async def get_conversation_item(request: ApiRequest) -> Response:
    """GET /v1/conversations/{conversation_id}/items/{item_id}."""
    ref = find_openai_conversation(request)
    conversation = await ref.store.load(ref.id, owner=ref.owner)
    return json_body(_find_item(list(iterate_items(conversation)), request).fields)


async def delete_conversation_item(request: ApiRequest) -> Response:
    """DELETE /v1/conversations/{conversation_id}/items/{item_id}: only the last one."""
    ref = find_openai_conversation(request)
    conversation = await ref.store.load(ref.id, owner=ref.owner)
    items = list(iterate_items(conversation))
    item = _find_item(items, request)
    if running := find_running(conversation):
        raise ConversationBusyError(ref.id, turn_id=running[0].id)
    check_is_last(item, items)
    # A turn that ends meanwhile would be deleted too.
    await delete_from(ref, item.sequence, request, unchanged=conversation)
    return json_body(view_conversation(await ref.store.summary(ref.id, owner=ref.owner)))


def check_is_last(item: ConversationItem, items: Sequence[ConversationItem]) -> None:
    """Raise ApiError unless nothing but reasoning is deleted with the item's message."""
    last = items[-1].sequence
    others = [
        other
        for other in items
        if other.sequence == last
        and other.fields["id"] != item.fields["id"]
        and item_kind(other.fields) != "reasoning"
    ]
    if item.sequence != last or others:
        raise ApiError(
            "invalid_request",
            "Only the last item of a conversation can be deleted, if its reply has no other items; "
            "delete the items after it first, or branch the conversation before it.",
            param="item_id",
        )


def find_openai_conversation(request: ApiRequest) -> ConversationRef:
    """Return the conversation in the path, whose ID is in OpenAI's format or a UUID."""
    request.protocol = "responses"
    path_id: str = request.path_params["conversation_id"]
    conversation_id = read_conversation_id(path_id)
    if conversation_id is None:
        if UUID.fullmatch(path_id) is None:
            raise ConversationNotFoundError(path_id)
        conversation_id = path_id.lower()
    request.record.conversation = conversation_id
    return ConversationRef(
        store=request.server.store, owner=request.caller.owner, id=conversation_id
    )


def view_conversation(conversation: Summary) -> dict[str, Any]:
    """Return the conversation in OpenAI's format."""
    return {
        "id": make_conversation_id(conversation.id),
        "object": "conversation",
        "created_at": int(conversation.created_at.timestamp()),
        "metadata": hide_deleted_responses(conversation.metadata),
    }


async def decode_new_items(
    body: bytes, raws: Sequence[msgspec.Raw], request: ApiRequest
) -> NewItems:
    """Decode the items of a body; references are replaced by their items."""
    check_counts(body, len(raws), request.server.body_quota.limits)
    items = [msgspec.json.decode(raw) for raw in raws]
    if has_references(items):
        items = await resolve_references(items, request, field=ITEMS)
        raws = [msgspec.Raw(msgspec.json.encode(item)) for item in items]
    messages = tuple(decode_items(raws, items, path=ITEMS))
    ignored = [index for index, item in enumerate(items) if item.get("role") in SYSTEM_ROLES]
    return NewItems(
        messages=tuple(message for message in messages if message.role != "system"),
        notices=tuple(map(_ignored_notice, ignored)),
    )


def _ignored_notice(index: int) -> Notice:
    return Notice(
        code="system_message_ignored",
        path=f"{ITEMS}[{index}]",
        message="System prompts are not stored; send this one in `instructions` of a response.",
    )


async def add_items(
    ref: str, items: NewItems, request: ApiRequest, *, create: NewConversation | None = None
) -> StoredResponse:
    """Save the messages as one turn without a model."""
    state, owner = request.server, request.caller.owner
    start = TurnStart(id=state.new_id(), messages=items.messages, visible=False)
    lease = await state.store.begin_turn(ref, start, owner=owner, create=create, tail=1)
    turn = replace(lease.turn, state="complete", ended_at=state.clock())
    await state.store.finish_turn(lease, turn)
    request.record.turn = turn.id
    return _as_response(lease.conversation, turn)


def iterate_items(conversation: StoredConversation) -> Iterator[ConversationItem]:
    """Yield the items of the default path, without failed and running turns."""
    number = conversation.first_sequence
    for turn in conversation.turns:
        if turn.is_history:
            for ordinal, fields in list_items(_as_response(conversation, turn)):
                sequence = number + ordinal
                yield ConversationItem(fields=fields, sequence=sequence, turn=turn.id)
        number += len(turn.messages)


def _as_response(conversation: StoredConversation, turn: Turn) -> StoredResponse:
    # Without the other turns, which a view would search for the previous response.
    alone = replace(conversation, turns=(turn,), variants=())
    return StoredResponse(conversation=alone, turn=turn)


def _find_item(items: Sequence[ConversationItem], request: ApiRequest) -> ConversationItem:
    """Return the item in the path.

    An item can have another ID after later messages of its turn are deleted: its old ID has its
    index among the items of the turn.
    """
    item_id = request.path_params["item_id"]
    for item in items:
        if item.fields["id"] == item_id:
            return item
    key = read_item_id(item_id)
    if key is not None and key.is_input:
        own = [item for item in items if item.turn == key.response.turn]
        if key.index < len(own):
            return own[key.index]
    raise ApiError("item_not_found", f"Item with id '{item_id}' not found.", param="item_id")

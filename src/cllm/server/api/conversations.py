"""The conversations endpoints: lists, search, one conversation, its messages and its branches."""

from contextlib import suppress
from functools import partial
from itertools import islice

from starlette.responses import Response

from cllm.core.conversation import StoredConversation, SystemRecord
from cllm.core.errors import ConversationNotFoundError, SequenceNotFoundError
from cllm.core.ports import Changes, NewConversation, Opening
from cllm.history.system_prompt import build_captured_opening
from cllm.server.api.conversation_ref import (
    ConversationRef,
    add_notices,
    find_conversation,
    find_store,
)
from cllm.server.api.views import (
    DetailView,
    ListView,
    MessageView,
    ParentView,
    SearchView,
    json_response,
    run_in_thread_if_large,
    view_detail,
    view_hit,
    view_messages,
    view_summary,
    view_variants,
)
from cllm.server.http.errors import ApiError
from cllm.server.http.parameters import (
    BranchBody,
    ChangeBody,
    DeleteQuery,
    DetailQuery,
    ListQuery,
    NewBody,
    SearchQuery,
    check_sequence,
    read_json,
    read_query,
    read_sequence,
)
from cllm.server.state import ApiRequest
from cllm.server.turns.headers import CONVERSATION

UNCHANGED = ChangeBody()


async def list_conversations(request: ApiRequest) -> Response:
    """GET /v1/conversations."""
    query = read_query(request, ListQuery)
    store_ref = find_store(query.store, request)
    page = await store_ref.store.list_conversations(
        owner=store_ref.owner,
        archive_filter=query.archive_filter,
        limit=query.limit,
        cursor=query.cursor,
        offset=query.offset,
    )
    total = await store_ref.store.count_conversations(
        owner=store_ref.owner, archive_filter=query.archive_filter
    )
    shown = ListView(
        conversations=tuple(view_summary(item, store_ref.prefix) for item in page.items),
        total=total,
        limit=query.limit,
        offset=query.offset,
        next_cursor=page.next_cursor,
    )
    return add_notices(json_response(shown), page.notices, store_ref)


async def create_conversation(request: ApiRequest) -> Response:
    """POST /v1/conversations."""
    state, owner = request.server, request.caller.owner
    body = await read_json(request, NewBody, empty=NewBody())
    new = NewConversation(id=state.new_id(), title=body.title, metadata=body.metadata)
    policy = body.system_policy or "dynamic"
    if policy == "captured":
        opening = build_captured_opening(state.app.settings.system, now=state.clock())
    else:
        opening = Opening(system=None, system_record=SystemRecord(policy=policy))
    await state.store.create(new, owner=owner, opening=opening)
    request.record.conversation = new.id
    return json_response(view_summary(await state.store.summary(new.id, owner=owner)), 201)


async def get_conversation(request: ApiRequest) -> Response:
    """GET /v1/conversations/{conversation_id}."""
    query = read_query(request, DetailQuery)
    place = await find_conversation(request)
    conversation = await _load_after(place, query.after)
    count = conversation.message_count - query.after
    messages, next_after = await run_in_thread_if_large(
        partial(_select_messages, conversation, query), messages=count
    )
    detail = await _build_detail(
        place, conversation, messages, variants=query.variants, next_after=next_after
    )
    return await run_in_thread_if_large(partial(json_response, detail), messages=len(messages))


def _select_messages(
    conversation: StoredConversation, query: DetailQuery
) -> tuple[list[MessageView], int | None]:
    """Return the messages, and the last number if there are more."""
    views = (
        message
        for message in view_messages(conversation)
        if message.sequence_number is not None and message.sequence_number > query.after
    )
    messages = list(islice(views, query.limit))
    more = next(views, None) is not None
    return messages, messages[-1].sequence_number if more else None


async def _load_after(place: ConversationRef, after: int) -> StoredConversation:
    tail = None
    if after > 0:
        summary = await place.store.summary(place.id, owner=place.owner)
        tail = max(summary.message_count - after, 0)
    return await place.store.load(place.id, owner=place.owner, tail=tail)


async def _build_detail(
    place: ConversationRef,
    conversation: StoredConversation,
    messages: list[MessageView],
    *,
    variants: bool = False,
    next_after: int | None = None,
) -> DetailView:
    """Add the parent of a branch, if it exists."""
    parent, parent_view = conversation.parent, None
    if parent is not None:
        with suppress(ConversationNotFoundError):
            await place.store.summary(parent.conversation, owner=place.owner)
            shown = f"{place.prefix}{parent.conversation}"
            parent_view = ParentView(conversation_id=shown, sequence_number=parent.sequence)
    return view_detail(
        conversation,
        messages,
        prefix=place.prefix,
        parent=parent_view,
        variants=variants,
        next_after=next_after,
    )


async def change_conversation(request: ApiRequest) -> Response:
    """PATCH /v1/conversations/{conversation_id}."""
    place = await find_conversation(request)
    body = await read_json(request, ChangeBody)
    if body == UNCHANGED:
        summary = await place.store.summary(place.id, owner=place.owner)
    else:
        changes = Changes(title=body.title, metadata=body.metadata, archived=body.archived)
        summary = await place.store.update(place.id, changes, owner=place.owner)
    return json_response(view_summary(summary, place.prefix))


async def delete_conversation(request: ApiRequest) -> Response:
    """DELETE /v1/conversations/{conversation_id}."""
    query = read_query(request, DeleteQuery)
    place = await find_conversation(request)
    if query.permanent:
        await place.store.delete(place.id, owner=place.owner)
        request.server.app.forget(place.id)
        await _forget_responses(place, request)
    else:
        await place.store.update(place.id, Changes(archived=True), owner=place.owner)
    return Response(status_code=204)


async def branch_conversation(request: ApiRequest) -> Response:
    """POST /v1/conversations/{conversation_id}/branch."""
    place = await find_conversation(request)
    body = await read_json(request, BranchBody)
    at = check_sequence(body.branch_at_sequence, "branch_at_sequence")
    new = NewConversation(id=request.server.new_id())
    branch = await place.store.branch(place.id, new, at=at, owner=place.owner)
    return json_response(await _build_detail(place, branch, list(view_messages(branch))), 201)


async def delete_messages(request: ApiRequest) -> Response:
    """DELETE /v1/conversations/{conversation_id}/messages/{message}: and all later ones."""
    place = await find_conversation(request)
    sequence = read_sequence(request.path_params["message"])
    await place.store.delete_from(place.id, sequence, owner=place.owner)
    await _forget_responses(place, request)
    return Response(status_code=204)


async def _forget_responses(place: ConversationRef, request: ApiRequest) -> None:
    """A repeated request must not return deleted messages."""
    store, owner = request.server.store, request.caller.owner
    await store.forget_responses(CONVERSATION, place.shown, owner=owner)


async def get_message(request: ApiRequest) -> Response:
    """GET /v1/conversations/{conversation_id}/messages/{message}: by ID or number."""
    place = await find_conversation(request)
    wanted = request.path_params["message"]
    conversation = await place.store.load(place.id, owner=place.owner)
    messages = list(view_messages(conversation))
    if wanted.isascii() and wanted.isdigit():
        number = read_sequence(wanted)
        for message in messages:
            if message.sequence_number == number:
                return json_response(message)
        raise SequenceNotFoundError(place.id, number)
    off_path = (message for turn in view_variants(conversation) for message in turn.messages)
    for message in (*messages, *off_path):
        if message.id == wanted:
            return json_response(message)
    raise ApiError("message_not_found", "The conversation has no such message.", param="message")


async def search_conversations(request: ApiRequest) -> Response:
    """GET /v1/conversations/search."""
    query = read_query(request, SearchQuery)
    store_ref = find_store(query.store, request)
    found = await store_ref.store.search(
        query.q,
        owner=store_ref.owner,
        archive_filter=query.archive_filter,
        limit=query.limit,
        offset=query.offset,
    )
    shown = SearchView(
        results=tuple(view_hit(hit, store_ref.prefix) for hit in found.items),
        total=found.total,
        more=found.more,
        limit=query.limit,
        offset=query.offset,
    )
    return add_notices(json_response(shown), found.notices, store_ref)

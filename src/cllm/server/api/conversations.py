"""The conversations endpoints, and their messages and branches."""

from contextlib import suppress
from functools import partial
from itertools import islice

import msgspec
from starlette.responses import Response

from cllm.core.conversation import StoredConversation, SystemRecord
from cllm.core.errors import (
    ConversationNotFoundError,
    InvalidIdError,
    SequenceNotFoundError,
    UsageError,
)
from cllm.core.ports import Changes, NewConversation, Opening
from cllm.history.system_prompt import build_captured_opening
from cllm.server.api.conversation_lists import list_page, search_page
from cllm.server.api.conversation_ref import (
    ConversationRef,
    add_notices,
    find_conversation,
    load_imported,
)
from cllm.server.api.views import (
    DetailView,
    Imported,
    ListView,
    MessageView,
    SearchView,
    TurnView,
    json_response,
    run_in_thread_if_large,
    view_detail,
    view_hit,
    view_list_items,
    view_messages,
    view_parent,
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
    check_metadata,
    check_sequence,
    decode,
    read_json,
    read_query,
    read_sequence,
    read_title,
)
from cllm.server.state import ApiRequest
from cllm.server.turns.headers import CONVERSATION, DELETED_RESPONSES
from cllm.wire.errors import FieldError

UNCHANGED = ChangeBody()


async def list_conversations(request: ApiRequest) -> Response:
    """GET /v1/conversations."""
    query = read_query(request, ListQuery)
    page, total = await list_page(request, query)
    items, left_out = view_list_items(page.items)
    view = ListView(
        conversations=items,
        total=total,
        limit=query.limit,
        offset=query.offset,
        next_cursor=page.next_cursor,
    )
    return add_notices(json_response(view), page.notices + left_out)


async def create_conversation(request: ApiRequest, encoded: bytes) -> Response:
    """POST /v1/conversations, with the body `encoded`."""
    state, owner = request.server, request.caller.owner
    body = decode(encoded, NewBody) if encoded else NewBody()
    new = NewConversation(
        id=state.new_id(),
        title=read_title(body.title),
        metadata=check_metadata(body.metadata),
    )
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
    ref = await find_conversation(request)
    conversation = await _load_after(ref, query.after)
    imported = await load_imported(ref, query.after)
    count = conversation.message_count - query.after
    messages, next_after = await run_in_thread_if_large(
        partial(_select_messages, conversation, query, imported), messages=count
    )
    variants = list(view_variants(conversation, imported)) if query.variants else None
    detail = await _build_detail(
        ref, conversation, messages, variants=variants, next_after=next_after
    )
    return await run_in_thread_if_large(partial(json_response, detail), messages=len(messages))


def _select_messages(
    conversation: StoredConversation, query: DetailQuery, imported: Imported
) -> tuple[list[MessageView], int | None]:
    """Return messages, and the last number if more follow."""
    views = (
        message
        for message in view_messages(conversation, imported)
        if message.sequence_number is not None and message.sequence_number > query.after
    )
    messages = list(islice(views, query.limit))
    has_more = next(views, None) is not None
    return messages, messages[-1].sequence_number if has_more else None


async def _load_after(ref: ConversationRef, after: int) -> StoredConversation:
    tail = None
    if after > 0:
        summary = await ref.store.summary(ref.id, owner=ref.owner)
        tail = max(summary.message_count - after, 0)
    return await ref.store.load(ref.id, owner=ref.owner, tail=tail)


async def _build_detail(
    ref: ConversationRef,
    conversation: StoredConversation,
    messages: list[MessageView],
    *,
    variants: list[TurnView] | None = None,
    next_after: int | None = None,
) -> DetailView:
    """Add the parent, if it exists."""
    parent_view = None
    if conversation.parent is not None:
        # A manual edit can give the parent any ID.
        with suppress(ConversationNotFoundError, InvalidIdError):
            await ref.store.summary(conversation.parent.conversation, owner=ref.owner)
            parent_view = view_parent(conversation.parent, ref.prefix)
    return view_detail(
        conversation,
        messages,
        prefix=ref.prefix,
        parent=parent_view,
        variants=variants,
        next_after=next_after,
    )


async def change_conversation(request: ApiRequest) -> Response:
    """PATCH /v1/conversations/{conversation_id}."""
    ref = await find_conversation(request)
    body = await read_json(request, ChangeBody)
    if body == UNCHANGED:
        summary = await ref.store.summary(ref.id, owner=ref.owner)
    else:
        changes = _read_changes(body)
        if changes.metadata is not msgspec.UNSET:
            changes = await preserve_deleted_responses(ref, changes)
        summary = await ref.store.update(ref.id, changes, owner=ref.owner)
    return json_response(view_summary(summary, ref.prefix))


async def preserve_deleted_responses(ref: ConversationRef, changes: Changes) -> Changes:
    """Return the changes with the list of deleted responses, which is not the client's."""
    stored = (await ref.store.summary(ref.id, owner=ref.owner)).metadata
    if DELETED_RESPONSES not in stored or isinstance(changes.metadata, msgspec.UnsetType):
        return changes
    kept = {DELETED_RESPONSES: stored[DELETED_RESPONSES]}
    return msgspec.structs.replace(changes, metadata={**changes.metadata, **kept})


def _read_changes(body: ChangeBody) -> Changes:
    title, metadata = body.title, body.metadata
    return Changes(
        title=title if title is msgspec.UNSET else read_title(title),
        metadata=metadata if metadata is msgspec.UNSET else check_metadata(metadata),
        archived=body.archived,
    )


async def delete_conversation(request: ApiRequest) -> Response:
    """DELETE /v1/conversations/{conversation_id}."""
    query = read_query(request, DeleteQuery)
    ref = await find_conversation(request)
    if query.permanent:
        await delete_permanently(ref, request)
    else:
        await ref.store.update(ref.id, Changes(archived=True), owner=ref.owner)
    return Response(status_code=204)


async def delete_permanently(ref: ConversationRef, request: ApiRequest) -> None:
    await ref.store.delete(ref.id, owner=ref.owner)
    request.server.app.forget(ref.id)
    if ref.prefix:
        # The shell has its own state of the local model.
        request.server.app.forget(ref.id, store=request.server.files_url)
    await _forget_responses(ref, request)


async def branch_conversation(request: ApiRequest) -> Response:
    """POST /v1/conversations/{conversation_id}/branch."""
    ref = await find_conversation(request)
    body = await read_json(request, BranchBody)
    at = check_sequence(body.branch_at_sequence, "branch_at_sequence")
    new = NewConversation(id=request.server.new_id())
    branch = await ref.store.branch(ref.id, new, at=at, owner=ref.owner)
    return json_response(await _build_detail(ref, branch, list(view_messages(branch))), 201)


async def delete_messages(request: ApiRequest) -> Response:
    """DELETE /v1/conversations/{conversation_id}/messages/{message}: and all later ones."""
    ref = await find_conversation(request)
    await delete_from(ref, read_sequence(request.path_params["message"]), request)
    return Response(status_code=204)


async def delete_from(
    ref: ConversationRef,
    sequence: int,
    request: ApiRequest,
    *,
    unchanged: StoredConversation | None = None,
) -> None:
    await ref.store.delete_from(ref.id, sequence, owner=ref.owner, unchanged=unchanged)
    await _forget_responses(ref, request)


async def _forget_responses(ref: ConversationRef, request: ApiRequest) -> None:
    """Delete saved responses, so that none returns deleted messages."""
    store, owner = request.server.store, request.caller.owner
    await store.forget_responses(CONVERSATION, ref.public_id, owner=owner)


async def get_message(request: ApiRequest) -> Response:
    """GET /v1/conversations/{conversation_id}/messages/{message}: by ID or number."""
    ref = await find_conversation(request)
    message_id = request.path_params["message"]
    conversation = await ref.store.load(ref.id, owner=ref.owner)
    imported = await load_imported(ref)
    messages = list(view_messages(conversation, imported))
    if message_id.isascii() and message_id.isdigit():
        number = read_sequence(message_id)
        for message in messages:
            if message.sequence_number == number:
                return json_response(message)
        raise SequenceNotFoundError(ref.id, number)
    variants = view_variants(conversation, imported)
    off_path = (message for turn in variants for message in turn.messages)
    for message in (*messages, *off_path):
        if message.id == message_id:
            return json_response(message)
    raise ApiError(
        "message_not_found",
        "The conversation has no message with this ID; GET the conversation to see its messages.",
        param="message",
    )


async def search_conversations(request: ApiRequest) -> Response:
    """GET /v1/conversations/search."""
    query = read_query(request, SearchQuery)
    try:
        page = await search_page(request, query)
    except UsageError as error:
        raise FieldError("q", str(error)) from None
    view = SearchView(
        results=tuple(map(view_hit, page.items)),
        total=page.total,
        more=page.more,
        limit=query.limit,
        offset=query.offset,
    )
    return add_notices(json_response(view), page.notices)

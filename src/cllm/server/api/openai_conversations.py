"""OpenAI's Conversations API. Other requests are handled by `conversations`."""

from typing import Annotated

import msgspec
from starlette.responses import Response

from cllm.core.conversation import ITEMS_SOURCE, SystemRecord
from cllm.core.ports import Changes, NewConversation, Opening
from cllm.server.api import conversations
from cllm.server.api.conversation_items import (
    add_items,
    decode_new_items,
    find_openai_conversation,
    view_conversation,
)
from cllm.server.api.conversation_ref import add_notices
from cllm.server.api.stored_responses import json_body
from cllm.server.http.limits import read_body
from cllm.server.http.parameters import decode, read_json
from cllm.server.state import ApiRequest
from cllm.wire.responses.ids import make_conversation_id, read_conversation_id

SDK_HEADER = "x-stainless-lang"
MAX_PAIRS = 16

MetadataKey = Annotated[str, msgspec.Meta(max_length=64)]
MetadataValue = Annotated[str, msgspec.Meta(max_length=512)]
MetadataPairs = Annotated[dict[MetadataKey, MetadataValue], msgspec.Meta(max_length=MAX_PAIRS)]


class NewConversationBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A conversation in OpenAI's format, with its first items."""

    items: list[msgspec.Raw] | None = None
    metadata: MetadataPairs | None = None


class MetadataBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`metadata` replaces all metadata."""

    metadata: MetadataPairs | None


async def create_conversation(request: ApiRequest) -> Response:
    """POST /v1/conversations."""
    if SDK_HEADER in request.headers:
        request.protocol = "responses"
    encoded = await read_body(request, request.server.body_quota)
    if request.protocol is None and not has_items(encoded):
        return await conversations.create_conversation(request, encoded)
    request.protocol = "responses"
    body = decode(encoded, NewConversationBody) if encoded else NewConversationBody()
    items = await decode_new_items(encoded, body.items or [], request)
    state, owner = request.server, request.caller.owner
    opening = Opening(system=None, system_record=SystemRecord(policy="dynamic"))
    new = NewConversation(
        id=state.new_id(),
        metadata=dict(body.metadata or {}),
        opening=opening,
        source=ITEMS_SOURCE,
    )
    request.record.conversation = new.id
    if items.messages:
        await add_items(new.id, items, request, create=new)
    else:
        await state.store.create(new, owner=owner, opening=opening)
    summary = await state.store.summary(new.id, owner=owner)
    return add_notices(json_body(view_conversation(summary)), items.notices)


def has_items(body: bytes) -> bool:
    """Whether the body has the field `items`, which only OpenAI's format has."""
    try:
        fields = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return isinstance(fields, dict) and "items" in fields


async def get_conversation(request: ApiRequest) -> Response:
    """GET /v1/conversations/{conversation_id}."""
    if read_conversation_id(request.path_params["conversation_id"]) is None:
        return await conversations.get_conversation(request)
    ref = find_openai_conversation(request)
    return json_body(view_conversation(await ref.store.summary(ref.id, owner=ref.owner)))


async def update_conversation(request: ApiRequest) -> Response:
    """POST /v1/conversations/{conversation_id}."""
    ref = find_openai_conversation(request)
    await ref.store.summary(ref.id, owner=ref.owner)
    body = await read_json(request, MetadataBody)
    changes = Changes(metadata=dict(body.metadata or {}))
    changes = await conversations.preserve_deleted_responses(ref, changes)
    return json_body(view_conversation(await ref.store.update(ref.id, changes, owner=ref.owner)))


async def delete_conversation(request: ApiRequest) -> Response:
    """DELETE /v1/conversations/{conversation_id}: permanently, if the ID is in OpenAI's format."""
    if read_conversation_id(request.path_params["conversation_id"]) is None:
        return await conversations.delete_conversation(request)
    ref = find_openai_conversation(request)
    await conversations.delete_permanently(ref, request)
    body = {"id": make_conversation_id(ref.id), "object": "conversation.deleted", "deleted": True}
    return json_body(body)

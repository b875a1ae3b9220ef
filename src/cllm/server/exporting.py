"""A conversation out of the server as one document, and into it again.

The JSON form is the conversation file: what was exported can be imported, whole. The others are
for people. A dynamic conversation has no system prompt in any of them, and gets none by coming in.
"""

import uuid
from datetime import datetime
from functools import partial

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from cllm.core.conversation import Conversation, SystemRecord, Turn
from cllm.core.errors import BrokenConversationError
from cllm.core.identity import is_valid_id
from cllm.engine.copying import copy_into
from cllm.server.answering import answer, aside
from cllm.server.limits import read_body
from cllm.server.place import place_of, shelf_named
from cllm.server.reading import ExportQuery, decode, read_query
from cllm.server.request_log import record_of
from cllm.server.serving import caller_of, serving_of
from cllm.server.views import view_detail, view_messages
from cllm.wire.conversation_json import decode_conversation, encode_conversation
from cllm.wire.malformed import FieldError
from cllm.wire.transcript import transcript_of
from cllm.wire.transcript_html import POLICY, encode_html
from cllm.wire.transcript_markdown import encode_markdown

ENDINGS = {"json": "json", "markdown": "md", "html": "html"}
TYPES = {
    "json": "application/json",
    "markdown": "text/markdown; charset=utf-8",
    "html": "text/html; charset=utf-8",
}
SAFETY = {"X-Content-Type-Options": "nosniff", "Content-Security-Policy": f"{POLICY}; sandbox"}
DYNAMIC = SystemRecord(policy="dynamic")


async def export(request: Request) -> Response:
    """GET /v1/conversations/{conversation_id}/export."""
    query = read_query(request, ExportQuery)
    place = await place_of(request)
    conversation = await place.store.load(place.id, owner=place.owner)
    name = f"{place.id}.{ENDINGS[query.format]}"
    encode = partial(_encoded, conversation, query.format, shown_id=place.shelf.shown(place.id))
    return Response(
        await aside(encode, messages=conversation.message_count),
        headers={**SAFETY, "Content-Disposition": f'attachment; filename="{name}"'},
        media_type=TYPES[query.format],
    )


def _encoded(conversation: Conversation, form: str, *, shown_id: str) -> bytes:
    if form == "json":
        return encode_conversation(without_system_messages(conversation))
    transcript = transcript_of(conversation, shown_id=shown_id)
    return (encode_markdown if form == "markdown" else encode_html)(transcript).encode()


async def import_conversation(request: Request) -> Response:
    """POST /v1/conversations/import: a conversation file becomes a new conversation."""
    serving, owner = serving_of(request), caller_of(request).owner
    body = await read_body(request, serving.settings.limits)
    read = partial(_read, body, new_id=serving.new_id(), now=serving.clock())
    conversation = await aside(read, size=len(body))
    await copy_into(serving.store, conversation, conversation.id, owner=owner)
    record_of(request).conversation = conversation.id
    shelf = shelf_named(None, serving, caller_of(request))
    kept = await shelf.store.load(conversation.id, owner=owner)
    return await aside(
        lambda: answer(view_detail(kept, list(view_messages(kept))), 201),
        messages=kept.message_count,
    )


def _read(body: bytes, *, new_id: str, now: datetime) -> Conversation:
    """The conversation of a file's text, under a new id."""
    fields = decode(body, dict[str, msgspec.Raw])
    named = msgspec.json.encode({**fields, "id": new_id})
    try:
        read = decode_conversation(named, conversation_id=new_id, path="", modified_at=now)
    except BrokenConversationError as error:
        raise FieldError("", f"the body is not a conversation ({error.reason})") from None
    _check_messages(read.conversation)
    return _with_turn_names(_with_policy(read.conversation))


def _check_messages(conversation: Conversation) -> None:
    """FieldError for a message whose content is nothing that can be said."""
    for turn in (*conversation.turns, *conversation.variants):
        for message in turn.messages:
            content = message.json().get("content")
            blocks = content if isinstance(content, list) else []
            said = content is None or isinstance(content, str | list)
            if not said or not all(isinstance(block, dict) for block in blocks):
                raise FieldError("messages", "a content is a text or a list of parts")


def _with_policy(conversation: Conversation) -> Conversation:
    """Under the policy it says, else as conversations over HTTP are."""
    if conversation.system_record is None:
        conversation = msgspec.structs.replace(conversation, system=None, system_record=DYNAMIC)
    return without_system_messages(conversation)


def without_system_messages(conversation: Conversation) -> Conversation:
    """A dynamic conversation with nothing in it that is a system message; another as it is."""
    record = conversation.system_record
    if record is None or record.policy != "dynamic":
        return conversation
    return msgspec.structs.replace(
        conversation,
        system=None,
        system_record=DYNAMIC,
        turns=tuple(map(_without_system, conversation.turns)),
        variants=tuple(map(_without_system, conversation.variants)),
    )


def _without_system(turn: Turn) -> Turn:
    if all(message.role != "system" for message in turn.messages):
        return turn
    kept = tuple(message for message in turn.messages if message.role != "system")
    return msgspec.structs.replace(turn, messages=kept)


def _with_turn_names(conversation: Conversation) -> Conversation:
    """With ids of turns that can stand in an address; a file may have any."""
    names: dict[str, str] = {}

    def name(old: str) -> str:
        return names.setdefault(old, old if is_valid_id(old) else str(uuid.uuid4()))

    def named(turn: Turn) -> Turn:
        return msgspec.structs.replace(turn, id=name(turn.id), place=name(turn.place))

    return msgspec.structs.replace(
        conversation,
        turns=tuple(map(named, conversation.turns)),
        variants=tuple(map(named, conversation.variants)),
    )

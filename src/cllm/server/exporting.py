"""A conversation out of the server as one document, and into it again.

The JSON form is the conversation file: what was exported can be imported, whole. The others are
for people. A dynamic conversation has no system prompt in any of them, and gets none by coming in.
"""

import uuid
from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from functools import partial

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from cllm.core.conversation import Conversation, Turn
from cllm.core.errors import BrokenConversationError
from cllm.core.identity import is_valid_id
from cllm.engine.copying import copy_into
from cllm.engine.outlined import open_outlined
from cllm.server.answering import answer, aside
from cllm.server.export_pieces import DYNAMIC, pieces_of, without_system_messages
from cllm.server.limits import read_body
from cllm.server.place import place_of, shelf_named
from cllm.server.reading import ExportQuery, decode, read_query
from cllm.server.request_log import record_of
from cllm.server.serving import caller_of, serving_of
from cllm.server.views import view_detail, view_messages
from cllm.wire.conversation_file.codec import decode_conversation
from cllm.wire.conversation_file.transcript_html import POLICY
from cllm.wire.malformed import FieldError

WHOLE_ONLY = ("1.0", "0.9")
"""Versions of HTTP in which an answer has no pieces."""
ENDINGS = {"json": "json", "markdown": "md", "html": "html"}
TYPES = {
    "json": "application/json",
    "markdown": "text/markdown; charset=utf-8",
    "html": "text/html; charset=utf-8",
}
SAFETY = {"X-Content-Type-Options": "nosniff", "Content-Security-Policy": f"{POLICY}; sandbox"}


async def export(request: Request) -> Response:
    """GET /v1/conversations/{conversation_id}/export."""
    query = read_query(request, ExportQuery)
    place = await place_of(request)
    read = await open_outlined(place.store, place.id, owner=place.owner)
    name = f"{place.id}.{ENDINGS[query.format]}"
    pieces = pieces_of(read, query.format, shown_id=place.shelf.shown(place.id))
    return await _answered(
        request,
        pieces,
        headers={**SAFETY, "Content-Disposition": f'attachment; filename="{name}"'},
        media_type=TYPES[query.format],
    )


async def _answered(
    request: Request, pieces: AsyncIterator[bytes], *, headers: dict[str, str], media_type: str
) -> Response:
    """A short document whole, so that what is wrong with it has a status; a long one as it comes.

    A long one whose end cannot be read breaks off before it, which a client can tell. One of
    HTTP/1.0 could not, and knows no pieces: it is given a long one whole as well. Who asks for the
    head alone is told the length.
    """
    if request.method == "HEAD":
        size = sum([len(piece) async for piece in pieces])
        return Response(headers={**headers, "Content-Length": str(size)}, media_type=media_type)
    if request.scope["http_version"] in WHOLE_ONLY:
        whole = b"".join([piece async for piece in pieces])
        return Response(whole, headers=headers, media_type=media_type)
    first = await anext(pieces)
    async for second in pieces:
        rest = _after((first, second), pieces)
        return StreamingResponse(rest, headers=headers, media_type=media_type)
    return Response(first, headers=headers, media_type=media_type)


async def _after(first: Sequence[bytes], pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    for piece in first:
        yield piece
    async for piece in pieces:
        yield piece


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

"""Export of a conversation as one document, and import of a conversation file.

A dynamic conversation has no system prompt in any document, nor after an import.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Literal

import msgspec
from msgspec.structs import replace
from starlette.responses import Response, StreamingResponse

from cllm.core.conversation import StoredConversation, SystemRecord, Turn, is_valid_id
from cllm.core.errors import BrokenConversationError
from cllm.core.message import Message
from cllm.engine.transfer import PagedConversation, TurnMessages, copy_into, open_paged
from cllm.server.api.conversation_ref import find_conversation
from cllm.server.api.views import json_response, run_in_thread_if_large, view_detail, view_messages
from cllm.server.http.limits import read_body
from cllm.server.http.parameters import ExportQuery, decode, read_query
from cllm.server.state import ApiRequest
from cllm.wire.conversation_file import transcript as transcripts
from cllm.wire.conversation_file.codec import decode_conversation
from cllm.wire.conversation_file.transcript import (
    POLICY,
    TranscriptMessage,
    transcript_messages,
    transcript_of,
)
from cllm.wire.conversation_file.writer import FileWriter
from cllm.wire.errors import FieldError

ExportFormat = Literal["json", "markdown", "html"]
WITHOUT_CHUNKS = ("1.0", "0.9")
"""Versions of HTTP without chunked responses."""
CHUNK_BYTES = 64 * 1024
DYNAMIC = SystemRecord(policy="dynamic")
FILE_EXTENSIONS = {"json": "json", "markdown": "md", "html": "html"}
MEDIA_TYPES = {
    "json": "application/json",
    "markdown": "text/markdown; charset=utf-8",
    "html": "text/html; charset=utf-8",
}
SECURITY_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": f"{POLICY}; sandbox",
}


async def export_conversation(request: ApiRequest) -> Response:
    """GET /v1/conversations/{conversation_id}/export."""
    query = read_query(request, ExportQuery)
    place = await find_conversation(request)
    read = await open_paged(place.store, place.id, owner=place.owner)
    name = f"{place.id}.{FILE_EXTENSIONS[query.format]}"
    pieces = _chunk_document(read, query.format, shown_id=place.shown)
    return await _build_response(
        request,
        pieces,
        headers={**SECURITY_HEADERS, "Content-Disposition": f'attachment; filename="{name}"'},
        media_type=MEDIA_TYPES[query.format],
    )


async def _build_response(
    request: ApiRequest, pieces: AsyncIterator[bytes], *, headers: dict[str, str], media_type: str
) -> Response:
    """Return one piece whole, so that its errors have a status; stream more.

    A stream that cannot be read breaks off. HTTP/1.0 clients cannot detect that.
    """
    if request.method == "HEAD":
        size = sum([len(piece) async for piece in pieces])
        return Response(headers={**headers, "Content-Length": str(size)}, media_type=media_type)
    if request.scope["http_version"] in WITHOUT_CHUNKS:
        whole = b"".join([piece async for piece in pieces])
        return Response(whole, headers=headers, media_type=media_type)
    first = await anext(pieces)
    second = await anext(pieces, None)
    if second is None:
        return Response(first, headers=headers, media_type=media_type)
    rest = _chain((first, second), pieces)
    return StreamingResponse(rest, headers=headers, media_type=media_type)


async def _chain(first: Sequence[bytes], pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    for piece in first:
        yield piece
    async for piece in pieces:
        yield piece


async def import_conversation(request: ApiRequest) -> Response:
    """POST /v1/conversations/import."""
    state, owner = request.server, request.caller.owner
    body = await read_body(request, state.body_quota)
    read = partial(_decode_file, body, new_id=state.new_id(), now=state.clock())
    conversation = await run_in_thread_if_large(read, size=len(body))
    await copy_into(state.store, conversation, conversation.id, owner=owner)
    request.record.conversation = conversation.id
    saved = await state.store.load(conversation.id, owner=owner)
    return await run_in_thread_if_large(
        lambda: json_response(view_detail(saved, list(view_messages(saved))), 201),
        messages=saved.message_count,
    )


def _decode_file(body: bytes, *, new_id: str, now: datetime) -> StoredConversation:
    fields = decode(body, dict[str, msgspec.Raw])
    named = msgspec.json.encode({**fields, "id": new_id})
    try:
        read = decode_conversation(named, conversation_id=new_id, path="", modified_at=now)
    except BrokenConversationError as error:
        raise FieldError("", f"the body is not a conversation ({error.reason})") from None
    conversation = read.conversation
    _check_messages(conversation)
    if conversation.system_record is None:
        conversation = replace(conversation, system=None, system_record=DYNAMIC)
    return _replace_invalid_turn_ids(_remove_system_messages(conversation))


def _check_messages(conversation: StoredConversation) -> None:
    for turn in (*conversation.turns, *conversation.variants):
        for message in turn.messages:
            content = message.json().get("content")
            blocks = content if isinstance(content, list) else []
            is_content = content is None or isinstance(content, str | list)
            if not is_content or not all(isinstance(block, dict) for block in blocks):
                raise FieldError("messages", "a content is a text or a list of parts")


def _replace_invalid_turn_ids(conversation: StoredConversation) -> StoredConversation:
    """Replace IDs of turns that are not valid in a path."""
    names: dict[str, str] = {}

    def name(old: str) -> str:
        return names.setdefault(old, old if is_valid_id(old) else str(uuid.uuid4()))

    def named(turn: Turn) -> Turn:
        return replace(turn, id=name(turn.id), place=name(turn.place))

    return replace(
        conversation,
        turns=tuple(map(named, conversation.turns)),
        variants=tuple(map(named, conversation.variants)),
    )


async def _chunk_document(
    read: PagedConversation, form: ExportFormat, *, shown_id: str
) -> AsyncIterator[bytes]:
    """Yield the document in pieces of at least PIECE bytes."""
    pieces = (
        _write_file(read) if form == "json" else _write_transcript(read, form, shown_id=shown_id)
    )
    waiting: list[bytes] = []
    size = 0
    async for piece in pieces:
        waiting.append(piece)
        size += len(piece)
        if size >= CHUNK_BYTES:
            yield b"".join(waiting)
            waiting, size = [], 0
            # Let other tasks run: sending to a fast client does not.
            await asyncio.sleep(0)
    if waiting:
        yield b"".join(waiting)


async def _write_file(read: PagedConversation) -> AsyncIterator[bytes]:
    conversation = _remove_system_messages(read.conversation)
    writer = FileWriter(conversation)
    yield writer.start()
    history = [turn for turn in conversation.turns if turn.is_history]
    async for part in read.iter_pages(history):
        yield await _write_in_thread(
            partial(_write_messages, conversation, part, writer.add_messages), part
        )
    yield writer.add_metadata()
    for turn in conversation.turns:
        whole = turn if turn.is_history else await _load_turn(read, turn)
        yield writer.record("turns", whole)
    for turn in conversation.variants:
        yield writer.record("variants", await _load_turn(read, turn))
    yield writer.add_prompt_original()
    async for part in read.iter_pages(writer.turns_with_originals):
        yield await _write_in_thread(
            partial(_write_messages, conversation, part, writer.add_originals), part
        )
    yield writer.end()


def _write_messages(
    conversation: StoredConversation,
    part: Sequence[TurnMessages],
    write: Callable[[Turn, Sequence[Message]], bytes],
) -> bytes:
    return b"".join(
        write(said.turn, _exported_messages(conversation, said.messages)) for said in part
    )


async def _write_in_thread(write: partial[bytes], part: Sequence[TurnMessages]) -> bytes:
    sizes = [len(message.raw) for said in part for message in said.messages]
    return await run_in_thread_if_large(write, messages=len(sizes), size=sum(sizes))


async def _load_turn(read: PagedConversation, turn: Turn) -> Turn:
    messages = [message async for said in read.iter_messages((turn,)) for message in said.messages]
    return replace(turn, messages=_exported_messages(read.conversation, messages))


def _remove_system_messages(conversation: StoredConversation) -> StoredConversation:
    if not _is_dynamic(conversation):
        return conversation

    def strip(turn: Turn) -> Turn:
        return replace(turn, messages=_exported_messages(conversation, turn.messages))

    return replace(
        conversation,
        system=None,
        system_record=DYNAMIC,
        turns=tuple(map(strip, conversation.turns)),
        variants=tuple(map(strip, conversation.variants)),
    )


def _exported_messages(
    conversation: StoredConversation, messages: Sequence[Message]
) -> tuple[Message, ...]:
    """Return the messages; of a dynamic conversation without system messages."""
    is_dynamic = _is_dynamic(conversation)
    return tuple(one for one in messages if not is_dynamic or one.role != "system")


def _is_dynamic(conversation: StoredConversation) -> bool:
    record = conversation.system_record
    return record is not None and record.policy == "dynamic"


async def _write_transcript(
    read: PagedConversation, form: Literal["markdown", "html"], *, shown_id: str
) -> AsyncIterator[bytes]:
    conversation = read.conversation
    head = transcript_of(conversation, shown_id=shown_id)
    number = conversation.first_sequence
    is_page = form == "html"
    start = transcripts.start_html if is_page else transcripts.start_markdown
    add = transcripts.add_html if is_page else transcripts.add_markdown
    yield start(head).encode()
    async for part in read.iter_pages(conversation.turns):
        yield await _write_in_thread(
            partial(_write_transcript_messages, part, add, first=number), part
        )
        number += sum(len(said.messages) for said in part)
    yield (transcripts.HTML_END if is_page else transcripts.MARKDOWN_END).encode()


def _write_transcript_messages(
    part: Sequence[TurnMessages], add: Callable[[TranscriptMessage], str], *, first: int
) -> bytes:
    shown: list[str] = []
    for said in part:
        shown += map(add, transcript_messages(said.turn, said.messages, first=first))
        first += len(said.messages)
    return "".join(shown).encode()

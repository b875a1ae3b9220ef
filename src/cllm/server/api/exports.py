"""Export of a conversation as JSON, Markdown or HTML, and import of a conversation file.

Exports and imports of a dynamic conversation contain no system prompt.
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
from cllm.server.http.parameters import (
    ExportQuery,
    check_metadata,
    decode,
    read_query,
    read_title,
)
from cllm.server.state import ApiRequest
from cllm.server.turns.model_selection import MAX_MODEL_LENGTH
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
    ref = await find_conversation(request)
    paged = await open_paged(ref.store, ref.id, owner=ref.owner)
    name = f"{ref.id}.{FILE_EXTENSIONS[query.format]}"
    chunks = _chunk_document(paged, query.format, public_id=ref.public_id)
    return await _build_response(
        request,
        chunks,
        headers={**SECURITY_HEADERS, "Content-Disposition": f'attachment; filename="{name}"'},
        media_type=MEDIA_TYPES[query.format],
    )


async def _build_response(
    request: ApiRequest, chunks: AsyncIterator[bytes], *, headers: dict[str, str], media_type: str
) -> Response:
    """Return one chunk whole, so that an error has its status; stream several.

    A failing stream is cut off, which HTTP/1.0 clients cannot detect.
    """
    if request.method == "HEAD":
        size = sum([len(chunk) async for chunk in chunks])
        return Response(headers={**headers, "Content-Length": str(size)}, media_type=media_type)
    if request.scope["http_version"] in WITHOUT_CHUNKS:
        whole = b"".join([chunk async for chunk in chunks])
        return Response(whole, headers=headers, media_type=media_type)
    first = await anext(chunks)
    second = await anext(chunks, None)
    if second is None:
        return Response(first, headers=headers, media_type=media_type)
    rest = _chain((first, second), chunks)
    return StreamingResponse(rest, headers=headers, media_type=media_type)


async def _chain(first: Sequence[bytes], rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    for chunk in first:
        yield chunk
    async for chunk in rest:
        yield chunk


async def import_conversation(request: ApiRequest) -> Response:
    """POST /v1/conversations/import."""
    state, owner = request.server, request.caller.owner
    body = await read_body(request, state.body_quota)
    decode_file = partial(_decode_file, body, new_id=state.new_id(), now=state.clock())
    conversation = await run_in_thread_if_large(decode_file, size=len(body))
    await copy_into(state.store, conversation, conversation.id, owner=owner)
    request.record.conversation = conversation.id
    saved = await state.store.load(conversation.id, owner=owner)
    return await run_in_thread_if_large(
        lambda: json_response(view_detail(saved, list(view_messages(saved))), 201),
        messages=saved.message_count,
    )


def _decode_file(body: bytes, *, new_id: str, now: datetime) -> StoredConversation:
    fields = decode(body, dict[str, msgspec.Raw])
    data = msgspec.json.encode({**fields, "id": new_id})
    try:
        decoded = decode_conversation(data, conversation_id=new_id, path="", modified_at=now)
    except BrokenConversationError as error:
        raise FieldError("", f"the body is not a conversation ({error.reason})") from None
    conversation = decoded.conversation
    _check_messages(conversation)
    conversation = _check_head(conversation)
    if conversation.system_record is None:
        conversation = replace(conversation, system=None, system_record=DYNAMIC)
    return _replace_invalid_turn_ids(_remove_system_messages(conversation))


def _check_head(conversation: StoredConversation) -> StoredConversation:
    """Apply the limits of other requests to the title, metadata and model."""
    if len(conversation.model or "") > MAX_MODEL_LENGTH:
        raise FieldError("model", f"has more than {MAX_MODEL_LENGTH} characters")
    check_metadata(conversation.metadata)
    return replace(conversation, title=read_title(conversation.title))


def _check_messages(conversation: StoredConversation) -> None:
    for turn in (*conversation.turns, *conversation.variants):
        for message in turn.messages:
            content = message.json().get("content")
            blocks = content if isinstance(content, list) else []
            is_content = content is None or isinstance(content, str | list)
            if not is_content or not all(isinstance(block, dict) for block in blocks):
                raise FieldError("messages", "`content` must be a string or a list of parts")


def _replace_invalid_turn_ids(conversation: StoredConversation) -> StoredConversation:
    """Replace turn IDs that are not valid in a URL path."""
    new_ids: dict[str, str] = {}

    def new_id(old: str) -> str:
        return new_ids.setdefault(old, old if is_valid_id(old) else str(uuid.uuid4()))

    def rename(turn: Turn) -> Turn:
        return replace(turn, id=new_id(turn.id), place=new_id(turn.place))

    return replace(
        conversation,
        turns=tuple(map(rename, conversation.turns)),
        variants=tuple(map(rename, conversation.variants)),
    )


async def _chunk_document(
    paged: PagedConversation, form: ExportFormat, *, public_id: str
) -> AsyncIterator[bytes]:
    if form == "json":
        pieces = _write_file(paged)
    else:
        pieces = _write_transcript(paged, form, public_id=public_id)
    pending: list[bytes] = []
    size = 0
    async for piece in pieces:
        pending.append(piece)
        size += len(piece)
        if size >= CHUNK_BYTES:
            yield b"".join(pending)
            pending, size = [], 0
            # Sending to a fast client does not let other tasks run.
            await asyncio.sleep(0)
    if pending:
        yield b"".join(pending)


async def _write_file(paged: PagedConversation) -> AsyncIterator[bytes]:
    conversation = _remove_system_messages(paged.conversation)
    writer = FileWriter(conversation)
    yield writer.start()
    history = [turn for turn in conversation.turns if turn.is_history]
    async for part in paged.iter_pages(history):
        yield await _write_in_thread(
            partial(_write_messages, conversation, part, writer.add_messages), part
        )
    yield writer.add_metadata()
    for turn in conversation.turns:
        whole = turn if turn.is_history else await _load_turn(paged, turn)
        yield writer.record("turns", whole)
    for turn in conversation.variants:
        yield writer.record("variants", await _load_turn(paged, turn))
    yield writer.add_prompt_original()
    async for part in paged.iter_pages(writer.turns_with_originals):
        yield await _write_in_thread(
            partial(_write_messages, conversation, part, writer.add_originals), part
        )
    yield writer.end()


def _write_messages(
    conversation: StoredConversation,
    part: Sequence[TurnMessages],
    write: Callable[[Turn, Sequence[Message]], bytes],
) -> bytes:
    return b"".join(write(run.turn, _exported_messages(conversation, run.messages)) for run in part)


async def _write_in_thread(write: partial[bytes], part: Sequence[TurnMessages]) -> bytes:
    sizes = [len(message.raw) for run in part for message in run.messages]
    return await run_in_thread_if_large(write, messages=len(sizes), size=sum(sizes))


async def _load_turn(paged: PagedConversation, turn: Turn) -> Turn:
    messages = [message async for run in paged.iter_messages((turn,)) for message in run.messages]
    return replace(turn, messages=_exported_messages(paged.conversation, messages))


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
    """Return the messages, without system messages if the conversation is dynamic."""
    is_dynamic = _is_dynamic(conversation)
    return tuple(one for one in messages if not is_dynamic or one.role != "system")


def _is_dynamic(conversation: StoredConversation) -> bool:
    record = conversation.system_record
    return record is not None and record.policy == "dynamic"


async def _write_transcript(
    paged: PagedConversation, form: Literal["markdown", "html"], *, public_id: str
) -> AsyncIterator[bytes]:
    conversation = paged.conversation
    head = transcript_of(conversation, shown_id=public_id)
    number = conversation.first_sequence
    is_page = form == "html"
    start = transcripts.start_html if is_page else transcripts.start_markdown
    add = transcripts.add_html if is_page else transcripts.add_markdown
    yield start(head).encode()
    async for part in paged.iter_pages(conversation.turns):
        yield await _write_in_thread(
            partial(_write_transcript_messages, part, add, first=number), part
        )
        number += sum(len(run.messages) for run in part)
    yield (transcripts.HTML_END if is_page else transcripts.MARKDOWN_END).encode()


def _write_transcript_messages(
    part: Sequence[TurnMessages], add: Callable[[TranscriptMessage], str], *, first: int
) -> bytes:
    texts: list[str] = []
    for run in part:
        texts += map(add, transcript_messages(run.turn, run.messages, first=first))
        first += len(run.messages)
    return "".join(texts).encode()

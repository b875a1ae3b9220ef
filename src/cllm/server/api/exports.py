"""A conversation out of the server as one document, and into it again.

The JSON form is the conversation file: what was exported can be imported, whole. The others are
for people. A dynamic conversation has no system prompt in any of them, and gets none by coming in.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from cllm.core.conversation import Conversation, SystemRecord, Turn, is_valid_id
from cllm.core.errors import BrokenConversationError
from cllm.core.message import Message
from cllm.engine.transfer import Outlined, Said, copy_into, open_outlined
from cllm.server.api.stores import place_of, shelf_named
from cllm.server.api.views import view_detail, view_messages
from cllm.server.http.limits import read_body
from cllm.server.http.parameters import ExportQuery, decode, read_query
from cllm.server.http.request_log import record_of
from cllm.server.http.responses import answer, aside
from cllm.server.serving import caller_of, serving_of
from cllm.wire.conversation_file import transcript as transcripts
from cllm.wire.conversation_file.codec import decode_conversation
from cllm.wire.conversation_file.pieces import FileWriter
from cllm.wire.conversation_file.transcript import POLICY, Speech, speeches_of, transcript_of
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


Form = Literal["json", "markdown", "html"]
PIECE = 64 * 1024
DYNAMIC = SystemRecord(policy="dynamic")


async def pieces_of(read: Outlined, form: Form, *, shown_id: str) -> AsyncIterator[bytes]:
    """The document, in pieces that are worth sending."""
    pieces = _file(read) if form == "json" else _transcript(read, form, shown_id=shown_id)
    waiting: list[bytes] = []
    size = 0
    async for piece in pieces:
        waiting.append(piece)
        size += len(piece)
        if size >= PIECE:
            yield b"".join(waiting)
            waiting, size = [], 0
            # Where a client takes all at once, nothing else here lets others have their turn.
            await asyncio.sleep(0)
    if waiting:
        yield b"".join(waiting)


async def _file(read: Outlined) -> AsyncIterator[bytes]:
    """A conversation file: messages first, then the records of turns, then what has no form."""
    conversation = without_system_messages(read.conversation)
    writer = FileWriter(conversation)
    yield writer.begin()
    history = [turn for turn in conversation.turns if turn.is_history]
    async for part in read.parts_of(history):
        yield await _written(partial(_each, conversation, part, writer.say), part)
    yield writer.describe()
    for turn in conversation.turns:
        whole = turn if turn.is_history else await _whole(read, turn)
        yield writer.record("turns", whole)
    for turn in conversation.variants:
        yield writer.record("variants", await _whole(read, turn))
    yield writer.prompt_beside()
    async for part in read.parts_of(writer.kept_beside):
        yield await _written(partial(_each, conversation, part, writer.beside), part)
    yield writer.end()


def _each(
    conversation: Conversation,
    part: Sequence[Said],
    write: Callable[[Turn, Sequence[Message]], bytes],
) -> bytes:
    return b"".join(write(said.turn, _kept(conversation, said.messages)) for said in part)


async def _written(write: partial[bytes], part: Sequence[Said]) -> bytes:
    sizes = [len(message.raw) for said in part for message in said.messages]
    return await aside(write, messages=len(sizes), size=sum(sizes))


async def _whole(read: Outlined, turn: Turn) -> Turn:
    """The turn with its messages."""
    messages = [message async for said in read.said_in((turn,)) for message in said.messages]
    return msgspec.structs.replace(turn, messages=_kept(read.conversation, messages))


def without_system_messages(conversation: Conversation) -> Conversation:
    """A dynamic conversation with nothing in it that is a system message; another as it is."""
    if not _is_dynamic(conversation):
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


def _kept(conversation: Conversation, messages: Sequence[Message]) -> tuple[Message, ...]:
    """The messages; of a dynamic conversation those that are no system messages."""
    if not _is_dynamic(conversation):
        return tuple(messages)
    return tuple(message for message in messages if message.role != "system")


def _is_dynamic(conversation: Conversation) -> bool:
    record = conversation.system_record
    return record is not None and record.policy == "dynamic"


async def _transcript(
    read: Outlined, form: Literal["markdown", "html"], *, shown_id: str
) -> AsyncIterator[bytes]:
    """A document for people."""
    conversation = read.conversation
    head = transcript_of(conversation, shown_id=shown_id)
    number = conversation.first_sequence
    is_page = form == "html"
    begin = transcripts.begin_html if is_page else transcripts.begin_markdown
    add = transcripts.add_html if is_page else transcripts.add_markdown
    yield begin(head).encode()
    async for part in read.parts_of(conversation.turns):
        yield await _written(partial(_shown, part, add, first=number), part)
        number += sum(len(said.messages) for said in part)
    yield (transcripts.HTML_END if is_page else transcripts.MARKDOWN_END).encode()


def _shown(part: Sequence[Said], add: Callable[[Speech], str], *, first: int) -> bytes:
    shown: list[str] = []
    for said in part:
        shown += map(add, speeches_of(said.turn, said.messages, first=first))
        first += len(said.messages)
    return "".join(shown).encode()

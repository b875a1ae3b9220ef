"""A conversation as one document, piece by piece: read, written and forgotten.

The pieces are about as long as what is read at once, whatever the length of the conversation. What
a document looks like is the codecs' business.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Literal

import msgspec

from cllm.core.conversation import Conversation, SystemRecord, Turn
from cllm.core.message import Message
from cllm.engine.outlined import Outlined, Said
from cllm.server.answering import aside
from cllm.wire.conversation_file import transcript_html, transcript_markdown
from cllm.wire.conversation_file.pieces import FileWriter
from cllm.wire.conversation_file.transcript import Speech, speeches_of, transcript_of

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
    begin = transcript_html.begin_html if is_page else transcript_markdown.begin_markdown
    add = transcript_html.add_html if is_page else transcript_markdown.add_markdown
    yield begin(head).encode()
    async for part in read.parts_of(conversation.turns):
        yield await _written(partial(_shown, part, add, first=number), part)
        number += sum(len(said.messages) for said in part)
    yield (transcript_html.END if is_page else transcript_markdown.END).encode()


def _shown(part: Sequence[Said], add: Callable[[Speech], str], *, first: int) -> bytes:
    shown: list[str] = []
    for said in part:
        shown += map(add, speeches_of(said.turn, said.messages, first=first))
        first += len(said.messages)
    return "".join(shown).encode()

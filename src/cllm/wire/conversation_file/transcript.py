"""A conversation to be read: who said what, in blocks that any format for people can show.

A reading copy: thinking, calls and files are told in words. The system prompt is in it only where
the conversation keeps one. Pure.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import assert_never

import msgspec

from cllm.core.conversation import Conversation, Turn
from cllm.core.message import (
    AnyPart,
    Document,
    Image,
    Message,
    RedactedThinking,
    Refusal,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Unknown,
)
from cllm.wire.malformed import MalformedError
from cllm.wire.translate import parts_of

SPEAKERS = {"system": "System", "user": "User", "assistant": "Assistant", "tool": "Tool"}


class Prose(msgspec.Struct, frozen=True, tag="prose"):
    """Text as it was said."""

    text: str


class Aside(msgspec.Struct, frozen=True, tag="aside"):
    """Something beside what was said, in words of ours or the model's thinking."""

    label: str
    text: str = ""


class Verbatim(msgspec.Struct, frozen=True, tag="verbatim"):
    """Text for programs: arguments of a call, or what a tool gave."""

    label: str
    text: str


Block = Prose | Aside | Verbatim


class Speech(msgspec.Struct, frozen=True, kw_only=True):
    """One message: its speaker, its number if it has one, what became of its turn."""

    speaker: str
    blocks: tuple[Block, ...]
    number: int | None = None
    remark: str | None = None


class Transcript(msgspec.Struct, frozen=True, kw_only=True):
    """A whole conversation."""

    title: str
    id: str
    model: str | None
    created_at: datetime
    updated_at: datetime
    speeches: tuple[Speech, ...]


def transcript_of(conversation: Conversation, *, shown_id: str | None = None) -> Transcript:
    """The default path, for people; `shown_id` is the id under which they know it."""
    return Transcript(
        title=conversation.title or "Conversation",
        id=shown_id or conversation.id,
        model=conversation.model,
        created_at=conversation.created_at,
        updated_at=conversation.updated_at,
        speeches=(*_prompt(conversation), *_said(conversation)),
    )


def _prompt(conversation: Conversation) -> Iterator[Speech]:
    record = conversation.system_record
    kept = conversation.kept_prompt
    if kept is not None and (record is None or record.policy != "dynamic"):
        source = None if record is None else record.source
        remark = None if record is None or not source else f"{record.policy}, from {source}"
        yield Speech(speaker=SPEAKERS["system"], blocks=(Prose(kept.text),), remark=remark)


def _said(conversation: Conversation) -> Iterator[Speech]:
    number = conversation.first_sequence
    for turn in conversation.turns:
        yield from speeches_of(turn, turn.messages, first=number)
        number += len(turn.messages)


def speeches_of(turn: Turn, messages: Sequence[Message], *, first: int) -> Iterator[Speech]:
    """What was said in messages of a turn that follow one another; the first has that number."""
    for number, message in enumerate(messages, first):
        if message.role == "system":
            continue
        yield Speech(
            speaker=SPEAKERS[message.role],
            blocks=tuple(_blocks(message)),
            number=number,
            remark=_remark(turn),
        )


def _remark(turn: Turn) -> str | None:
    return None if turn.state == "complete" else turn.state


def _blocks(message: Message) -> Iterator[Block]:
    try:
        parts = parts_of(message)
    except MalformedError:
        yield Verbatim("message", message.raw.decode("utf-8", "replace"))
        return
    for part in parts:
        yield from _block(part)


def _block(part: AnyPart) -> Iterator[Block]:
    match part:
        case Text(text=text) | Refusal(text=text):
            yield Prose(text)
        case Thinking(text=text):
            yield Aside("thinking", text)
        case RedactedThinking():
            yield Aside("thinking that is sealed")
        case ToolCall(name=name, arguments=arguments):
            yield Verbatim(f"calls {name}", arguments)
        case ToolResult(is_error=is_error):
            yield from _result(part, "gives an error" if is_error else "gives")
        case Image(media_type=kind):
            yield Aside(f"image ({kind})" if kind else "image")
        case Document(name=name, media_type=kind):
            yield Aside(f"document {name or kind or ''}".strip())
        case Unknown():
            yield Aside("something that has no words here")
        case other:
            assert_never(other)


def _result(result: ToolResult, label: str) -> Iterator[Block]:
    texts = [part.text for part in result.content if isinstance(part, Text)]
    yield Verbatim(label, "\n".join(texts))
    for part in result.content:
        if not isinstance(part, Text):
            yield from _block(part)

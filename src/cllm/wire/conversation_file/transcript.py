"""Exports conversations as Markdown, or as an HTML page without scripts and external resources."""

import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from html import escape
from typing import assert_never

import msgspec

from cllm.core.conversation import StoredConversation, Turn
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
from cllm.wire.convert import parts_of
from cllm.wire.errors import MalformedError

ROLE_NAMES = {"system": "System", "user": "User", "assistant": "Assistant", "tool": "Tool"}
POLICY = "default-src 'none'; style-src 'unsafe-inline'"
STYLE = """
body { margin: 2rem auto; max-width: 48rem; padding: 0 1rem; font: 1rem/1.5 system-ui, sans-serif;
  color: #1a1a1a; background: #fff; }
h2 { font-size: 1rem; margin: 2rem 0 .25rem; border-bottom: 1px solid #ccc; }
p, pre { white-space: pre-wrap; overflow-wrap: anywhere; margin: .5rem 0; }
pre { background: #f3f3f3; padding: .75rem; }
blockquote { margin: .5rem 0; padding-left: 1rem; border-left: 3px solid #ccc; color: #555; }
.label { color: #555; font-size: .875rem; }
@media (prefers-color-scheme: dark) { body { color: #e8e8e8; background: #161616; }
  pre { background: #242424; } blockquote, .label { color: #aaa; } }
"""
HTML_END = "\n</body>\n</html>\n"
BACKTICKS = re.compile(r"`+")
MIN_FENCE_LENGTH = 3
MARKDOWN_END = "\n"


class TextBlock(msgspec.Struct, frozen=True, tag="prose"):
    text: str


class NoteBlock(msgspec.Struct, frozen=True, tag="aside"):
    """A label of cllm, or the model's thinking."""

    label: str
    text: str = ""


class CodeBlock(msgspec.Struct, frozen=True, tag="verbatim"):
    label: str
    text: str


Block = TextBlock | NoteBlock | CodeBlock


class TranscriptMessage(msgspec.Struct, frozen=True, kw_only=True):
    """One message; `remark` is the state of an incomplete turn."""

    role_name: str
    blocks: tuple[Block, ...]
    number: int | None = None
    remark: str | None = None

    @property
    def heading(self) -> str:
        number = "" if self.number is None else f" {self.number}"
        remark = "" if self.remark is None else f" ({self.remark})"
        return f"{self.role_name}{number}{remark}"


class Transcript(msgspec.Struct, frozen=True, kw_only=True):
    title: str
    id: str
    model: str | None
    created_at: datetime
    updated_at: datetime
    messages: tuple[TranscriptMessage, ...]

    @property
    def facts(self) -> str:
        moment = f"{self.created_at:%Y-%m-%d %H:%M} UTC"
        return " · ".join(filter(None, (self.id, self.model, moment)))


def transcript_of(conversation: StoredConversation, *, shown_id: str | None = None) -> Transcript:
    """Return the default path as a transcript; `shown_id` is the id that users see."""
    return Transcript(
        title=conversation.title or "Conversation",
        id=shown_id or conversation.id,
        model=conversation.model,
        created_at=conversation.created_at,
        updated_at=conversation.updated_at,
        messages=(*_system_prompt(conversation), *_turn_messages(conversation)),
    )


def _system_prompt(conversation: StoredConversation) -> Iterator[TranscriptMessage]:
    record = conversation.system_record
    prompt = conversation.kept_prompt
    if prompt is not None and (record is None or record.policy != "dynamic"):
        source = None if record is None else record.source
        remark = None if record is None or not source else f"{record.policy}, from {source}"
        yield TranscriptMessage(
            role_name=ROLE_NAMES["system"], blocks=(TextBlock(prompt.text),), remark=remark
        )


def _turn_messages(conversation: StoredConversation) -> Iterator[TranscriptMessage]:
    number = conversation.first_sequence
    for turn in conversation.turns:
        yield from transcript_messages(turn, turn.messages, first=number)
        number += len(turn.messages)


def transcript_messages(
    turn: Turn, messages: Sequence[Message], *, first: int
) -> Iterator[TranscriptMessage]:
    """Yield consecutive messages of a turn, numbered from `first`."""
    for number, message in enumerate(messages, first):
        if message.role == "system":
            continue
        yield TranscriptMessage(
            role_name=ROLE_NAMES[message.role],
            blocks=tuple(_blocks(message)),
            number=number,
            remark=None if turn.state == "complete" else turn.state,
        )


def _blocks(message: Message) -> Iterator[Block]:
    try:
        parts = parts_of(message)
    except MalformedError:
        yield CodeBlock("message", message.raw.decode("utf-8", "replace"))
        return
    for part in parts:
        yield from _block(part)


def _block(part: AnyPart) -> Iterator[Block]:
    match part:
        case Text(text=text) | Refusal(text=text):
            yield TextBlock(text)
        case Thinking(text=text):
            yield NoteBlock("thinking", text)
        case RedactedThinking():
            yield NoteBlock("encrypted thinking")
        case ToolCall(name=name, arguments=arguments):
            yield CodeBlock(f"tool call: {name}", arguments)
        case ToolResult(is_error=is_error):
            yield from _result(part, "tool error" if is_error else "tool result")
        case Image(media_type=kind):
            yield NoteBlock(f"image ({kind})" if kind else "image")
        case Document(name=name, media_type=kind):
            yield NoteBlock(f"document {name or kind or ''}".strip())
        case Unknown():
            yield NoteBlock("content that cannot be shown")
        case other:
            assert_never(other)


def _result(result: ToolResult, label: str) -> Iterator[Block]:
    texts = [part.text for part in result.content if isinstance(part, Text)]
    yield CodeBlock(label, "\n".join(texts))
    for part in result.content:
        if not isinstance(part, Text):
            yield from _block(part)


def start_html(transcript: Transcript) -> str:
    """Return the page up to its last message; more messages can follow."""
    title = escape(transcript.title)
    messages = "".join(map(add_html, transcript.messages))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        f'<h1>{title}</h1>\n<p class="label">{escape(transcript.facts)}</p>'
        f"{messages}"
    )


def add_html(message: TranscriptMessage) -> str:
    lines = (f"<h2>{escape(message.heading)}</h2>", *map(_html_block, message.blocks))
    return "".join(f"\n{line}" for line in lines)


def _html_block(block: Block) -> str:
    match block:
        case TextBlock(text):
            return f"<p>{escape(text)}</p>"
        case NoteBlock(label, ""):
            return _label(label)
        case NoteBlock(label, text):
            return f"{_label(label)}\n<blockquote><p>{escape(text)}</p></blockquote>"
        case CodeBlock(label, text):
            return f"{_label(label)}\n<pre>{escape(text)}</pre>"
        case other:
            assert_never(other)


def _label(label: str) -> str:
    return f'<p class="label">{escape(label)}</p>'


def encode_markdown(transcript: Transcript) -> str:
    return start_markdown(transcript) + MARKDOWN_END


def start_markdown(transcript: Transcript) -> str:
    """Return the file up to its last message; more messages can follow."""
    title = f"# {' '.join(transcript.title.split())}\n\n{transcript.facts}"
    return title + "".join(map(add_markdown, transcript.messages))


def add_markdown(message: TranscriptMessage) -> str:
    sections = (f"## {message.heading}", *map(_markdown_block, message.blocks))
    return "".join(f"\n\n{section}" for section in sections)


def _markdown_block(block: Block) -> str:
    match block:
        case TextBlock(text):
            return text
        case NoteBlock(label, ""):
            return f"*{label}*"
        case NoteBlock(label, text):
            quoted = "\n".join(f"> {line}".rstrip() for line in text.splitlines())
            return f"*{label}*\n\n{quoted}"
        case CodeBlock(label, text):
            fence = "`" * _fence_length(text)
            return f"*{label}*\n\n{fence}\n{text}\n{fence}"
        case other:
            assert_never(other)


def _fence_length(text: str) -> int:
    """Return a length greater than every run of backticks in the text."""
    runs = (len(match[0]) for match in BACKTICKS.finditer(text))
    return max(MIN_FENCE_LENGTH, 1 + max(runs, default=0))

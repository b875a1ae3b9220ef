"""The messages of a request as blocks of Converse's, each fit to be sent.

Cleaning makes of every part one that Converse has words for; whether the messages may stand as they
do is not looked at here. Only what is sent is changed, and every change is told.
"""

from collections.abc import Iterator, Sequence

import msgspec

from cllm.core.message import (
    AnyPart,
    CacheMark,
    Document,
    RedactedThinking,
    Role,
    Text,
    Thinking,
)
from cllm.wire.bedrock_blocks import Block, encode_blocks, encode_mark
from cllm.wire.bedrock_clean import Cleaner, is_plain_text
from cllm.wire.spoken import Spoken, check_still_asks, rewritten

ATTACHED = "(document attached)"


class Sent(msgspec.Struct, kw_only=True):
    """A message as it is sent: its blocks, and its own bytes if they say the same."""

    role: Role
    blocks: list[Block]
    raw: bytes | None = None


def clean_history(messages: Sequence[Spoken], cleaner: Cleaner) -> Iterator[Spoken]:
    """The messages in words that Converse has; system messages are not among them."""
    for number, spoken in enumerate(messages, start=1):
        if spoken.role != "system":
            cleaned = clean_message(spoken, f"messages[{spoken.place}]", cleaner)
            if number == len(messages):
                check_still_asks(spoken, cleaned, "Bedrock")
            yield cleaned


def clean_message(spoken: Spoken, path: str, cleaner: Cleaner) -> Spoken:
    """The message in parts that Converse takes; the same one if it is in such."""
    if len(spoken.parts) == 1 and is_plain_text(spoken.parts[0]):
        return spoken
    parts: list[AnyPart] = []
    same = True
    own = spoken.is_own("bedrock")
    for part in spoken.parts:
        kept = cleaner.clean(part, role=spoken.role, path=path, own=own)
        same = same and kept is part
        if kept is not None:
            parts.append(kept)
        elif part.cache is not None and parts and _can_be_marked(parts[-1]):
            mark = cleaner.clean_mark(part.cache, path)
            parts[-1] = msgspec.structs.replace(parts[-1], cache=mark)
    return spoken if same else rewritten(spoken, parts)


def _can_be_marked(part: AnyPart) -> bool:
    return part.cache is None and not isinstance(part, Thinking | RedactedThinking)


def encode_message(spoken: Spoken) -> Sent:
    """A message as it is sent."""
    role: Role = "assistant" if spoken.role == "assistant" else "user"
    if Document in map(type, spoken.parts):
        return _encode_documents(role, spoken.parts, spoken.raw)
    blocks: list[Block] = []
    for part in spoken.parts:
        blocks += encode_blocks(part)
    return Sent(role=role, blocks=blocks, raw=spoken.raw)


def _encode_documents(role: Role, parts: Sequence[AnyPart], raw: bytes | None) -> Sent:
    """The same with documents: a text beside them, and no cache point directly after one."""
    blocks: list[Block] = []
    waiting: CacheMark | None = None
    for part in parts:
        if isinstance(part, Document):
            waiting = part.cache or waiting
            blocks += encode_blocks(msgspec.structs.replace(part, cache=None))
            raw = raw if part.cache is None else None
            continue
        blocks += encode_blocks(part)
        if waiting is not None and _can_be_marked(part):
            blocks.append(encode_mark(waiting))
        waiting = waiting if isinstance(part, Thinking | RedactedThinking) else None
    # A text with citations is a text to everybody but Converse.
    if waiting is not None or not any(isinstance(p, Text) and not p.extra for p in parts):
        blocks.append({"text": ATTACHED})
        raw = None
    if waiting is not None:
        blocks.append(encode_mark(waiting))
    return Sent(role=role, blocks=blocks, raw=raw)

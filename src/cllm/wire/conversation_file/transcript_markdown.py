"""A transcript as Markdown, for reading and for pasting elsewhere. Pure; nothing reads it back."""

import re
from collections.abc import Iterator
from typing import assert_never

from cllm.wire.conversation_file.transcript import Aside, Block, Prose, Speech, Transcript, Verbatim

BACKTICKS = re.compile(r"`+")
SHORTEST_FENCE = 3


END = "\n"
"""What a file ends with."""


def encode_markdown(transcript: Transcript) -> str:
    """The text of a file."""
    return begin_markdown(transcript) + END


def begin_markdown(transcript: Transcript) -> str:
    """The text of a file up to where more of what was said can follow."""
    facts = [transcript.id, *([transcript.model] if transcript.model else [])]
    facts.append(f"{transcript.created_at:%Y-%m-%d %H:%M} UTC")
    title = f"# {' '.join(transcript.title.split())}\n\n{' · '.join(facts)}"
    return title + "".join(map(add_markdown, transcript.speeches))


def add_markdown(speech: Speech) -> str:
    """What follows for one message more."""
    return "".join(f"\n\n{section}" for section in _sections(speech))


def _sections(speech: Speech) -> Iterator[str]:
    yield _heading(speech)
    yield from map(_block, speech.blocks)


def _heading(speech: Speech) -> str:
    number = "" if speech.number is None else f" {speech.number}"
    remark = "" if speech.remark is None else f" ({speech.remark})"
    return f"## {speech.speaker}{number}{remark}"


def _block(block: Block) -> str:
    match block:
        case Prose(text):
            return text
        case Aside(label, ""):
            return f"*{label}*"
        case Aside(label, text):
            quoted = "\n".join(f"> {line}".rstrip() for line in text.splitlines())
            return f"*{label}*\n\n{quoted}"
        case Verbatim(label, text):
            fence = "`" * _fence_length(text)
            return f"*{label}*\n\n{fence}\n{text}\n{fence}"
        case other:
            assert_never(other)


def _fence_length(text: str) -> int:
    """Longer than any run of backticks inside, so that none of them ends it."""
    runs = (len(found[0]) for found in BACKTICKS.finditer(text))
    return max(SHORTEST_FENCE, 1 + max(runs, default=0))

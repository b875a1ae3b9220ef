"""A conversation as text to read: its end on the screen, or all of it as Markdown."""

from collections.abc import Iterator

from cllm.core.conversation import Conversation
from cllm.terminal import escape, one_line

TAIL_TURNS = 3
TAIL_LINES = 12
SPEAKERS = {"user": "You", "assistant": "Model", "tool": "Tool", "system": "System"}


def tail_lines(conversation: Conversation) -> Iterator[str]:
    """The last turns with the numbers of their messages, long ones by their last lines."""
    title = f" · {one_line(conversation.title)}" if conversation.title else ""
    yield f"{conversation.id}{title}"
    turns = conversation.turns[-TAIL_TURNS:]
    left = len(conversation.turns) - len(turns)
    if left:
        yield f"({left} earlier turn{'' if left == 1 else 's'})"
    number = conversation.message_count - sum(len(turn.messages) for turn in turns)
    for turn in turns:
        for message in turn.messages:
            number += 1
            if message.text and message.role in ("user", "assistant"):
                yield ""
                said = f"{SPEAKERS[message.role]}: {escape(message.text)}"
                yield from _shortened(f"[{number}] {said}")
        if turn.state != "complete":
            yield f"({turn.state})"
    yield ""


def _shortened(text: str) -> Iterator[str]:
    lines = text.rstrip().split("\n")
    if len(lines) > TAIL_LINES:
        yield lines[0]
        yield f"  … {len(lines) - TAIL_LINES} lines …"
        lines = lines[1 - TAIL_LINES :]
    yield from lines


def as_markdown(conversation: Conversation) -> str:
    """All of it: title, system prompt and messages, each under who said it."""
    said = (
        f"## {SPEAKERS[message.role]}\n\n{message.text.strip()}"
        for message in conversation.messages
        if message.text
    )
    head = [f"# {one_line(conversation.title or conversation.id)}", *_pinned(conversation)]
    return "\n\n".join([*head, *said]) + "\n"


def _pinned(conversation: Conversation) -> Iterator[str]:
    """The system prompt of a conversation that keeps it beside its messages."""
    record = conversation.system_record
    if record is not None and record.prompt is not None:
        source = f", from {one_line(record.source)}" if record.source else ""
        yield f"## {SPEAKERS['system']} (pinned{source})\n\n{record.prompt.strip()}"

"""`cllm conversations show`."""

from collections.abc import Iterator

import click

from cllm.cli import completion, output
from cllm.cli.inputs import HelpCommand, store_options
from cllm.cli.trust import open_app
from cllm.core.conversation import StoredConversation
from cllm.core.message import Document, Image, Message
from cllm.history.system_prompt import find_prompt_difference
from cllm.settings.load import CommandLine
from cllm.terminal import local_time, one_line
from cllm.wire.errors import MalformedError


@click.command(
    cls=HelpCommand,
    name="show",
    help="Print a conversation.",
    examples=("cllm conversations show cats",),
)
@completion.ref_argument
@store_options
def command(line: CommandLine, *, ref: str) -> None:
    print_conversation(line, ref)


def print_conversation(line: CommandLine, ref: str) -> None:
    app = open_app(line)
    conversation = app.run(app.store.load(ref))
    output.print_line(f"Conversation: {conversation.ref}")
    output.print_line(f"Model: {conversation.model or '-'}")
    output.print_line(f"System prompt: {_system_text(conversation)}")
    output.print_line(f"Created: {local_time(conversation.created_at)}")
    output.print_line(f"Updated: {local_time(conversation.updated_at)}")
    output.print_line(f"Tokens used: {conversation.total_tokens}")
    prompt = conversation.kept_prompt
    if prompt is not None:
        _show_message("[system]", prompt.text)
    for number, turn, message in conversation.numbered_messages():
        state = "" if turn.state == "complete" else f" ({turn.state})"
        head = f"{number} [{message.role}]{state}"
        _show_message(head, "\n".join(_message_lines(message)))
    notice = find_prompt_difference(conversation, app.settings.system)
    if notice is not None:
        output.warn(notice)


def _system_text(conversation: StoredConversation) -> str:
    record = conversation.system_record
    if record is None:
        return "stored, source not recorded" if conversation.system else "not recorded"
    if record.policy != "dynamic" and conversation.kept_prompt is None:
        return "none (none was configured when the conversation started)"
    return f"{record.policy}, from {record.source}" if record.source else record.policy


def _message_lines(message: Message) -> Iterator[str]:
    """The text of a message and one line per image or file in it."""
    from cllm.wire.convert import find_media

    if message.text:
        yield message.text
    try:
        media = tuple(find_media(message))
    except MalformedError:
        media = ()
    for part in media:
        yield one_line(_media_text(part))


def _media_text(part: Image | Document) -> str:
    kind = "image" if isinstance(part, Image) else "file"
    name = part.name if isinstance(part, Document) else None
    if part.data is None:
        at_provider = part.file_id if isinstance(part, Document) else None
        return f"[{kind}: {name or part.url or at_provider or 'no name'}]"
    size = len(part.data) * 3 // 4 - part.data[-2:].count("=")
    return f"[{kind}: {name or part.media_type}, {size:,} bytes]"


def _show_message(head: str, text: str) -> None:
    output.print_line("")
    output.print_line(head)
    printer = output.AnswerPrinter()
    printer.write(text or "(no text)")
    printer.end()

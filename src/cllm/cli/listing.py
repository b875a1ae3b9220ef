"""Listing, showing and deleting conversations, and listing models. Reading waits for nobody."""

import sys
from collections.abc import Iterator

from cllm.app import App, conversation_called, new_conversation_id, new_id, now
from cllm.assembly.system import GivenPrompt, difference, recapture
from cllm.cli import printing
from cllm.cli.inputs import here
from cllm.cli.trust import trusted_settings
from cllm.core.conversation import Conversation, Summary
from cllm.core.message import Document, Image, Message
from cllm.engine import run
from cllm.providers.registry import LOCAL, ROWS
from cllm.settings.load import CommandLine
from cllm.terminal import one_line
from cllm.wire.malformed import MalformedError

ADVICE = "list them with: cllm --list-conversations --store"


def open_app(line: CommandLine) -> App:
    return App(trusted_settings(here(), line))


def list_conversations(line: CommandLine) -> None:
    """A line for each conversation, newest first."""
    app = open_app(line)
    page = app.run(app.store.list_conversations(limit=sys.maxsize))
    for notice in page.notices:
        printing.warn(notice)
    for summary in page.items:
        printing.print_line(_summary_line(summary))
    if not page.items:
        from cllm.repl.status import empty_list_lines  # noqa: PLC0415 - rarely needed

        others = run(app.other_histories())
        for text in empty_list_lines(app.settings.store, others, advice=ADVICE):
            printing.note(text)
        printing.note('Start one with: cllm "Hello" --conversation ID')


def _summary_line(summary: Summary) -> str:
    try:
        when = summary.updated_at.astimezone().strftime("%Y-%m-%d %H:%M")
    except (OverflowError, ValueError):
        when = summary.updated_at.isoformat()
    count = f"{summary.message_count} message{'' if summary.message_count == 1 else 's'}"
    line = f"{summary.ref}  {when}  {count}  {summary.model or '-'}  {summary.title or ''}"
    return line.rstrip()


def show_conversation(line: CommandLine, ref: str) -> None:
    """The conversation as text: who said what, in order."""
    app = open_app(line)
    conversation = app.run(app.store.load(ref))
    show(conversation)
    notice = difference(conversation, app.settings.system)
    if notice is not None:
        printing.warn(notice)


def show(conversation: Conversation) -> None:
    printing.print_line(f"Conversation: {conversation.ref}")
    printing.print_line(f"Model: {conversation.model or '-'}")
    printing.print_line(f"System prompt: {_about_system(conversation)}")
    printing.print_line(f"Created: {conversation.created_at.isoformat()}")
    printing.print_line(f"Updated: {conversation.updated_at.isoformat()}")
    printing.print_line(f"Tokens: {conversation.total_tokens}")
    prompt = conversation.kept_prompt
    if prompt is not None:
        _show_message("system", prompt.text, "")
    for _, turn, message in conversation.numbered_messages():
        state = "" if turn.state == "complete" else f" ({turn.state})"
        _show_message(message.role, "\n".join(_said(message)), state)


def _about_system(conversation: Conversation) -> str:
    record = conversation.system_record
    if record is None:
        return "stored, source not recorded" if conversation.system else "not recorded"
    if record.policy != "dynamic" and conversation.kept_prompt is None:
        return f"{record.policy}: none was configured"
    return f"{record.policy}, from {record.source}" if record.source else record.policy


def _said(message: Message) -> Iterator[str]:
    """The text of a message, and a line for each image or file in it."""
    from cllm.wire.media import media_in  # noqa: PLC0415 - listing does without

    if message.text:
        yield message.text
    try:
        media = tuple(media_in(message))
    except MalformedError:
        media = ()
    for part in media:
        yield one_line(_placeholder(part))


def _placeholder(part: Image | Document) -> str:
    kind = "image" if isinstance(part, Image) else "file"
    name = part.name if isinstance(part, Document) else None
    if part.data is None:
        at_provider = part.file_id if isinstance(part, Document) else None
        return f"[{kind}: {name or part.url or at_provider or 'without a name'}]"
    size = len(part.data) * 3 // 4 - part.data[-2:].count("=")
    return f"[{kind}: {name or part.media_type}, {size:,} bytes]"


def _show_message(role: str, text: str, state: str) -> None:
    printing.print_line("")
    printing.print_line(f"[{role}]{state}")
    printer = printing.AnswerPrinter()
    printer.write(text or "(no text)")
    printer.end()


def delete_conversation(line: CommandLine, ref: str) -> None:
    """Delete it, and what the local model had computed of it."""
    app = open_app(line)
    run(app.store.delete(ref))
    app.forget(ref)
    printing.print_line(f"Deleted conversation '{ref}'.")


def branch_conversation(
    line: CommandLine, ref: str, *, new: str | None, at: int | None, given: GivenPrompt | None
) -> None:
    """Branch it, under another system prompt if one is given; print the branch's id."""
    app = open_app(line)
    made = conversation_called(new or new_conversation_id(now(), new_id()))
    opening = None
    if given is not None:
        parent = app.run(app.store.load(ref, tail=0))
        opening = recapture(parent, given, now=now())
    branch = run(app.store.branch(ref, made, at=at, opening=opening))
    printing.print_line(branch.ref)


def list_models(line: CommandLine) -> None:
    """The models that are named somewhere, and the providers that can be named."""
    from cllm.providers.local.models import list_models as local_models  # noqa: PLC0415

    app = open_app(line)
    for model in local_models(app.cache_paths):
        later = "" if model.fetched else "  (fetched on first use)"
        printing.print_line(f"{LOCAL}/{model.name}{later}")
    for name, row in sorted(app.settings.providers.items()):
        for listed in row.models:
            printing.print_line(f"{name}/{listed}")
    for name in sorted(ROWS):
        printing.print_line(f"{name}/...")

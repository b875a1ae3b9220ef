"""`cllm conversations show`: a conversation, or the prompt that a turn sent."""

from collections.abc import Iterator
from typing import Any

import click

from cllm.app import App
from cllm.cli import completion, output
from cllm.cli.inputs import HelpCommand, OptionError, json_option, store_options
from cllm.cli.trust import open_app
from cllm.core.conversation import StoredConversation, Turn, find_turn
from cllm.core.errors import SequenceNotFoundError, TurnNotFoundError, UsageError
from cllm.core.message import Document, Image, Message
from cllm.history.system_prompt import NO_PROMPT, find_prompt_difference
from cllm.settings.load import CommandLine
from cllm.terminal import error_line, local_time, one_line, pluralize
from cllm.wire.errors import MalformedError

HELP = """Print a conversation, or the prompt of a turn.

On a terminal, messages are rendered as Markdown. --json prints the conversation file.

--as-sent prints the prompt that a turn sent: the system prompt, the context, the summary and the
messages in its window, and which messages were left out and why. TURN is the number of a message of
the turn, or the turn's ID; the default is the last turn."""
EXAMPLES = (
    "cllm conversations show cats",
    "cllm conversations show cats --json",
    "cllm conversations show cats --as-sent",
)
LAST_TURN = "\0last"
KINDS = {
    "system": "system prompt",
    "template": "chat template of the model",
    "context": "context",
    "summary": "summary",
    "history": "message",
    "request": "new message",
}
UNKNOWN_PROMPT = "system prompt: not stored (each request sends its own)"
UNRECORDED_PROMPT = "system prompt: not stored (the configured one is used and not saved)"
REASONS = {
    "window": "before the start of the window",
    "summary": "replaced by the summary",
    "failed": "the turn failed",
}


@click.command(cls=HelpCommand, name="show", help=HELP, examples=EXAMPLES)
@completion.optional_ref_argument
@click.option(
    "--as-sent",
    is_flag=False,
    flag_value=LAST_TURN,
    default=None,
    metavar="[TURN]",
    help="Print the prompt that a turn sent (default: the last turn).",
)
@json_option
@store_options
def command(line: CommandLine, *, ref: str | None, as_sent: str | None, as_json: bool) -> None:
    if ref is None and as_sent not in (None, LAST_TURN):
        # `show --as-sent cats`: the value is the ID.
        ref, as_sent = as_sent, LAST_TURN
    if ref is None:
        raise OptionError("show needs the ID of a conversation: cllm conversations show ID")
    if as_sent is not None:
        app = open_app(line)
        app.run(_print_prompt(app, ref, as_sent, as_json=as_json))
    elif as_json:
        from cllm.wire.conversation_file.codec import encode_conversation

        app = open_app(line)
        output.print_exactly(encode_conversation(app.run(app.store.load(ref))).decode().rstrip())
    else:
        print_conversation(line, ref)


def print_conversation(line: CommandLine, ref: str) -> None:
    app = open_app(line)
    conversation = app.run(app.store.load(ref))
    for text in head_lines(conversation):
        output.print_line(text)
    prompt = conversation.kept_prompt
    if prompt is not None:
        _show_message("[system]", prompt.text)
    for number, turn, message in conversation.numbered_messages():
        state = "" if turn.state == "complete" else f" ({turn.state})"
        pinned = " (pinned)" if number in conversation.pins else ""
        head = f"{number} [{message.role}]{state}{pinned}"
        _show_message(head, "\n".join(_message_lines(message)))
        if turn.state == "failed" and turn.failure and message is turn.messages[-1]:
            output.print_line(error_line(turn.failure.message))
    notice = find_prompt_difference(conversation, app.settings.system)
    if notice is not None:
        output.warn(notice)


def head_lines(conversation: StoredConversation) -> Iterator[str]:
    yield f"Conversation: {conversation.ref}"
    if conversation.title:
        yield f"Title: {conversation.title}"
    yield f"Model: {conversation.model or '-'}"
    yield f"System prompt: {_system_text(conversation)}"
    yield f"Created: {local_time(conversation.created_at)}"
    yield f"Updated: {local_time(conversation.updated_at)}"
    if conversation.archived_at is not None:
        yield f"Archived: {local_time(conversation.archived_at)}"
    if conversation.source is not None:
        yield f"Source: {conversation.source}"
    parent = conversation.parent
    if parent is not None:
        yield f"Parent: {parent.conversation}, message {parent.sequence} ({parent.kind})"
    if conversation.variants:
        yield f"Variants: {len(conversation.variants)} (cllm conversations tree prints them)"
    yield f"Tokens used: {conversation.total_tokens}"


def _system_text(conversation: StoredConversation) -> str:
    record = conversation.system_record
    if record is None:
        return "stored, source not recorded" if conversation.system else "not recorded"
    if record.policy == "dynamic":
        return "dynamic (each request sends its own; none is stored)"
    if conversation.kept_prompt is None:
        return "none (none was configured when the conversation started)"
    if record.source == NO_PROMPT:
        return f"{record.policy}, only the output of the context commands"
    return f"{record.policy}, from {record.source}" if record.source else record.policy


def _message_lines(message: Message) -> Iterator[str]:
    """Yield the text of a message and one line per tool call, image or file in it."""
    from cllm.wire.convert import find_calls, find_media

    if message.text:
        yield message.text
    try:
        calls, media = tuple(find_calls(message)), tuple(find_media(message))
    except MalformedError:
        return
    for call in calls:
        yield one_line(f"[call: {call.name} {call.arguments}]")
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
    output.print_styled(output.style(head, output.BOLD))
    output.print_markdown(text or "(no text)")


async def _print_prompt(app: App, ref: str, chosen: str, *, as_json: bool) -> None:
    from cllm.engine.sent_prompt import read_sent_prompt

    conversation = await app.store.load(ref)
    turn = choose_turn(conversation, chosen)
    view = await read_sent_prompt(app.store, conversation, turn)
    if as_json:
        output.print_json(view)
        return
    output.print_line(f"Conversation: {conversation.ref}")
    output.print_line(f"Turn: {turn.id} ({turn.state}), {local_time(turn.started_at)}")
    output.print_line(f"Model: {view.model or '-'}")
    counted = view.counted_tokens
    provider = "" if counted is None else f"; the provider counted {counted:,}"
    sent = [one for one in view.sent if one.kind != "template" and not one.is_unknown]
    count = pluralize(len(sent), "message")
    output.print_line(f"Sent: {count}, about {view.estimated_tokens:,} tokens{provider}")
    for part in view.left_out:
        numbers = str(part.first) if part.first == part.last else f"{part.first} to {part.last}"
        output.print_line(f"Left out: {numbers} ({REASONS[part.reason]})")
    if not view.left_out:
        output.print_line("Left out: nothing")
    for one in view.sent:
        if one.is_unknown:
            output.print_line("")
            unknown = UNRECORDED_PROMPT if view.system_policy is None else UNKNOWN_PROMPT
            output.print_styled(output.style(unknown, output.BOLD))
            continue
        number = "" if one.sequence_number is None else f" {one.sequence_number}"
        other = "" if one.conversation_id is None else f" of {one.conversation_id}"
        differs = ", sent with other content" if one.differs else ""
        tokens = "" if one.tokens is None else f", about {one.tokens:,} tokens"
        head = f"{KINDS[one.kind]}{number}{other} [{one.role}{tokens}{differs}]"
        _show_message(head, content_text(one.content) if one.is_stored else "not stored")
    if not view.exact:
        output.note(
            "Warning: the conversation has no complete record of this prompt, or has changed since."
        )


def content_text(content: Any) -> str:
    """Return the text of a message's content; other parts as their type."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    texts = (
        part.get("text") if part.get("type") == "text" else f"[{part.get('type', 'part')}]"
        for part in content
        if isinstance(part, dict)
    )
    return "\n".join(text for text in texts if isinstance(text, str))


def choose_turn(conversation: StoredConversation, chosen: str) -> Turn:
    """Return a turn by the number of a message or by its ID; the last turn for LAST_TURN."""
    if chosen == LAST_TURN:
        if not conversation.turns:
            raise UsageError(f"Conversation '{conversation.ref}' has no messages yet.")
        return conversation.turns[-1]
    if chosen.isascii() and chosen.isdigit():
        for number, turn, _ in conversation.numbered_messages():
            if number == int(chosen):
                return turn
        raise SequenceNotFoundError(conversation.ref, int(chosen))
    found = find_turn(conversation, chosen)
    if found is None:
        raise TurnNotFoundError(conversation.ref, chosen)
    return found

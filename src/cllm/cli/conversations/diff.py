"""`cllm conversations diff`: what two conversations, branches or variants have in common."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import click
import msgspec

from cllm.app import App
from cllm.cli import completion, output
from cllm.cli.inputs import HelpCommand, json_option, store_options
from cllm.cli.trust import open_app
from cllm.core.conversation import StoredConversation
from cllm.core.errors import UsageError
from cllm.core.message import Message
from cllm.core.ports import Store
from cllm.engine.conversation_tree import number_variants
from cllm.repl.screen import wrap_line
from cllm.settings.load import CommandLine
from cllm.terminal import cut_cells, one_line, pluralize

HELP = """Compare two conversations, branches or variants.

The command prints how many messages are the same, and then the other messages of each. Without B,
it compares a branch with its parent. A variant is written as ID@N.K, as `tree` prints it."""
MAX_COLUMNS = 100
VARIANT = re.compile(r"(?P<ref>.+)@(?P<first>\d{1,9})\.(?P<number>\d{1,9})")
"""The name of a variant, such as `cats@3.1`."""
EXAMPLES = ("cllm conversations diff cats dogs", "cllm conversations diff cats dogs --json")


class MessagePath(msgspec.Struct, frozen=True, kw_only=True):
    """The messages of a conversation from its first one to the end of a variant, or all."""

    label: str
    conversation: StoredConversation
    messages: tuple[Message, ...]


@click.command(cls=HelpCommand, name="diff", help=HELP, examples=EXAMPLES)
@click.argument("a", metavar="A", shell_complete=completion.complete_conversations)
@click.argument(
    "b", metavar="[B]", required=False, shell_complete=completion.complete_conversations
)
@json_option
@store_options
def command(line: CommandLine, *, a: str, b: str | None, as_json: bool) -> None:
    app = open_app(line)
    one, other = app.run(_load_both(app, a, b))
    common = count_common(one.messages, other.messages)
    if as_json:
        sides = {"a": _build_side_fields(one, common), "b": _build_side_fields(other, common)}
        same = _read_system_text(one) == _read_system_text(other)
        output.print_json({"common": common, "same_system_prompt": same, **sides})
        return
    _print_difference(one, other, common)


async def _load_both(app: App, a: str, b: str | None) -> tuple[MessagePath, MessagePath]:
    one = await load_path(app.store, a)
    if b is not None:
        return one, await load_path(app.store, b)
    parent = one.conversation.parent
    if parent is None:
        raise UsageError(
            f"Conversation '{one.label}' has no parent; write the second conversation after it."
        )
    return await load_path(app.store, parent.conversation), one


async def load_path(store: Store, name: str) -> MessagePath:
    """Load a conversation, or a variant with the messages before it. Raises UsageError."""
    match = VARIANT.fullmatch(name)
    conversation = await store.load(match["ref"] if match else name)
    messages = tuple(message for _, _, message in conversation.numbered_messages())
    if match is None:
        return MessagePath(label=conversation.ref, conversation=conversation, messages=messages)
    key = int(match["first"]), int(match["number"])
    turn = number_variants(conversation).get(key)
    if turn is None:
        raise UsageError(
            f"Conversation '{conversation.ref}' has no variant {key[0]}.{key[1]}; list them with: "
            f"cllm conversations tree {conversation.ref}"
        )
    before = messages[: key[0] - conversation.first_sequence]
    return MessagePath(label=name, conversation=conversation, messages=before + turn.messages)


def count_common(one: Sequence[Message], other: Sequence[Message]) -> int:
    """Return the number of equal messages at the start."""
    pairs = zip(one, other, strict=False)
    common = 0
    for mine, theirs in pairs:
        if mine != theirs and _read_content(mine) != _read_content(theirs):
            break
        common += 1
    return common


def _read_content(message: Message) -> Any:
    try:
        return message.role, message.json()
    except (msgspec.MsgspecError, UnicodeError):
        return message.role, message.raw


def _print_difference(one: MessagePath, other: MessagePath, common: int) -> None:
    counts = [pluralize(len(path.messages), "message") for path in (one, other)]
    output.print_styled(output.style(f"--- {one.label} ({counts[0]})", output.BOLD))
    output.print_styled(output.style(f"+++ {other.label} ({counts[1]})", output.BOLD))
    if _read_system_text(one) != _read_system_text(other):
        _print_side("-", "[system]", _read_system_text(one), output.RED)
        _print_side("+", "[system]", _read_system_text(other), output.GREEN)
    if common:
        last = one.messages[common - 1]
        text = f"  {pluralize(common, 'common message')}, up to: {common} [{last.role}] {last.text}"
        output.print_line(cut_cells(one_line(text), output.terminal_columns() or MAX_COLUMNS))
    else:
        output.print_line("  no common message")
    for sign, path, color in (("-", one, output.RED), ("+", other, output.GREEN)):
        for number, message in enumerate(path.messages[common:], common + 1):
            _print_side(sign, f"{number} [{message.role}]", message.text, color)
    if common == len(one.messages) == len(other.messages):
        output.note("The messages are the same.")


def _print_side(sign: str, head: str, text: str, color: str) -> None:
    columns = output.terminal_columns()
    for line in _format_side(head, text):
        for part in wrap_line(f"{sign} {line}", columns, indent=f"{sign}   "):
            output.print_styled(output.style(part.rstrip(), color))


def _format_side(head: str, text: str) -> Iterator[str]:
    yield head
    for line in (text or "(no text)").splitlines():
        yield f"  {line}"


def _read_system_text(path: MessagePath) -> str:
    prompt = path.conversation.kept_prompt
    return "" if prompt is None else prompt.text


def _build_side_fields(path: MessagePath, common: int) -> dict[str, Any]:
    return {
        "id": path.conversation.id,
        "label": path.label,
        "messages": [
            {"sequence_number": number, "role": message.role, "text": message.text}
            for number, message in enumerate(path.messages[common:], common + 1)
        ],
    }

"""Changes of a stored conversation that several interfaces offer: undo, branch, pins, edits."""

from collections.abc import Iterable
from datetime import datetime

import msgspec

from cllm.core.conversation import StoredConversation, Turn
from cllm.core.errors import SequenceNotFoundError, UsageError
from cllm.core.message import Message, Text, ToolCall, plain_message
from cllm.core.ports import Changes, NewConversation, Store, TurnStart
from cllm.history.system_prompt import GivenPrompt, build_branch_opening
from cllm.wire.convert import has_user_input, is_plain_user, parts_of
from cllm.wire.openai.parts import encode_parts

replace = msgspec.structs.replace
TAILS = (1, 50, None)
"""Numbers of messages to load, in order, until the last turn with a user message is found."""


class LastTurn(msgspec.Struct, frozen=True, kw_only=True):
    """The last turn with a user message. `first` is the number of its first message.

    `input` are its messages up to the user's: later turns with tool results belong to its reply.
    """

    turn: Turn
    first: int
    input: tuple[Message, ...]


def find_last_turn(conversation: StoredConversation) -> LastTurn | None:
    """Return the turn that `undo` deletes and `regenerate` repeats."""
    first = conversation.message_count + 1
    for turn in reversed(conversation.turns):
        first -= len(turn.messages)
        users = [index for index, message in enumerate(turn.messages) if is_plain_user(message)]
        if turn.state != "running" and users:
            return LastTurn(turn=turn, first=first, input=turn.messages[: users[-1] + 1])
    return None


async def load_last_turn(store: Store, ref: str, *, owner: str) -> LastTurn | None:
    """Load no more messages of the conversation than `find_last_turn` needs."""
    for tail in TAILS:
        last = find_last_turn(await store.load(ref, owner=owner, tail=tail))
        if last is not None:
            return last
    return None


def require_last_turn(conversation: StoredConversation) -> LastTurn:
    """Raises UsageError if there is none."""
    last = find_last_turn(conversation)
    if last is None:
        raise UsageError(f"Conversation '{conversation.ref}' has no messages yet.")
    return last


async def delete_last_turn(store: Store, conversation: StoredConversation) -> tuple[Message, ...]:
    """Delete the last turn permanently; return its messages and those after it.

    Raises ConversationBusyError if another process has added a turn.
    """
    last = require_last_turn(conversation)
    await store.delete_from(conversation.id, last.first, unchanged=conversation)
    return tuple(
        message for number, _, message in conversation.numbered_messages() if number >= last.first
    )


async def branch_conversation(
    store: Store,
    ref: str,
    new: NewConversation,
    *,
    at: int | None,
    prompt: GivenPrompt | None,
    now: datetime,
) -> StoredConversation:
    """Copy the messages up to number `at`, or all; `prompt` is another system prompt."""
    opening = None
    if prompt is not None:
        opening = build_branch_opening(await store.load(ref, tail=0), prompt, now=now)
    return await store.branch(ref, new, at=at, opening=opening)


async def change_pins(
    store: Store, ref: str, *, add: Iterable[int] = (), remove: Iterable[int] = ()
) -> tuple[int, ...]:
    """Add and remove pins; return all. Raises SequenceNotFoundError."""
    current = (await store.load(ref, tail=0)).pins
    pins = tuple(sorted(({*current, *add}) - {*remove}))
    await store.update(ref, Changes(pins=pins))
    return pins


class EditedMessage(msgspec.Struct, frozen=True, kw_only=True):
    """Where an edited message is: the conversation itself, or a branch of it.

    `input` are the messages to send, as a variant of `place` if that is set; empty if the message
    is a reply, which is saved.
    """

    conversation: str
    is_branch: bool = False
    input: tuple[Message, ...] = ()
    place: str | None = None


async def edit_message(
    store: Store, ref: str, number: int, text: str, *, branch: NewConversation, turn_id: str
) -> EditedMessage:
    """Replace the text of a message; nothing stored is deleted.

    The edit of the last turn is a variant of it. That of an earlier one is in a branch, which has
    the messages before it. `turn_id` is for an edited reply.
    """
    conversation = await store.load(ref)
    turn, first, message = find_message(conversation, number)
    is_last = not _is_continued(conversation, turn)
    if is_plain_user(message):
        index = number - first
        changed = _replace_text(message, text)
        messages = (*turn.messages[:index], changed, *_list_later_input(turn, index))
        if is_last:
            return EditedMessage(conversation=conversation.id, input=messages, place=turn.place)
        branched = await _branch_before(store, ref, branch, first)
        return EditedMessage(conversation=branched.id, is_branch=True, input=messages)
    check_editable(conversation, number)
    if not is_last:
        conversation = await store.branch(ref, branch, at=number)
    await _save_reply(store, conversation, number, text, turn_id=turn_id)
    return EditedMessage(conversation=conversation.id, is_branch=not is_last)


def find_message(conversation: StoredConversation, number: int) -> tuple[Turn, int, Message]:
    """Return the turn of a message, the number of that turn's first message, and the message."""
    first = conversation.first_sequence
    for turn in conversation.turns:
        if first <= number < first + len(turn.messages):
            return turn, first, turn.messages[number - first]
        first += len(turn.messages)
    raise SequenceNotFoundError(conversation.ref, number)


def check_editable(conversation: StoredConversation, number: int) -> Message:
    """Return the message; UsageError unless it is a user's message or a reply without tools."""
    _, _, message = find_message(conversation, number)
    has_calls = any(isinstance(part, ToolCall) for part in parts_of(message))
    if is_plain_user(message) or (message.role == "assistant" and not has_calls):
        return message
    raise UsageError(
        f"Message {number} of conversation '{conversation.ref}' belongs to a tool call and cannot "
        "be edited; choose a user message or a reply."
    )


def _is_continued(conversation: StoredConversation, turn: Turn) -> bool:
    """Whether a later turn has input of the user, so that this one can have no new variant."""
    places = [each.place for each in conversation.turns]
    later = conversation.turns[places.index(turn.place) + 1 :]
    return any(each.is_history and has_user_input(each.messages) for each in later)


def _list_later_input(turn: Turn, index: int) -> tuple[Message, ...]:
    """Return the user's messages after an index that have no reply in between."""
    return tuple(message for message in turn.asked[index + 1 :] if is_plain_user(message))


async def _branch_before(
    store: Store, ref: str, new: NewConversation, first: int
) -> StoredConversation:
    if first == 1:
        return await store.branch(ref, new, path=())
    return await store.branch(ref, new, at=first - 1)


async def _save_reply(
    store: Store, conversation: StoredConversation, number: int, text: str, *, turn_id: str
) -> None:
    """Save a variant of the last turn that ends with this reply, without a call."""
    turn, first, _ = find_message(conversation, number)
    messages = (*turn.messages[: number - first], plain_message("assistant", text))
    start = TurnStart(
        id=turn_id, messages=messages, model=turn.model, place=turn.place, visible=False
    )
    lease = await store.begin_turn(conversation.id, start, wait=None)
    ended = replace(lease.turn, state="complete", ended_at=lease.turn.started_at)
    await store.finish_turn(lease, ended)


def _replace_text(message: Message, text: str) -> Message:
    """Return the message with this text and its images and files."""
    others = [part for part in parts_of(message) if not isinstance(part, Text)]
    if not others:
        return plain_message("user", text)
    return encode_parts("user", (Text(text=text), *others))

"""The messages of a `ConversationManager`: in memory, or in a store."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import aclosing
from itertools import islice
from typing import Any, Literal, Protocol, get_args

import msgspec

from cllm.app import now
from cllm.core.conversation import StoredConversation, Turn
from cllm.core.errors import ConversationNotFoundError
from cllm.core.message import Message
from cllm.history.system_prompt import choose_system, prompt_without_context
from cllm.library.arguments import encode_argument
from cllm.library.conversation import Conversation, Speaker
from cllm.library.loop import CALLER, CallerId, background, synchronous
from cllm.library.operations import Seen
from cllm.library.session import Answer, Pieces
from cllm.window.strategies import ByTurns, Strategy
from cllm.wire.conversation_file.forms import openai_forms

MessageList = Sequence[dict[str, Any]]
MessageRole = Literal["user", "assistant", "tool"]
ROLES: tuple[MessageRole, ...] = get_args(MessageRole)


def role_at(messages: MessageList, position: int) -> MessageRole:
    message = messages[position]
    role: MessageRole | None = message.get("role") if isinstance(message, dict) else None
    if role in ROLES:
        return role
    raise ValueError(
        f'messages[{position}] must be a dictionary such as {{"role": "user", "content": "Hello."}}'
        f" with one of the roles {', '.join(ROLES)}; the system prompt goes into system_prompt."
    )


class TurnCounter:
    """Counts turns: the first message, and each user message after a reply, starts one."""

    def __init__(self) -> None:
        self.turns = 0
        self._is_answered = False

    def add(self, role: MessageRole) -> bool:
        """Count a message. Returns whether it starts a turn."""
        starts = not self.turns or (role == "user" and self._is_answered)
        self.turns += starts
        self._is_answered = role == "assistant" or (self._is_answered and not starts)
        return starts


def turn_starts(messages: MessageList) -> Iterator[int]:
    """Yield the indexes where turns start."""
    counter = TurnCounter()
    for position in range(len(messages)):
        if counter.add(role_at(messages, position)):
            yield position


def waits_for_answer(messages: MessageList) -> bool:
    for position in reversed(range(len(messages))):
        role = role_at(messages, position)
        if role != "tool":
            return role == "user"
    return bool(messages)


def encode_messages(messages: MessageList) -> tuple[Message, ...]:
    return tuple(
        Message(
            role=role_at(messages, position), raw=encode_argument(f"messages[{position}]", message)
        )
        for position, message in enumerate(messages)
    )


class AskModel(Protocol):
    def __call__(self, messages: MessageList, *, stream: bool) -> Pieces: ...


class _ActiveStream(msgspec.Struct, frozen=True, kw_only=True):
    text: str
    pieces: Pieces
    reader: CallerId
    received: list[str] = msgspec.field(default_factory=list)


class MemoryHistory:
    def __init__(self, ask: AskModel) -> None:
        self._ask = ask
        self._max_turns = 1
        self._active_stream: _ActiveStream | None = None
        self._counter = TurnCounter()
        self._counted: tuple[list[dict[str, Any]], int] | None = None
        self.messages: list[dict[str, Any]] = []
        self.trimmed = False

    @property
    def turn_count(self) -> int:
        return sum(1 for _ in turn_starts(self.messages)) - waits_for_answer(self.messages)

    def limit(self, max_turns: int) -> None:
        self._max_turns = max_turns

    def add(self, role: Speaker, text: str) -> None:
        self._close_left_stream()
        self._add(role, text)

    def _add(self, role: Speaker, text: str) -> None:
        is_first = not self.messages
        completes = role == "assistant" and (is_first or waits_for_answer(self.messages))
        counter = self._update_counter()
        self.messages.append({"role": role, "content": text})
        counter.add(role)
        if completes:
            excess = max(0, counter.turns - self._max_turns)
            end = next(islice(turn_starts(self.messages), excess, None))
            self.trimmed = end > 0
            del self.messages[:end]
            counter.turns -= excess
        self._counted = (self.messages, len(self.messages))

    def _update_counter(self) -> TurnCounter:
        """Return the counter; it counts anew if the caller replaced, extended or cut the list."""
        messages, length = self._counted or (None, 0)
        if messages is not self.messages or length != len(self.messages):
            self._counter = TurnCounter()
            for position in range(len(self.messages)):
                self._counter.add(role_at(self.messages, position))
        return self._counter

    def _add_turn(self, text: str, answer: str) -> None:
        self._add("user", text)
        if answer.strip():
            self._add("assistant", answer)

    async def pieces(self, text: str, *, stream: bool) -> Pieces:
        await self._close_open_stream()
        messages = [*self.messages, {"role": "user", "content": text}]
        own = _ActiveStream(
            text=text, pieces=self._ask(messages, stream=stream), reader=CALLER.get()
        )
        self._active_stream = own
        try:
            async with aclosing(own.pieces) as pieces:
                async for piece in pieces:
                    if isinstance(piece, Answer):
                        own.received.clear()
                        self._add_turn(text, piece.text)
                    else:
                        own.received.append(piece)
                    yield piece
        except (GeneratorExit, asyncio.CancelledError):
            self._add_partial(own)
            raise
        finally:
            if self._active_stream is own:
                self._active_stream = None

    async def _close_open_stream(self) -> None:
        """Close a stream that its reader left open, and add its text."""
        left = self._active_stream
        if left is not None and left.reader == CALLER.get():
            await left.pieces.aclose()
            self._add_partial(left)

    def _add_partial(self, left: _ActiveStream) -> None:
        if left.received:
            self._add_turn(left.text, "".join(left.received))
            left.received.clear()

    def _close_left_stream(self) -> None:
        if self._active_stream is not None:
            background().run(self._close_open_stream())

    def replace(self, messages: list[dict[str, Any]]) -> None:
        if not isinstance(messages, list):
            raise TypeError(f"messages must be a list of dictionaries, not {messages!r}.")
        for position in range(len(messages)):
            role_at(messages, position)
        self._close_left_stream()
        self.messages = messages

    def clear(self) -> None:
        self._close_left_stream()
        self.messages = []
        self.trimmed = False


class StoredHistory:
    def __init__(self, conversation: Conversation, window: Strategy | None) -> None:
        self.messages: list[dict[str, Any]] = []
        self.trimmed = False
        self.conversation = conversation
        self._window = window
        self._view = Seen()

    @property
    def turn_count(self) -> int:
        return self._view.turns

    def limit(self, max_turns: int) -> None:
        self.conversation.window = self._window or ByTurns(max_turns=max_turns)

    async def _open(self) -> str | None:
        """Return the stored system prompt, if any. Raises UsageError if the manager's differs."""
        stored = await self._refresh()
        if stored is None:
            return None
        strategy = self.conversation.window_for(stored.model or "")
        self.trimmed = self._left_out > _count_left_out_before(stored, strategy)
        if self.conversation.system is not None:
            choose_system(
                stored,
                self.conversation.given_prompt,
                new_policy=self.conversation.policy,
                now=now(),
            )
        return _find_stored_prompt(stored)

    open = synchronous(_open)

    async def _add(self, role: Speaker, text: str) -> None:
        left_out, was_answered = self._left_out, self._view.is_answered
        await self.conversation.aadd(role, text, window=self._view.record)
        await self._refresh()
        if role == "assistant" and not was_answered:
            self.trimmed = self._left_out > left_out

    add = synchronous(_add)

    async def pieces(self, text: str, *, stream: bool) -> Pieces:
        left_out = self._left_out
        try:
            async with aclosing(self.conversation.pieces(text, {}, stream=stream)) as pieces:
                async for piece in pieces:
                    if isinstance(piece, Answer):
                        await self._refresh()
                        self.trimmed = self._left_out > left_out
                    yield piece
        except (GeneratorExit, asyncio.CancelledError):
            await self._refresh()
            self.trimmed = self._left_out > left_out
            raise

    def clear(self) -> None:
        self.conversation = self.conversation.another()
        self._view = Seen()
        self.messages.clear()
        self.trimmed = False

    @property
    def _left_out(self) -> int:
        return self._view.record.left_out_messages

    async def _refresh(self) -> StoredConversation | None:
        try:
            stored = await self.conversation.aload(tail="window")
        except ConversationNotFoundError:
            return None
        self._view = self.conversation.look_at(stored)
        self.messages[:] = (
            form.json() for message in self._view.messages for form in openai_forms(message)
        )
        return stored


def _find_stored_prompt(stored: StoredConversation) -> str | None:
    """Return the stored system prompt, "" for none; None if it is dynamic."""
    record = stored.system_record
    if record is not None and record.policy == "dynamic":
        return None
    prompt = stored.kept_prompt
    return "" if prompt is None else prompt_without_context(prompt.text)


def _count_left_out_before(stored: StoredConversation, strategy: Strategy) -> int:
    """Count the messages outside the window of the last answered turn, 0 if unknown.

    By turns, messages are dropped after the window is recorded; by tokens, before.
    """
    answered = tuple(_list_answered_turns(stored))
    earlier = answered if isinstance(strategy, ByTurns) else answered[:-1]
    window = earlier[-1].window if earlier else None
    return 0 if window is None else window.left_out_messages


def _list_answered_turns(stored: StoredConversation) -> Iterator[Turn]:
    """Yield the stored turns with the first reply to a user message."""
    is_open = True
    for turn in stored.turns:
        if not turn.is_history:
            continue
        completes = False
        for message in turn.messages:
            completes = completes or (message.role == "assistant" and is_open)
            is_open = message.role == "user" or (is_open and message.role != "assistant")
        if completes:
            yield turn

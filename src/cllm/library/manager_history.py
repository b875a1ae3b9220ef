"""The messages of a `ConversationManager`: in memory, or in a store."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import aclosing
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


def turn_starts(messages: MessageList) -> list[int]:
    """The indexes where turns start: the first message, and a user's after an answer."""
    starts: list[int] = []
    is_answered = False
    for position in range(len(messages)):
        role = role_at(messages, position)
        if not starts or (role == "user" and is_answered):
            starts.append(position)
            is_answered = False
        is_answered = is_answered or role == "assistant"
    return starts


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
    def __call__(self, said: MessageList, *, stream: bool) -> Pieces: ...


class _UnderWay(msgspec.Struct, frozen=True, kw_only=True):
    text: str
    pieces: Pieces
    reader: CallerId
    said: list[str] = msgspec.field(default_factory=list)


class MemoryHistory:
    def __init__(self, ask: AskModel) -> None:
        self._ask = ask
        self._most = 1
        self._under_way: _UnderWay | None = None
        self.messages: list[dict[str, Any]] = []
        self.trimmed = False

    @property
    def turn_count(self) -> int:
        return len(turn_starts(self.messages)) - waits_for_answer(self.messages)

    def limit(self, most: int) -> None:
        self._most = most

    def add(self, role: Speaker, text: str) -> None:
        self._end_what_was_left()
        self._add(role, text)

    def _add(self, role: Speaker, text: str) -> None:
        is_first = not self.messages
        completes = role == "assistant" and (is_first or waits_for_answer(self.messages))
        self.messages.append({"role": role, "content": text})
        if completes:
            # Every turn but the first has at least two messages, so that few ones need no count.
            starts = turn_starts(self.messages) if len(self.messages) > 2 * self._most else [0]
            end = starts[max(0, len(starts) - self._most)]
            self.trimmed = end > 0
            del self.messages[:end]

    def _keep(self, text: str, answer: str) -> None:
        self._add("user", text)
        if answer.strip():
            self._add("assistant", answer)

    async def pieces(self, text: str, *, stream: bool) -> Pieces:
        await self._close_open_stream()
        asked = [*self.messages, {"role": "user", "content": text}]
        mine = _UnderWay(text=text, pieces=self._ask(asked, stream=stream), reader=CALLER.get())
        self._under_way = mine
        try:
            async with aclosing(mine.pieces) as pieces:
                async for piece in pieces:
                    if isinstance(piece, Answer):
                        mine.said.clear()
                        self._keep(text, piece.text)
                    else:
                        mine.said.append(piece)
                    yield piece
        except (GeneratorExit, asyncio.CancelledError):
            self._keep_so_far(mine)
            raise
        finally:
            if self._under_way is mine:
                self._under_way = None

    async def _close_open_stream(self) -> None:
        """End a stream that its reader left open, and add its text."""
        left = self._under_way
        if left is not None and left.reader == CALLER.get():
            await left.pieces.aclose()
            self._keep_so_far(left)

    def _keep_so_far(self, left: _UnderWay) -> None:
        if left.said:
            self._keep(left.text, "".join(left.said))
            left.said.clear()

    def _end_what_was_left(self) -> None:
        if self._under_way is not None:
            background().run(self._close_open_stream())

    def replace(self, messages: list[dict[str, Any]]) -> None:
        if not isinstance(messages, list):
            raise TypeError(f"messages must be a list of dictionaries, not {messages!r}.")
        turn_starts(messages)
        self._end_what_was_left()
        self.messages = messages

    def clear(self) -> None:
        self._end_what_was_left()
        self.messages = []
        self.trimmed = False


class StoredHistory:
    def __init__(self, held: Conversation, window: Strategy | None) -> None:
        self.messages: list[dict[str, Any]] = []
        self.trimmed = False
        self.held = held
        self._window = window
        self._seen = Seen()

    @property
    def turn_count(self) -> int:
        return self._seen.turns

    def limit(self, most: int) -> None:
        self.held.window = self._window or ByTurns(max_turns=most)

    async def _open(self) -> str | None:
        """The stored system prompt, if any. Raises UsageError if the manager's differs."""
        stored = await self._look()
        if stored is None:
            return None
        strategy = self.held.window_for(stored.model or "")
        self.trimmed = self._left_out > _left_out_before(stored, strategy)
        if self.held.system is not None:
            given = self.held.given_prompt
            choose_system(stored, given, new_policy=self.held.policy, now=now())
        return _prompt_of(stored)

    open = synchronous(_open)

    async def _add(self, role: Speaker, text: str) -> None:
        left_out, was_answered = self._left_out, self._seen.is_answered
        await self.held.aadd(role, text, window=self._seen.record)
        await self._look()
        if role == "assistant" and not was_answered:
            self.trimmed = self._left_out > left_out

    add = synchronous(_add)

    async def pieces(self, text: str, *, stream: bool) -> Pieces:
        left_out = self._left_out
        try:
            async with aclosing(self.held.pieces(text, {}, stream=stream)) as pieces:
                async for piece in pieces:
                    if isinstance(piece, Answer):
                        await self._look()
                        self.trimmed = self._left_out > left_out
                    yield piece
        except (GeneratorExit, asyncio.CancelledError):
            await self._look()
            self.trimmed = self._left_out > left_out
            raise

    def clear(self) -> None:
        self.held = self.held.another()
        self._seen = Seen()
        self.messages.clear()
        self.trimmed = False

    @property
    def _left_out(self) -> int:
        return self._seen.record.left_out_messages

    async def _look(self) -> StoredConversation | None:
        try:
            stored = await self.held.aload(tail="window")
        except ConversationNotFoundError:
            return None
        self._seen = self.held.look_at(stored)
        self.messages[:] = (
            form.json() for message in self._seen.messages for form in openai_forms(message)
        )
        return stored


def _prompt_of(stored: StoredConversation) -> str | None:
    """The stored system prompt, "" for none; None if it is dynamic."""
    record = stored.system_record
    if record is not None and record.policy == "dynamic":
        return None
    prompt = stored.kept_prompt
    return "" if prompt is None else prompt_without_context(prompt.text)


def _left_out_before(stored: StoredConversation, strategy: Strategy) -> int:
    """How many messages the last answered turn found outside the window, 0 if unknown.

    By turns, messages drop out after the window's record; by tokens, before.
    """
    answered = tuple(_answered(stored))
    known = answered if isinstance(strategy, ByTurns) else answered[:-1]
    window = known[-1].window if known else None
    return 0 if window is None else window.left_out_messages


def _answered(stored: StoredConversation) -> Iterator[Turn]:
    """The stored turns that answered something for the first time."""
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

"""Where a `ConversationManager` has what was said: in memory, or in a store.

Both give the messages that are sent, say how many turns they are, and whether the last one that
was completed made an older one leave. What leaves memory is gone; a store keeps everything.
"""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import aclosing
from typing import Any, Literal, Protocol, get_args

import msgspec

from cllm.app import now
from cllm.assembly.system import choose_system, prompt_without_context
from cllm.assembly.window import ByTurns, Strategy
from cllm.core.conversation import Conversation as StoredConversation
from cllm.core.conversation import Turn
from cllm.core.errors import ConversationNotFoundError
from cllm.core.message import Message
from cllm.library.answer import Answer, Pieces
from cllm.library.conversation import Conversation, Speaker
from cllm.library.given import encode_given
from cllm.library.loop import CALLER, Who, background, synchronous
from cllm.library.operations import Seen
from cllm.wire.conversation_file.forms import openai_forms

Listed = Sequence[dict[str, Any]]
ListedRole = Literal["user", "assistant", "tool"]
ROLES: tuple[ListedRole, ...] = get_args(ListedRole)


def role_at(messages: Listed, position: int) -> ListedRole:
    """Who said that message; ValueError if it is none."""
    message = messages[position]
    role: ListedRole | None = message.get("role") if isinstance(message, dict) else None
    if role in ROLES:
        return role
    raise ValueError(
        f'messages[{position}] must be a dictionary such as {{"role": "user", "content": "Hello."}}'
        f" with one of the roles {', '.join(ROLES)}; the system prompt goes into system_prompt."
    )


def turn_starts(messages: Listed) -> list[int]:
    """Where the turns begin: at the first message, and at a user's after an answer."""
    starts: list[int] = []
    is_answered = False
    for position in range(len(messages)):
        role = role_at(messages, position)
        if not starts or (role == "user" and is_answered):
            starts.append(position)
            is_answered = False
        is_answered = is_answered or role == "assistant"
    return starts


def waits_for_answer(messages: Listed) -> bool:
    """Whether nobody answered the last turn yet."""
    for position in reversed(range(len(messages))):
        role = role_at(messages, position)
        if role != "tool":
            return role == "user"
    return bool(messages)


def encode_listed(messages: Listed) -> tuple[Message, ...]:
    """The messages as they are sent."""
    return tuple(_encoded(messages, position) for position in range(len(messages)))


def _encoded(messages: Listed, position: int) -> Message:
    role = role_at(messages, position)
    return Message(role=role, raw=encode_given(f"messages[{position}]", messages[position]))


class Ask(Protocol):
    """Sends messages to the model."""

    def __call__(self, said: Listed, *, stream: bool) -> Pieces: ...


class _UnderWay(msgspec.Struct, frozen=True, kw_only=True):
    """An answer that is not at its end, who reads it, and what was said so far."""

    text: str
    pieces: Pieces
    reader: Who
    said: list[str] = msgspec.field(default_factory=list)


class MemoryTranscript:
    """A list that the oldest turns leave, at a cost that does not depend on what was said before.

    It is all that there is: whatever stands in it is sent and counted, whoever put it there.
    """

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._most = 1
        self._under_way: _UnderWay | None = None
        self.messages: list[dict[str, Any]] = []
        self.trimmed = False

    @property
    def turn_count(self) -> int:
        return len(turn_starts(self.messages)) - waits_for_answer(self.messages)

    def limit(self, most: int) -> None:
        """Have at most this many turns from the next message on."""
        self._most = most

    def add(self, role: Speaker, text: str) -> None:
        """Add a message; the oldest turn leaves if that completes one too many."""
        self._end_what_was_left()
        self._add(role, text)

    def _add(self, role: Speaker, text: str) -> None:
        is_first = not self.messages
        completes = role == "assistant" and (is_first or waits_for_answer(self.messages))
        self.messages.append({"role": role, "content": text})
        if completes:
            leaving = self._leaving()
            self.trimmed = leaving > 0
            del self.messages[:leaving]

    def _leaving(self) -> int:
        """How many messages the oldest turns have that are too many."""
        # Every turn but the first has two messages at least, so that these are not too many.
        if len(self.messages) <= 2 * self._most:
            return 0
        starts = turn_starts(self.messages)
        return starts[max(0, len(starts) - self._most)]

    def _keep(self, text: str, answer: str) -> None:
        self._add("user", text)
        if answer.strip():
            self._add("assistant", answer)

    async def pieces(self, text: str, *, stream: bool) -> Pieces:
        """Ask the model; both the text and the answer are added."""
        await self._let_go()
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

    async def _let_go(self) -> None:
        """End a stream that its reader left without closing it; what was said so far is added."""
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
            background().run(self._let_go())

    def replace(self, messages: list[dict[str, Any]]) -> None:
        """Go on from that list, which is the caller's own."""
        if not isinstance(messages, list):
            raise TypeError(f"messages must be a list of dictionaries, not {messages!r}.")
        turn_starts(messages)
        self._end_what_was_left()
        self.messages = messages

    def clear(self) -> None:
        self._end_what_was_left()
        self.messages = []
        self.trimmed = False


class StoredTranscript:
    """The window of a conversation in a store, as it was when it was last looked at."""

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
        """Have so many turns at most, unless a strategy was chosen."""
        self.held.window = self._window or ByTurns(max_turns=most)

    async def _open(self) -> str | None:
        """Look at what is stored; the system prompt that it keeps, or None if that is open yet.

        UsageError if it keeps another than the one that was given.
        """
        stored = await self._stored()
        if stored is None:
            return None
        self._show(stored)
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
        """Ask; what the window is afterwards is known when the last piece comes."""
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

    async def _stored(self) -> StoredConversation | None:
        try:
            return await self.held.aload(tail="window")
        except ConversationNotFoundError:
            return None

    async def _look(self) -> None:
        stored = await self._stored()
        if stored is not None:
            self._show(stored)

    def _show(self, stored: StoredConversation) -> None:
        self._seen = self.held.look_at(stored)
        self.messages[:] = (
            form.json() for message in self._seen.messages for form in openai_forms(message)
        )


def _prompt_of(stored: StoredConversation) -> str | None:
    """The text of the system prompt that a conversation keeps, "" for none."""
    record = stored.system_record
    if record is not None and record.policy == "dynamic":
        return None
    prompt = stored.kept_prompt
    return "" if prompt is None else prompt_without_context(prompt.text)


def _left_out_before(stored: StoredConversation, strategy: Strategy) -> int:
    """How many messages were out of the window before the last turn that was answered.

    Turns leave by number when one is answered, which is after its window was recorded; by tokens
    when one is sent, which is before. Where that is not known, none were.
    """
    answered = tuple(_answered(stored))
    known = answered if isinstance(strategy, ByTurns) else answered[:-1]
    window = known[-1].window if known else None
    return 0 if window is None else window.left_out_messages


def _answered(stored: StoredConversation) -> Iterator[Turn]:
    """The stored turns in which something was answered for the first time."""
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

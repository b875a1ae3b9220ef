"""`ConversationManager`: a conversation trimmed by whole turns, in memory or kept in a store.

Keeps messages and counts turns; asking goes through the engine like everywhere else.
"""

import copy
from typing import Any, Unpack

from cllm.assembly.system import GivenPrompt
from cllm.assembly.window import Strategy
from cllm.core.ports import Store
from cllm.engine.request import TurnInput, TurnPolicy, TurnRequest, TurnTarget
from cllm.library.answer import Answer, AsyncTextStream, Pieces, TextStream, whole
from cllm.library.conversation import Conversation, Speaker
from cllm.library.given import (
    Parameters,
    check_number,
    check_optional_text,
    check_said,
    check_text,
    check_window,
    parameters_of,
)
from cllm.library.loop import background
from cllm.library.session import session
from cllm.library.stores import IN_MEMORY
from cllm.library.transcripts import (
    Listed,
    MemoryTranscript,
    StoredTranscript,
    encode_listed,
)

DEFAULT_MAX_TURNS = 10
DEFAULT_SYSTEM_PROMPT = (
    "You are a helpful AI assistant powered by Claude. "
    "Be concise, accurate, and friendly in your responses."
)
SOURCE = "ConversationManager"


class ConversationManager:
    """A conversation whose oldest turns leave when there are more than `max_turns`.

    A turn is a run of user messages and what answered them. The system prompt is never among the
    messages, and is sent with every call.

    With a `store` (or its URL) everything is kept there, and the messages are the window of it;
    `conversation` is the id of one to begin or go on with, and `window` a strategy in place of
    `max_turns`. A conversation that is gone on with keeps its own system prompt.
    """

    def __init__(
        self,
        max_turns: int = DEFAULT_MAX_TURNS,
        system_prompt: str = DEFAULT_SYSTEM_PROMPT,
        *,
        model: str | None = None,
        store: Store | str | None = None,
        conversation: str | None = None,
        window: Strategy | None = None,
        **parameters: Unpack[Parameters],
    ) -> None:
        self.max_turns = max_turns
        self.system_prompt = system_prompt
        self.model = model
        self.parameters = parameters_of("ConversationManager", parameters)
        self._check()
        self._transcript: MemoryTranscript | StoredTranscript
        if store is None and conversation is None and window is None:
            self._transcript = MemoryTranscript(self._ask_of_memory)
            return
        held = Conversation(
            conversation,
            store=IN_MEMORY if store is None and conversation is None else store,
            model=model,
            policy="pinned",
            source=SOURCE,
            parameters=self.parameters,
        )
        self._transcript = StoredTranscript(held, check_window(window))
        self._go_on(self._transcript)

    def _check(self) -> None:
        """Whether what anybody may set about this object can be used."""
        check_number("max_turns", self.max_turns, least=1)
        check_text("system_prompt", self.system_prompt)
        check_optional_text("model", self.model)

    def _go_on(self, stored: StoredTranscript) -> None:
        """Look at what was said before, and take over its system prompt."""
        given = self.system_prompt
        stored.held.system = None if given == DEFAULT_SYSTEM_PROMPT else given
        stored.limit(self.max_turns)
        kept = stored.open()
        if kept is not None:
            self.system_prompt = kept

    @property
    def conversation(self) -> str | None:
        """The id under which it is stored; None in memory."""
        stored = self._transcript
        return stored.held.id if isinstance(stored, StoredTranscript) else None

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The messages that are sent.

        In memory they are a plain list, which can be changed or replaced; with a store it shows
        what is there.
        """
        return self._transcript.messages

    @messages.setter
    def messages(self, messages: list[dict[str, Any]]) -> None:
        match self._transcript:
            case MemoryTranscript() as in_memory:
                in_memory.replace(messages)
            case _:
                raise AttributeError(
                    "The messages are those of the store and cannot be set; begin anew with "
                    "clear(), or change what is stored with cllm.Conversation."
                )

    @property
    def _last_trimmed(self) -> bool:
        return self._transcript.trimmed

    def add_user_message(self, message: str) -> None:
        """Add what the user said; several in a row belong to one turn."""
        self._add("user", message)

    def add_assistant_message(self, message: str) -> None:
        """Add what was answered. The oldest turn leaves if this completes one too many."""
        self._add("assistant", message)

    def _add(self, role: Speaker, message: str) -> None:
        self._prepared().add(role, check_said(message))

    def get_messages(self) -> list[dict[str, Any]]:
        """The messages that are sent; a list of the caller's own."""
        return copy.deepcopy(self.messages)

    def get_message_count(self) -> int:
        return len(self.messages)

    def get_turn_count(self) -> int:
        """The turns that were answered."""
        return self._transcript.turn_count

    def clear(self) -> None:
        """Begin a new conversation under the same system prompt; a store keeps the old one."""
        self._transcript.clear()

    def was_trimmed(self) -> bool:
        """Whether the last completed turn made an old one leave."""
        return self._last_trimmed

    def ask(self, text: str) -> Answer:
        """Say something and wait for the answer; both are added once it is whole."""
        return background().run(whole(self._pieces(text, stream=False)))

    def stream(self, text: str) -> TextStream:
        """Say something; the answer's text as it comes. Both are added at the end of it.

        Who leaves early keeps what was said so far.
        """
        return TextStream(self._pieces(text, stream=True))

    async def aask(self, text: str) -> Answer:
        """`ask` for asynchronous code."""
        return await background().elsewhere(whole(self._pieces(text, stream=False)))

    def astream(self, text: str) -> AsyncTextStream:
        """`stream` for asynchronous code."""
        return AsyncTextStream(self._pieces(text, stream=True))

    def _pieces(self, text: str, *, stream: bool) -> Pieces:
        return self._prepared().pieces(check_said(text), stream=stream)

    def _prepared(self) -> MemoryTranscript | StoredTranscript:
        """The transcript, with what may have been changed about this object."""
        self._check()
        transcript = self._transcript
        transcript.limit(self.max_turns)
        if isinstance(transcript, StoredTranscript):
            transcript.held.system = self.system_prompt
        return transcript

    def _ask_of_memory(self, said: Listed, *, stream: bool) -> Pieces:
        app = session().app
        request = TurnRequest(
            input=TurnInput(
                messages=encode_listed(said),
                system=GivenPrompt(text=self.system_prompt, source=SOURCE),
            ),
            target=TurnTarget(
                model=self.model or app.model,
                fallbacks=app.settings.fallbacks,
                parameters={**app.settings.parameters, **self.parameters},
                stream=stream,
                strict=app.settings.strict,
            ),
            policy=TurnPolicy(system="pinned"),
        )
        return session().pieces(request)

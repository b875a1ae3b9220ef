"""`ConversationManager`: a conversation trimmed by whole turns, in memory or in a store."""

import copy
from typing import Any, Unpack

from cllm.core.ports import Store
from cllm.engine.request import TurnPolicy
from cllm.history.system_prompt import GivenPrompt
from cllm.library import arguments
from cllm.library.arguments import Parameters
from cllm.library.conversation import Conversation, Speaker
from cllm.library.loop import asynchronous, synchronous
from cllm.library.manager_history import MemoryHistory, MessageList, StoredHistory, encode_messages
from cllm.library.session import Answer, AsyncTextStream, Pieces, TextStream, read_answer, session
from cllm.library.stores import IN_MEMORY
from cllm.window.strategies import Strategy

DEFAULT_MAX_TURNS = 10
DEFAULT_SYSTEM_PROMPT = (
    "You are a helpful AI assistant powered by Claude. "
    "Be concise, accurate, and friendly in your responses."
)
SOURCE = "ConversationManager"


class ConversationManager:
    """A conversation that drops its oldest turns above `max_turns`.

    A turn is a run of user messages and their answers. The system prompt is sent with every call.

    With a `store` (or its URL) everything is saved, and the messages are its window; `conversation`
    is the ID of one to start or continue, whose system prompt stays. `window` replaces `max_turns`.
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
        self.parameters = arguments.check_parameters("ConversationManager", parameters)
        self._check()
        self._transcript: MemoryHistory | StoredHistory
        if store is None and conversation is None and window is None:
            self._transcript = MemoryHistory(self._ask_of_memory)
            return
        held = Conversation(
            conversation,
            store=IN_MEMORY if store is None and conversation is None else store,
            model=model,
            policy="pinned",
            source=SOURCE,
            parameters=self.parameters,
        )
        held.system = None if system_prompt == DEFAULT_SYSTEM_PROMPT else system_prompt
        self._transcript = StoredHistory(held, arguments.check_window(window))
        self._transcript.limit(max_turns)
        stored_prompt = self._transcript.open()
        if stored_prompt is not None:
            self.system_prompt = stored_prompt

    def _check(self) -> None:
        arguments.check_number("max_turns", self.max_turns, least=1)
        arguments.check_text("system_prompt", self.system_prompt)
        arguments.check_optional_text("model", self.model)

    @property
    def conversation(self) -> str | None:
        stored = self._transcript
        return stored.held.id if isinstance(stored, StoredHistory) else None

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The messages that are sent. In memory the list may be changed or replaced."""
        return self._transcript.messages

    @messages.setter
    def messages(self, messages: list[dict[str, Any]]) -> None:
        if isinstance(self._transcript, StoredHistory):
            raise AttributeError(  # noqa: TRY004 - the attribute cannot be set
                "The messages are those of the store and cannot be set; begin anew with "
                "clear(), or change what is stored with cllm.Conversation."
            )
        self._transcript.replace(messages)

    @property
    def _last_trimmed(self) -> bool:
        return self._transcript.trimmed

    def add_user_message(self, message: str) -> None:
        """Add a user message; several in a row belong to one turn."""
        self._add("user", message)

    def add_assistant_message(self, message: str) -> None:
        """Add an answer. Drops the oldest turn if this completes one too many."""
        self._add("assistant", message)

    def _add(self, role: Speaker, message: str) -> None:
        self._prepared().add(role, arguments.check_message_text(message))

    def get_messages(self) -> list[dict[str, Any]]:
        return copy.deepcopy(self.messages)

    def get_message_count(self) -> int:
        return len(self.messages)

    def get_turn_count(self) -> int:
        return self._transcript.turn_count

    def clear(self) -> None:
        """Start a new conversation with the same system prompt."""
        self._transcript.clear()

    def was_trimmed(self) -> bool:
        """Whether the last completed turn dropped an old one."""
        return self._last_trimmed

    async def _ask(self, text: str) -> Answer:
        """Send a text and wait for the answer; adds both."""
        return await read_answer(self._pieces(text, stream=False))

    ask, aask = synchronous(_ask), asynchronous(_ask)

    def stream(self, text: str) -> TextStream:
        """Send a text; the answer's text as it arrives. Leaving early adds the text so far."""
        return TextStream(self._pieces(text, stream=True))

    def astream(self, text: str) -> AsyncTextStream:
        """`stream` for asynchronous code."""
        return AsyncTextStream(self._pieces(text, stream=True))

    def _pieces(self, text: str, *, stream: bool) -> Pieces:
        return self._prepared().pieces(arguments.check_message_text(text), stream=stream)

    def _prepared(self) -> MemoryHistory | StoredHistory:
        self._check()
        transcript = self._transcript
        transcript.limit(self.max_turns)
        if isinstance(transcript, StoredHistory):
            transcript.held.system = self.system_prompt
        return transcript

    def _ask_of_memory(self, said: MessageList, *, stream: bool) -> Pieces:
        current = session()
        request = current.build_request(
            encode_messages(said),
            model=self.model,
            system=GivenPrompt(text=self.system_prompt, source=SOURCE),
            parameters=self.parameters,
            stream=stream,
            policy=TurnPolicy(system="pinned"),
        )
        return current.pieces(request)

"""`ConversationManager`: a conversation trimmed by whole turns, in memory or in a store."""

import copy
from typing import Any, Unpack

from cllm.core.ports import Store
from cllm.engine.request import TurnStorage
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

    With a `store` (or its URL) everything is saved, and `messages` is the window. `conversation` is
    the ID of a conversation to start or continue; a stored system prompt stays. `window` replaces
    `max_turns`.
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
        self._history: MemoryHistory | StoredHistory
        if store is None and conversation is None and window is None:
            self._history = MemoryHistory(self._call_model)
            return
        stored = Conversation(
            conversation,
            store=IN_MEMORY if store is None and conversation is None else store,
            model=model,
            policy="pinned",
            source=SOURCE,
            parameters=self.parameters,
        )
        stored.system = None if system_prompt == DEFAULT_SYSTEM_PROMPT else system_prompt
        self._history = StoredHistory(stored, arguments.check_window(window))
        self._history.limit(max_turns)
        stored_prompt = self._history.open()
        if stored_prompt is not None:
            self.system_prompt = stored_prompt

    def _check(self) -> None:
        arguments.check_number("max_turns", self.max_turns, least=1)
        arguments.check_text("system_prompt", self.system_prompt)
        arguments.check_optional_text("model", self.model)
        arguments.check_parameter_fields(self.parameters)

    @property
    def conversation(self) -> str | None:
        history = self._history
        return history.conversation.id if isinstance(history, StoredHistory) else None

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The messages that are sent. Without a store, the list may be changed or replaced."""
        return self._history.messages

    @messages.setter
    def messages(self, messages: list[dict[str, Any]]) -> None:
        if isinstance(self._history, StoredHistory):
            raise AttributeError(  # noqa: TRY004 - the attribute cannot be set
                "The messages are in a store and cannot be set; start a new conversation with "
                "clear(), or change the stored messages with cllm.Conversation."
            )
        self._history.replace(messages)

    @property
    def _last_trimmed(self) -> bool:
        return self._history.trimmed

    def add_user_message(self, message: str) -> None:
        """Add a user message; several in a row belong to one turn."""
        self._add("user", message)

    def add_assistant_message(self, message: str) -> None:
        """Add a reply. Drops the oldest turn if this completes more than `max_turns`."""
        self._add("assistant", message)

    def _add(self, role: Speaker, message: str) -> None:
        self._prepare().add(role, arguments.check_message_text(message))

    def get_messages(self) -> list[dict[str, Any]]:
        return copy.deepcopy(self.messages)

    def get_message_count(self) -> int:
        return len(self.messages)

    def get_turn_count(self) -> int:
        return self._history.turn_count

    def clear(self) -> None:
        """Start a new conversation with the same system prompt."""
        self._history.clear()

    def was_trimmed(self) -> bool:
        """Whether the last completed turn dropped an old one."""
        return self._last_trimmed

    async def _ask(self, text: str) -> Answer:
        """Send a text and wait for the reply; adds both."""
        return await read_answer(self._stream_pieces(text, stream=False))

    ask, aask = synchronous(_ask), asynchronous(_ask)

    def stream(self, text: str) -> TextStream:
        """Send a text; yields the reply's text. Stopping early adds the text so far."""
        return TextStream(self._stream_pieces(text, stream=True))

    def astream(self, text: str) -> AsyncTextStream:
        """`stream` for asynchronous code."""
        return AsyncTextStream(self._stream_pieces(text, stream=True))

    def _stream_pieces(self, text: str, *, stream: bool) -> Pieces:
        return self._prepare().pieces(arguments.check_message_text(text), stream=stream)

    def _prepare(self) -> MemoryHistory | StoredHistory:
        self._check()
        history = self._history
        history.limit(self.max_turns)
        if isinstance(history, StoredHistory):
            history.conversation.system = self.system_prompt
        return history

    def _call_model(self, messages: MessageList, *, stream: bool) -> Pieces:
        current = session()
        request = current.build_request(
            encode_messages(messages),
            model=self.model,
            system=GivenPrompt(text=self.system_prompt, source=SOURCE),
            parameters=self.parameters,
            stream=stream,
            storage=TurnStorage(system="pinned"),
        )
        return current.pieces(request)

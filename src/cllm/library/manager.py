"""`ConversationManager`: a conversation in a program's memory, trimmed by whole turns.

Keeps messages and counts turns; asking goes through the engine like everywhere else.
"""

from collections import deque
from collections.abc import Iterator
from typing import Any

import msgspec

from cllm.assembly.system import GivenPrompt
from cllm.core.message import Message
from cllm.engine.turn import TurnRequest
from cllm.library.answer import Answer
from cllm.library.session import session

DEFAULT_MAX_TURNS = 10
DEFAULT_SYSTEM_PROMPT = (
    "You are a helpful AI assistant powered by Claude. "
    "Be concise, accurate, and friendly in your responses."
)


class ConversationManager:
    """A conversation whose oldest turns leave when there are more than `max_turns`.

    A turn is a run of user messages and what answered them. The system prompt is never among the
    messages, and is sent with every call.
    """

    def __init__(
        self,
        max_turns: int = DEFAULT_MAX_TURNS,
        system_prompt: str = DEFAULT_SYSTEM_PROMPT,
        *,
        model: str | None = None,
        **parameters: Any,
    ) -> None:
        if max_turns < 1:
            raise ValueError("max_turns must be at least 1.")
        self.messages: list[dict[str, Any]] = []
        self.max_turns = max_turns
        self.system_prompt = system_prompt
        self.model = model
        self.parameters = parameters
        self._last_trimmed = False
        # How many messages each turn has; the last is open while nobody has answered it.
        self._sizes: deque[int] = deque()
        self._open = False

    def add_user_message(self, message: str) -> None:
        """Add what the user said; several in a row belong to one turn."""
        self._add("user", message)
        if self._open:
            self._sizes[-1] += 1
        else:
            self._sizes.append(1)
            self._open = True

    def add_assistant_message(self, message: str) -> None:
        """Add what was answered. The oldest turn leaves if this completes one too many."""
        self._add("assistant", message)
        completes = self._open or not self._sizes
        if self._sizes:
            self._sizes[-1] += 1
        else:
            self._sizes.append(1)
        self._open = False
        if completes:
            self._last_trimmed = len(self._sizes) > self.max_turns
            if self._last_trimmed:
                del self.messages[: self._sizes.popleft()]

    def _add(self, role: str, message: str) -> None:
        if not isinstance(message, str) or not message.strip():
            raise ValueError("A message must have some text.")
        self.messages.append({"role": role, "content": message})

    def get_messages(self) -> list[dict[str, Any]]:
        """The messages that are sent; a list of the caller's own."""
        return [dict(message) for message in self.messages]

    def get_message_count(self) -> int:
        return len(self.messages)

    def get_turn_count(self) -> int:
        """The turns that were answered."""
        return len(self._sizes) - self._open

    def clear(self) -> None:
        """Forget all messages; the system prompt stays."""
        self.messages.clear()
        self._sizes.clear()
        self._open = False
        self._last_trimmed = False

    def was_trimmed(self) -> bool:
        """Whether the last completed turn made an old one leave."""
        return self._last_trimmed

    def ask(self, text: str) -> Answer:
        """Say something and wait for the answer; both are added once it is whole."""
        running = session()
        answer = running.loop.run(running.answer(self._request(text, stream=False)))
        self._keep(text, answer.text)
        return answer

    def stream(self, text: str) -> Iterator[str]:
        """Say something; the answer's text as it comes. Both are added at the end of it.

        Who leaves early keeps what was said so far.
        """
        running = session()
        request = self._request(text, stream=True)
        said: list[str] = []
        try:
            for piece in running.loop.iterate(running.pieces(request)):
                if isinstance(piece, str):
                    said.append(piece)
                    yield piece
        except GeneratorExit:
            self._keep(text, "".join(said))
            raise
        self._keep(text, "".join(said))

    def _keep(self, text: str, answer: str) -> None:
        self.add_user_message(text)
        if answer.strip():
            self.add_assistant_message(answer)

    def _request(self, text: str, *, stream: bool) -> TurnRequest:
        if not isinstance(text, str) or not text.strip():
            raise ValueError("A message must have some text.")
        said = [*self.messages, {"role": "user", "content": text}]
        app = session().app
        return TurnRequest(
            messages=tuple(
                Message(role=message["role"], raw=msgspec.json.encode(message)) for message in said
            ),
            model=self.model or app.model,
            system=GivenPrompt(text=self.system_prompt, source="ConversationManager"),
            policy="pinned",
            parameters={**app.settings.parameters, **self.parameters},
            fallbacks=app.settings.fallbacks,
            strict=app.settings.strict,
            stream=stream,
        )

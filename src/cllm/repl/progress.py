"""Texts about a turn that takes long or is interrupted, for the command line and the chat."""

from cllm.core.errors import CllmError
from cllm.core.ports import Lease
from cllm.core.reply import RefusalDelta, TextDelta
from cllm.engine.recorder import is_saved_failure
from cllm.engine.request import TurnEvent, TurnRequest, TurnStarted
from cllm.engine.tool_rounds import ToolRoundEnded
from cllm.providers.registry import LOCAL
from cllm.window.tokens import estimate_text

# A local model on two cores reads about 300 tokens per second.
MIN_READING_TOKENS = 1000


class TurnProgress:
    """The progress of a turn: what is saved if it is interrupted or fails.

    `lease` is that of a saved turn whose provider is called.
    """

    def __init__(self, request: TurnRequest) -> None:
        self.lease: Lease | None = None
        self._keeps_partial = request.storage.on_interrupt == "keep"
        self._has_reply = False

    def on_event(self, event: TurnEvent) -> None:
        match event:
            case TurnStarted():
                self.lease = event.lease
            case TextDelta() | RefusalDelta():
                self._has_reply = self._has_reply or bool(event.text)
            case ToolRoundEnded():
                self._has_reply = True
            case _:
                pass

    @property
    def is_saved_when_interrupted(self) -> bool:
        return self.lease is not None and self._keeps_partial

    def is_saved_after(self, error: CllmError) -> bool:
        """Whether the turn is saved as failed with this error."""
        return self.lease is not None and is_saved_failure(error, has_reply=self._has_reply)

    def describe_interrupted(self) -> str:
        if not self.is_saved_when_interrupted:
            return "Nothing is saved."
        return "The partial reply is saved." if self._has_reply else "Your message is saved."


def describe_reading(event: TurnStarted) -> str | None:
    """Return the size of a long prompt of a local model, which it reads before it replies."""
    if not event.model.startswith(f"{LOCAL}/"):
        return None
    tokens = sum(estimate_text(message.text).tokens for message in event.prompt.all_messages)
    if tokens < MIN_READING_TOKENS:
        return None
    return f"The local model reads about {tokens:,} tokens before it replies …"

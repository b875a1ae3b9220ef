"""Texts about a turn that takes long or is interrupted, for the command line and the chat."""

from cllm.core.reply import RefusalDelta, TextDelta
from cllm.engine.request import TurnEvent, TurnRequest, TurnStarted
from cllm.engine.tool_rounds import ToolRoundEnded
from cllm.providers.registry import LOCAL
from cllm.window.tokens import estimate_text

# A local model on two cores reads about 300 tokens per second.
MIN_READING_TOKENS = 1000


class TurnProgress:
    """The progress of a turn: describes what is saved if it is interrupted."""

    def __init__(self, request: TurnRequest) -> None:
        self._storage = request.storage
        self._is_started = False
        self._has_reply = False

    def on_event(self, event: TurnEvent) -> None:
        match event:
            case TurnStarted():
                self._is_started = True
            case TextDelta() | RefusalDelta():
                self._has_reply = self._has_reply or bool(event.text)
            case ToolRoundEnded():
                self._has_reply = True
            case _:
                pass

    def describe_interrupted(self) -> str:
        storage = self._storage
        is_saved = storage.ref is not None and not storage.read_only
        if not is_saved or storage.on_interrupt == "discard" or not self._is_started:
            return "Nothing is saved."
        return "The partial reply is saved." if self._has_reply else "Your message is saved."


def describe_reading(event: TurnStarted) -> str | None:
    """The size of a long prompt of a local model, which it reads before it replies."""
    if not event.model.startswith(f"{LOCAL}/"):
        return None
    tokens = sum(estimate_text(message.text).tokens for message in event.prompt.all_messages)
    if tokens < MIN_READING_TOKENS:
        return None
    return f"The local model reads about {tokens:,} tokens before it replies …"

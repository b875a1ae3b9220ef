"""Texts about a turn that takes long or is interrupted, for the command line and the chat."""

from cllm.engine.request import TurnRequest, TurnStarted
from cllm.providers.registry import LOCAL
from cllm.window.tokens import estimate_text

# A local model on two cores reads about 300 tokens per second.
MIN_READING_TOKENS = 1000


def describe_interrupted(request: TurnRequest) -> str:
    """Whether the partial reply of an interrupted turn is saved."""
    storage = request.storage
    is_saved = storage.ref is not None and not storage.read_only
    is_saved = is_saved and storage.on_interrupt == "keep"
    return "The partial reply is saved." if is_saved else "Nothing is saved."


def describe_reading(event: TurnStarted) -> str | None:
    """The size of a long prompt of a local model, which it reads before it answers."""
    if not event.model.startswith(f"{LOCAL}/"):
        return None
    tokens = sum(estimate_text(message.text).tokens for message in event.prompt.all_messages)
    if tokens < MIN_READING_TOKENS:
        return None
    return f"The local model reads about {tokens:,} tokens before it answers …"

"""History, system prompt and what is said now become one prompt. The same in, the same out."""

from typing import Any

from cllm.assembly.system import SystemChoice
from cllm.core.conversation import Conversation, WindowRecord
from cllm.core.message import Message
from cllm.core.notice import Notice
from cllm.core.prompt import Prompt


def assemble(
    conversation: Conversation | None,
    said: tuple[Message, ...],
    *,
    system: SystemChoice,
    notices: tuple[Notice, ...] = (),
    model: str,
    parameters: dict[str, Any],
    stream: bool,
    cache_key: str | None = None,
    without_place: str | None = None,
) -> Prompt:
    """The prompt of the next turn. `without_place` leaves out the turn that is asked again."""
    history = () if conversation is None else _history(conversation, without_place)
    left_out = 0 if conversation is None else conversation.message_count - len(history)
    return Prompt(
        model=model,
        system=system.message,
        messages=history + said,
        parameters=parameters,
        stream=stream,
        cache_key=cache_key,
        window=WindowRecord(
            first_sequence=1 if conversation is None else conversation.first_sequence,
            sent_messages=len(history) + len(said),
            left_out_messages=left_out,
        ),
        notices=notices + system.notices,
    )


def _history(conversation: Conversation, without_place: str | None) -> tuple[Message, ...]:
    return tuple(
        message
        for turn in conversation.turns
        if turn.is_history and turn.place != without_place
        for message in turn.messages
    )

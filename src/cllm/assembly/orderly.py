"""The histories that need no look: what nearly every conversation is, seen in one pass.

Texts in turn, calls that are answered at once. It knows no provider, because every one takes these;
it never says that a history is wrong, only that it has to be looked at. Results that came in
messages of their own are one message to most providers, which is no repair and nothing to tell of.
"""

from collections.abc import Callable, Sequence

from cllm.assembly.validity import HasParts, M
from cllm.core.message import (
    AnyPart,
    Image,
    RedactedThinking,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)


def in_order(
    messages: Sequence[M],
    *,
    one_answer: bool,
    make: Callable[[Role, tuple[AnyPart, ...]], M],
    begins_answer: bool = False,
) -> tuple[M, ...] | None:
    """The history as every provider takes it, if only results had to be put together for that.

    With `one_answer` all results of a turn are in one message, which `make` makes, in the order of
    their calls. With `begins_answer` the last message may be the assistant's. None if
    the history has to be looked at.
    """
    sent: list[M] = []
    turn = "user"
    waiting: dict[str, int] = {}
    answers: list[M] = []
    for index, message in enumerate(messages):
        if waiting:
            if not _answers(message, waiting):
                return None
            answers.append(message)
            if not waiting:
                _put(answers, sent, make if one_answer else None)
                answers = []
                turn = "assistant"
        elif message.role == turn and _speaks(message, waiting):
            sent.append(message)
            turn = "assistant" if turn == "user" else "user"
        elif index == 0 and not one_answer and _instructs(message):
            sent.append(message)
        else:
            return None
    asked = turn == "assistant" or (begins_answer and bool(sent) and _begins(sent[-1]))
    return tuple(sent) if asked and not waiting else None


def _begins(message: HasParts) -> bool:
    """Whether a message is the assistant's and its text can be gone on with."""
    end = message.parts[-1] if message.parts else None
    return message.role == "assistant" and type(end) is Text and not end.text[-1].isspace()


def _put(
    answers: list[M], sent: list[M], make: Callable[[Role, tuple[AnyPart, ...]], M] | None
) -> None:
    """The messages that answer the last one sent behind it, as one if that is to be made."""
    if make is None or len(answers) == 1:
        sent += answers
        return
    calls = (part for part in sent[-1].parts if type(part) is ToolCall)
    order = {call.id: place for place, call in enumerate(calls)}
    results = [p for answer in answers for p in answer.parts if type(p) is ToolResult]
    results.sort(key=lambda result: order[result.call_id])
    sent.append(make("user", tuple(results)))


def _answers(message: HasParts, waiting: dict[str, int]) -> bool:
    """Whether a message is results of open calls and nothing else; they are open no longer."""
    if message.role not in ("tool", "user"):
        return False
    for part in message.parts:
        if type(part) is not ToolResult or waiting.pop(part.call_id, None) is None:
            return False
        for inner in part.content:
            if type(inner) is Text and not inner.text.strip():
                return False
    return bool(message.parts)


def _speaks(message: HasParts, waiting: dict[str, int]) -> bool:
    """Whether a message is texts and, of the assistant, calls under ids of their own."""
    theirs = message.role == "assistant"
    heard = False
    for part in message.parts:
        kind = type(part)
        if kind is Text:
            if not part.text or part.text.isspace():  # type: ignore[union-attr]
                return False
            heard = True
        elif kind is ToolCall and theirs and part.id not in waiting:  # type: ignore[union-attr]
            waiting[part.id] = len(waiting)  # type: ignore[union-attr]
            heard = True
        elif kind is Image and not theirs:
            heard = True
        elif not (theirs and _is_signed(part)):
            return False
    return heard


def _is_signed(part: AnyPart) -> bool:
    return isinstance(part, RedactedThinking) or (
        isinstance(part, Thinking) and bool(part.signature)
    )


def _instructs(message: HasParts) -> bool:
    if message.role != "system" or not message.parts:
        return False
    return all(isinstance(part, Text) and bool(part.text.strip()) for part in message.parts)

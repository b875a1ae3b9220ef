"""Recognises in one pass the histories that every provider accepts, which nearly all are.

Decision 19 has the figures. Merging results into one message is not a repair.
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
    """Return the history with its results merged; None if it has to be checked.

    `begins_answer`: the last message may be the assistant's.
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
    is_complete = turn == "assistant" or (begins_answer and bool(sent) and _is_prefill(sent[-1]))
    return tuple(sent) if is_complete and not waiting else None


def _is_prefill(message: HasParts) -> bool:
    end = message.parts[-1] if message.parts else None
    return message.role == "assistant" and type(end) is Text and not end.text[-1].isspace()


def _put(
    answers: list[M], sent: list[M], make: Callable[[Role, tuple[AnyPart, ...]], M] | None
) -> None:
    """Append the results, merged into one message if `make` is given."""
    if make is None or len(answers) == 1:
        sent += answers
        return
    calls = (part for part in sent[-1].parts if type(part) is ToolCall)
    order = {call.id: place for place, call in enumerate(calls)}
    results = [p for answer in answers for p in answer.parts if type(p) is ToolResult]
    results.sort(key=lambda result: order[result.call_id])
    sent.append(make("user", tuple(results)))


def _answers(message: HasParts, waiting: dict[str, int]) -> bool:
    """Whether it has only results of `waiting` calls, which this removes."""
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
    """Whether it has only texts, images or new calls, which this adds to `waiting`."""
    theirs = message.role == "assistant"
    has_content = False
    for part in message.parts:
        kind = type(part)
        if kind is Text:
            if not part.text or part.text.isspace():  # type: ignore[union-attr]
                return False
            has_content = True
        elif kind is ToolCall and theirs and part.id not in waiting:  # type: ignore[union-attr]
            waiting[part.id] = len(waiting)  # type: ignore[union-attr]
            has_content = True
        elif kind is Image and not theirs:
            has_content = True
        elif not (theirs and _is_signed(part)):
            return False
    return has_content


def _is_signed(part: AnyPart) -> bool:
    return isinstance(part, RedactedThinking) or (
        isinstance(part, Thinking) and bool(part.signature)
    )


def _instructs(message: HasParts) -> bool:
    if message.role != "system" or not message.parts:
        return False
    return all(isinstance(part, Text) and bool(part.text.strip()) for part in message.parts)

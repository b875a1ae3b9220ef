"""Repairs of a history that a provider would refuse, for one request only.

`accept_ordered_history` recognises in one pass the histories that every provider accepts, which nearly all are
(decision 19 has the figures). `repair` returns what it cannot repair as problems. A message that
needs no repair stays the same object.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from operator import is_
from typing import Generic

import msgspec

from cllm.core.message import (
    AnyPart,
    Image,
    Part,
    RedactedThinking,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from cllm.core.notice import Notice
from cllm.history.rules import (
    THINKING,
    Exchange,
    HasParts,
    M,
    Problem,
    ProblemCode,
    Profile,
    effective_role,
    find_ending_problems,
    find_exchange_problems,
    find_message_problem,
    find_part_problem,
    find_problems,
    has_only_thinking,
    is_blank,
    is_merged_pair,
    split_exchanges,
)

FIRST_MESSAGE_TEXT = "(empty)"
CONTINUATION_TEXT = "(continued)"
DOCUMENT_PLACEHOLDER = "(document attached)"
INTERRUPTED_CALL_TEXT = "The call was interrupted; there is no result."
NOTICES = {
    "blank_text_left_out": "Empty text was left out; the provider refuses it.",
    "document_given_text": "A document without text beside it was given some.",
    "interrupted_call_answered": "A tool call without a result was answered with an error.",
    "message_added": "A message of the user's was put first; the provider begins with one.",
    "message_left_out": "A message with nothing in it that can be sent was left out.",
    "message_split": "What stood beside tool results is sent after them, in a message of its own.",
    "messages_merged": "Messages of one role side by side were sent as one.",
    "prefill_trimmed": "White space at the end of the answer's beginning was left out.",
    "result_as_text": "A tool result that answers no open call was sent as what it says.",
    "result_moved": "A tool result was put directly after its call.",
    "thinking_left_out": "Thinking without a signature cannot be sent back and was left out.",
}
CHANGES: dict[ProblemCode, str] = {
    "duplicate_result": "result_as_text",
    "late_result": "result_moved",
    "missing_result": "interrupted_call_answered",
    "orphan_result": "result_as_text",
}
NOT_REPAIRED = ("duplicate_call_id", "misplaced_part")


class RepairResult(msgspec.Struct, Generic[M], frozen=True, kw_only=True):
    messages: tuple[M, ...]
    notices: tuple[Notice, ...] = ()
    problems: tuple[Problem, ...] = ()


class _Repair(Generic[M]):
    def __init__(self, profile: Profile, make: Callable[[Role, tuple[AnyPart, ...]], M]) -> None:
        self.profile = profile
        self.make = make
        self._changes: dict[str, list[int]] = {}

    def changed(self, code: str, position: int) -> None:
        self._changes.setdefault(code, []).append(position)

    def notices(self) -> tuple[Notice, ...]:
        return tuple(
            Notice(
                code=code,
                path=f"messages[{positions[0]}]",
                message=NOTICES[code] + (f" ({len(positions)} times)" if positions[1:] else ""),
            )
            for code, positions in self._changes.items()
        )


def repair(
    messages: Sequence[M],
    profile: Profile,
    *,
    make: Callable[[Role, tuple[AnyPart, ...]], M],
    positions: Sequence[int] | None = None,
) -> RepairResult[M]:
    """Return the messages as this provider accepts them.

    `positions` are their positions for notices and problems, if some messages are not here.
    """
    ordered = accept_ordered_history(
        messages,
        merge_results=not profile.has_tool_role,
        make=make,
        allow_prefill=profile.ending != "not_assistant",
    )
    if ordered is not None:
        return RepairResult(messages=ordered)
    before = find_problems(messages, profile)
    is_merged = profile.repeated_roles != "kept" and any(
        is_merged_pair(one, other, profile) for one, other in pairwise(messages)
    )
    if not before and not is_merged:
        return RepairResult(messages=tuple(messages))
    under_way = _Repair(profile, make)
    positions = tuple(positions or range(len(messages)))
    numbered = list(zip(positions, messages, strict=True))
    repaired = _trim_end(_arrange(numbered, under_way), under_way)
    sent = tuple(message for _, message in repaired)
    left = _renumber(find_problems(sent, profile), [position for position, _ in repaired])
    return RepairResult(
        messages=sent,
        notices=under_way.notices(),
        problems=_as_found(left, _renumber(before, positions)) if left else (),
    )


def _renumber(problems: Iterable[Problem], positions: Sequence[int]) -> tuple[Problem, ...]:
    return tuple(
        msgspec.structs.replace(problem, position=positions[problem.position])
        if positions
        else problem
        for problem in problems
    )


def _as_found(left: tuple[Problem, ...], before: tuple[Problem, ...]) -> tuple[Problem, ...]:
    """Return the remaining problems at their positions before messages were merged."""
    found = [problem for problem in before if problem.code in NOT_REPAIRED]
    known = {problem.code for problem in found}
    return (*found, *(problem for problem in left if problem.code not in known))


def _arrange(numbered: list[tuple[int, M]], under_way: _Repair[M]) -> Iterator[tuple[int, M]]:
    paired = _pair(_clean(numbered, under_way), under_way)
    split = _split(_join(paired, under_way), under_way)
    return _begin(_accompany(split, under_way), under_way)


def _clean(numbered: list[tuple[int, M]], under_way: _Repair[M]) -> Iterator[tuple[int, M]]:
    """Leave out parts that cannot be sent, and messages without any other.

    The newest user message stays, so that the user sees that it is empty.
    """
    cleaned: list[M] = []
    for position, message in numbered:
        parts = tuple(_clean_parts(position, message, under_way))
        is_same = len(parts) == len(message.parts) and all(map(is_, parts, message.parts))
        cleaned.append(message if is_same else under_way.make(message.role, parts))
    has_content = _have_content(cleaned)
    for index, message in enumerate(cleaned):
        position = numbered[index][0]
        is_question = index == len(cleaned) - 1 and message.role == "user"
        if under_way.profile.allows_blank_text or is_question or has_content[index]:
            yield position, message
        else:
            under_way.changed("message_left_out", position)


def _have_content(messages: Sequence[M]) -> list[bool]:
    """Return which messages have content, or precede one that does as its thinking."""
    found: list[bool] = []
    # Whether the assistant's messages directly after this one have content.
    is_continued = False
    for message in reversed(messages):
        has_content = not has_only_thinking(message.parts)
        is_assistant = message.role == "assistant"
        found.append(has_content or (is_assistant and bool(message.parts) and is_continued))
        is_continued = is_assistant and (has_content or is_continued)
    return found[::-1]


def _clean_parts(position: int, message: M, under_way: _Repair[M]) -> list[AnyPart]:
    kept: list[AnyPart] = []
    for part in message.parts:
        match find_part_problem(part, message.role, under_way.profile):
            case "blank_text":
                under_way.changed("blank_text_left_out", position)
                if isinstance(part, ToolResult):
                    content = tuple(inner for inner in part.content if not is_blank(inner))
                    kept.append(msgspec.structs.replace(part, content=content))
                else:
                    _keep_mark(part, kept)
            case "unsigned_thinking":
                under_way.changed("thinking_left_out", position)
            case _:
                kept.append(part)
    return kept


def _keep_mark(left_out: AnyPart, kept: list[AnyPart]) -> None:
    """Move the cache mark of a text that is left out to the part before it."""
    before = kept[-1] if kept else None
    if left_out.cache is None or before is None or before.cache is not None:
        return
    if not isinstance(before, THINKING):
        kept[-1] = msgspec.structs.replace(before, cache=left_out.cache)


def _pair(numbered: Iterable[tuple[int, M]], under_way: _Repair[M]) -> Iterator[tuple[int, M]]:
    for exchange in split_exchanges(numbered, one_by_one=False):
        found = list(find_exchange_problems(exchange))
        if any(_has(ToolCall, message) for _, message in exchange.callers[:-1]):
            yield _merge(exchange.callers, under_way)
        else:
            yield from exchange.callers
        # Results in several messages that will be merged have to be in the order of their calls.
        results = sum(_has(ToolResult, message) for _, message in exchange.followers)
        is_scattered = results > 1 and not under_way.profile.has_tool_role
        has_duplicates = any(problem.code == "duplicate_call_id" for problem in found)
        if (found or is_scattered) and not has_duplicates:
            yield from _repair_followers(exchange, found, under_way)
        else:
            yield from exchange.followers


def _has(kind: type[Part], message: HasParts) -> bool:
    return any(isinstance(part, kind) for part in message.parts)


def _repair_followers(
    exchange: Exchange[M], found: list[Problem], under_way: _Repair[M]
) -> Iterator[tuple[int, M]]:
    """Yield the results in the order of their calls, then the rest."""
    for problem in found:
        under_way.changed(CHANGES[problem.code], problem.position)
    calls = exchange.calls()
    call_ids = {call.id for _, _, call in calls}
    first_results: dict[str, tuple[int, M, ToolResult]] = {}
    for position, message in exchange.followers:
        for part in message.parts:
            if isinstance(part, ToolResult) and part.call_id in call_ids:
                first_results.setdefault(part.call_id, (position, message, part))
    results: list[tuple[int, M]] = []
    for position, _, call in calls:
        if call.id in first_results:
            place, message, result = first_results[call.id]
            is_alone = len(message.parts) == 1
            results.append((place, message if is_alone else under_way.make("tool", (result,))))
        else:
            content = (Text(text=INTERRUPTED_CALL_TEXT),)
            result = ToolResult(call_id=call.id, content=content, is_error=True)
            results.append((position, under_way.make("tool", (result,))))
    if results and not under_way.profile.has_tool_role:
        yield results[0] if len(results) == 1 else _merge(results, under_way)
    else:
        yield from results
    used = {id(result) for _, _, result in first_results.values()}
    yield from _without_results(exchange.followers, used, under_way)


def _without_results(
    followers: list[tuple[int, M]], used: set[int], under_way: _Repair[M]
) -> Iterator[tuple[int, M]]:
    """Yield the other parts; results that answer no call become their content."""
    for position, message in followers:
        if not _has(ToolResult, message):
            yield position, message
            continue
        others: list[AnyPart] = []
        for part in message.parts:
            if not isinstance(part, ToolResult):
                others.append(part)
            elif id(part) not in used:
                # Without cache mark and extra fields.
                others += [
                    Text(text=inner.text) if isinstance(inner, Text) else inner
                    for inner in part.content
                ]
        if others:
            yield position, under_way.make("user", tuple(others))


def _join(numbered: Iterable[tuple[int, M]], under_way: _Repair[M]) -> Iterator[tuple[int, M]]:
    profile = under_way.profile
    group: list[tuple[int, M]] = []
    for position, message in numbered:
        if group and (
            profile.repeated_roles == "kept" or not is_merged_pair(group[-1][1], message, profile)
        ):
            yield _merge(group, under_way)
            group = []
        group.append((position, message))
    if group:
        yield _merge(group, under_way)


def _merge(group: list[tuple[int, M]], under_way: _Repair[M]) -> tuple[int, M]:
    position, first = group[0]
    if len(group) == 1:
        return position, first
    for (_, before), (place, after) in pairwise(group):
        if before.role == after.role != "tool" and not _has(ToolResult, before):
            under_way.changed("messages_merged", place)
    parts = tuple(part for _, message in group for part in message.parts)
    return position, under_way.make(effective_role(first), parts)


def _split(numbered: Iterable[tuple[int, M]], under_way: _Repair[M]) -> Iterator[tuple[int, M]]:
    """Move parts that may not be beside results to a turn after them."""
    beside = ("document_beside_result", "part_beside_result")
    for position, message in numbered:
        parts = message.parts
        refused = find_message_problem(parts, under_way.profile) in beside
        if not refused or message.role == "assistant":
            yield position, message
            continue
        under_way.changed("message_split", position)
        results = tuple(part for part in parts if isinstance(part, ToolResult))
        rest = tuple(part for part in parts if not isinstance(part, ToolResult))
        yield position, under_way.make("user", results)
        yield position, under_way.make("assistant", (Text(text=CONTINUATION_TEXT),))
        yield position, under_way.make("user", rest)


def _accompany(numbered: Iterable[tuple[int, M]], under_way: _Repair[M]) -> Iterator[tuple[int, M]]:
    """Add a text to documents without one."""
    for position, message in numbered:
        if find_message_problem(message.parts, under_way.profile) != "document_without_text":
            yield position, message
            continue
        under_way.changed("document_given_text", position)
        parts = (*message.parts, Text(text=DOCUMENT_PLACEHOLDER))
        yield position, under_way.make(message.role, parts)


def _begin(numbered: Iterable[tuple[int, M]], under_way: _Repair[M]) -> Iterator[tuple[int, M]]:
    """Put a user message before an assistant's that begins the history."""
    begun = not under_way.profile.starts_with_user
    for position, message in numbered:
        if not begun and message.role == "assistant":
            under_way.changed("message_added", position)
            yield position, under_way.make("user", (Text(text=FIRST_MESSAGE_TEXT),))
        begun = begun or message.role != "system"
        yield position, message


def _trim_end(numbered: Iterable[tuple[int, M]], under_way: _Repair[M]) -> list[tuple[int, M]]:
    repaired = list(numbered)
    sent = [message for _, message in repaired]
    for problem in find_ending_problems(sent, under_way.profile) if repaired else ():
        place, last = repaired[-1]
        *before, end = last.parts
        if problem.code == "blank_prefill_end" and isinstance(end, Text):
            under_way.changed("prefill_trimmed", place)
            trimmed = msgspec.structs.replace(end, text=end.text.rstrip())
            repaired[-1] = place, under_way.make("assistant", (*before, trimmed))
    return repaired


def accept_ordered_history(
    messages: Sequence[M],
    *,
    merge_results: bool,
    make: Callable[[Role, tuple[AnyPart, ...]], M],
    allow_prefill: bool = False,
) -> tuple[M, ...] | None:
    """Return the history with its results merged; None if it has to be checked.

    `allow_prefill`: the last message may be the assistant's.
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
                _put(answers, sent, make if merge_results else None)
                answers = []
                turn = "assistant"
        elif message.role == turn and _speaks(message, waiting):
            sent.append(message)
            turn = "assistant" if turn == "user" else "user"
        elif index == 0 and not merge_results and _instructs(message):
            sent.append(message)
        else:
            return None
    is_complete = turn == "assistant" or (allow_prefill and bool(sent) and _is_prefill(sent[-1]))
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

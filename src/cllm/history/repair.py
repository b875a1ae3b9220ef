"""Repairs a history that a provider would refuse, for one request; nothing stored is changed.

`accept_ordered_history` recognises in one pass a history that every provider accepts, as nearly all
are (decision 19 has the figures). `repair` returns the problems that it cannot repair. A message
that needs no repair stays the same object.
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
    HistoryProfile,
    M,
    Problem,
    ProblemCode,
    can_have_system,
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
    "blank_text_left_out": "Empty text was removed, because the provider refuses it.",
    "document_given_text": "A placeholder text was added to a message with a document and no text.",
    "interrupted_call_answered": "An error result was added for a tool call without a result.",
    "message_added": "A user message was added at the start, because the provider requires one.",
    "message_left_out": "A message without any content that can be sent was removed.",
    "message_split": "Parts in a message with tool results were moved to a separate message.",
    "messages_merged": "Consecutive messages of the same role were merged into one.",
    "prefill_trimmed": "White space at the end of the prefilled reply was removed.",
    "result_as_text": "A tool result that matches no open tool call was sent as text.",
    "result_moved": "A tool result was moved directly after its tool call.",
    "system_as_user": "A system message at a position that the provider refuses is sent as a user "
    "message.",
    "thinking_left_out": "Thinking without a signature was removed; it cannot be sent back.",
}
REPAIRS: dict[ProblemCode, str] = {
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


class _RepairContext(Generic[M]):
    def __init__(
        self, profile: HistoryProfile, make: Callable[[Role, tuple[AnyPart, ...]], M]
    ) -> None:
        self.profile = profile
        self.make = make
        self._changes: dict[str, list[int]] = {}

    def record_change(self, code: str, position: int) -> None:
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
    profile: HistoryProfile,
    *,
    make: Callable[[Role, tuple[AnyPart, ...]], M],
    positions: Sequence[int] | None = None,
) -> RepairResult[M]:
    """Return the messages in a form that this provider accepts.

    `positions` are those in the whole history, for notices and problems.
    """
    ordered = accept_ordered_history(
        messages,
        merge_results=not profile.has_tool_role,
        make=make,
        allow_prefill=profile.last_message != "not_assistant",
    )
    if ordered is not None:
        return RepairResult(messages=ordered)
    problems = find_problems(messages, profile)
    is_merged = profile.repeated_roles != "allowed" and any(
        is_merged_pair(one, other, profile) for one, other in pairwise(messages)
    )
    if not problems and not is_merged:
        return RepairResult(messages=tuple(messages))
    context = _RepairContext(profile, make)
    positions = tuple(positions or range(len(messages)))
    numbered = list(zip(positions, messages, strict=True))
    repaired = _trim_prefill(_arrange(numbered, context), context)
    sent = tuple(message for _, message in repaired)
    remaining = _renumber(find_problems(sent, profile), [position for position, _ in repaired])
    return RepairResult(
        messages=sent,
        notices=context.notices(),
        problems=_keep_positions(remaining, _renumber(problems, positions)) if remaining else (),
    )


def _renumber(problems: Iterable[Problem], positions: Sequence[int]) -> tuple[Problem, ...]:
    return tuple(
        msgspec.structs.replace(problem, position=positions[problem.position])
        if positions
        else problem
        for problem in problems
    )


def _keep_positions(
    remaining: tuple[Problem, ...], original: tuple[Problem, ...]
) -> tuple[Problem, ...]:
    """Return the remaining problems, with the positions before messages were merged."""
    unrepaired = [problem for problem in original if problem.code in NOT_REPAIRED]
    codes = {problem.code for problem in unrepaired}
    return (*unrepaired, *(problem for problem in remaining if problem.code not in codes))


def _arrange(numbered: list[tuple[int, M]], context: _RepairContext[M]) -> Iterator[tuple[int, M]]:
    paired = _pair_results(_remove_unsendable(numbered, context), context)
    placed = _convert_system(list(paired), context)
    split = _split_results(_merge_roles(placed, context), context)
    return _add_first_user_message(_add_document_text(split, context), context)


def _remove_unsendable(
    numbered: list[tuple[int, M]], context: _RepairContext[M]
) -> Iterator[tuple[int, M]]:
    """Remove parts that cannot be sent, and messages without other parts.

    An empty newest user message stays, so that the user learns of it, unless content of the user or
    of a tool precedes it.
    """
    cleaned: list[M] = []
    for position, message in numbered:
        parts = tuple(_clean_parts(position, message, context))
        is_same = len(parts) == len(message.parts) and all(map(is_, parts, message.parts))
        cleaned.append(message if is_same else context.make(message.role, parts))
    has_content = _find_content(cleaned)
    previous: Role | None = None
    for index, message in enumerate(cleaned):
        position = numbered[index][0]
        is_question = index == len(cleaned) - 1 and message.role == "user"
        if is_question and previous in ("user", "tool"):
            is_question = False
        if has_content[index]:
            # Each call gets a result, if only that it was interrupted.
            previous = "tool" if _has(ToolCall, message) else message.role
        if context.profile.allows_blank_text or is_question or has_content[index]:
            yield position, message
        else:
            context.record_change("message_left_out", position)


def _find_content(messages: Sequence[M]) -> list[bool]:
    """Return which messages have content, or precede one that does as its thinking."""
    results: list[bool] = []
    # Whether the assistant's messages directly after this one have content.
    is_continued = False
    for message in reversed(messages):
        has_content = not has_only_thinking(message.parts)
        is_assistant = message.role == "assistant"
        results.append(has_content or (is_assistant and bool(message.parts) and is_continued))
        is_continued = is_assistant and (has_content or is_continued)
    return results[::-1]


def _clean_parts(position: int, message: M, context: _RepairContext[M]) -> list[AnyPart]:
    parts: list[AnyPart] = []
    for part in message.parts:
        match find_part_problem(part, message.role, context.profile):
            case "blank_text":
                context.record_change("blank_text_left_out", position)
                if isinstance(part, ToolResult):
                    content = tuple(inner for inner in part.content if not is_blank(inner))
                    parts.append(msgspec.structs.replace(part, content=content))
                else:
                    _move_cache_control(part, parts)
            case "unsigned_thinking":
                context.record_change("thinking_left_out", position)
            case _:
                parts.append(part)
    return parts


def _move_cache_control(removed: AnyPart, parts: list[AnyPart]) -> None:
    """Move the cache breakpoint of a removed text to the part before it."""
    last = parts[-1] if parts else None
    if removed.cache is None or last is None or last.cache is not None:
        return
    if not isinstance(last, THINKING):
        parts[-1] = msgspec.structs.replace(last, cache=removed.cache)


def _pair_results(
    numbered: Iterable[tuple[int, M]], context: _RepairContext[M]
) -> Iterator[tuple[int, M]]:
    for exchange in split_exchanges(numbered, merge=True):
        problems = list(find_exchange_problems(exchange))
        if any(_has(ToolCall, message) for _, message in exchange.assistant_messages[:-1]):
            yield _merge(exchange.assistant_messages, context)
        else:
            yield from exchange.assistant_messages
        # Results in several messages that will be merged have to be in the order of their calls.
        results = sum(_has(ToolResult, message) for _, message in exchange.other_messages)
        is_scattered = results > 1 and not context.profile.has_tool_role
        has_duplicates = any(problem.code == "duplicate_call_id" for problem in problems)
        if (problems or is_scattered) and not has_duplicates:
            yield from _repair_results(exchange, problems, context)
        else:
            yield from exchange.other_messages


def _has(kind: type[Part], message: HasParts) -> bool:
    return any(isinstance(part, kind) for part in message.parts)


def _repair_results(
    exchange: Exchange[M], problems: list[Problem], context: _RepairContext[M]
) -> Iterator[tuple[int, M]]:
    """Yield the results in the order of their calls, then the rest."""
    for problem in problems:
        context.record_change(REPAIRS[problem.code], problem.position)
    calls = exchange.calls()
    call_ids = {call.id for _, _, call in calls}
    first_results: dict[str, tuple[int, M, ToolResult]] = {}
    for position, message in exchange.other_messages:
        for part in message.parts:
            if isinstance(part, ToolResult) and part.call_id in call_ids:
                first_results.setdefault(part.call_id, (position, message, part))
    results: list[tuple[int, M]] = []
    for position, _, call in calls:
        if call.id in first_results:
            result_position, message, result = first_results[call.id]
            is_alone = len(message.parts) == 1
            results.append(
                (result_position, message if is_alone else context.make("tool", (result,)))
            )
        else:
            content = (Text(text=INTERRUPTED_CALL_TEXT),)
            result = ToolResult(call_id=call.id, content=content, is_error=True)
            results.append((position, context.make("tool", (result,))))
    if results and not context.profile.has_tool_role:
        parts = tuple(part for _, message in results for part in message.parts)
        is_one = len(results) == 1
        yield results[0] if is_one else (results[0][0], context.make("tool", parts))
    else:
        yield from results
    paired = {id(result) for _, _, result in first_results.values()}
    yield from _convert_unpaired(exchange.other_messages, paired, context)


def _convert_unpaired(
    messages: list[tuple[int, M]], paired: set[int], context: _RepairContext[M]
) -> Iterator[tuple[int, M]]:
    """Yield the messages without paired results; other results become their content."""
    for position, message in messages:
        if not _has(ToolResult, message):
            yield position, message
            continue
        others: list[AnyPart] = []
        for part in message.parts:
            if not isinstance(part, ToolResult):
                others.append(part)
            elif id(part) not in paired:
                # Without cache breakpoint and extra fields.
                others += [
                    Text(text=inner.text) if isinstance(inner, Text) else inner
                    for inner in part.content
                ]
        if others:
            yield position, context.make("user", tuple(others))


def _convert_system(
    numbered: list[tuple[int, M]], context: _RepairContext[M]
) -> Iterator[tuple[int, M]]:
    messages = [message for _, message in numbered]
    for index, (position, message) in enumerate(numbered):
        if message.role != "system" or can_have_system(messages, index, context.profile):
            yield position, message
        else:
            context.record_change("system_as_user", position)
            yield position, context.make("user", message.parts)


def _merge_roles(
    numbered: Iterable[tuple[int, M]], context: _RepairContext[M]
) -> Iterator[tuple[int, M]]:
    profile = context.profile
    group: list[tuple[int, M]] = []
    for position, message in numbered:
        if group and (
            profile.repeated_roles == "allowed"
            or not is_merged_pair(group[-1][1], message, profile)
        ):
            yield _merge(group, context)
            group = []
        group.append((position, message))
    if group:
        yield _merge(group, context)


def _merge(group: list[tuple[int, M]], context: _RepairContext[M]) -> tuple[int, M]:
    position, first = group[0]
    if len(group) == 1:
        return position, first
    for (_, before), (after_position, after) in pairwise(group):
        if before.role == after.role != "tool" and not _has(ToolResult, before):
            context.record_change("messages_merged", after_position)
    parts = tuple(part for _, message in group for part in message.parts)
    return position, context.make(effective_role(first), parts)


def _split_results(
    numbered: Iterable[tuple[int, M]], context: _RepairContext[M]
) -> Iterator[tuple[int, M]]:
    """Move parts that are not allowed with tool results to a turn after them."""
    codes = ("document_beside_result", "part_beside_result")
    for position, message in numbered:
        parts = message.parts
        is_refused = find_message_problem(parts, context.profile) in codes
        if not is_refused or message.role == "assistant":
            yield position, message
            continue
        context.record_change("message_split", position)
        results = tuple(part for part in parts if isinstance(part, ToolResult))
        rest = tuple(part for part in parts if not isinstance(part, ToolResult))
        yield position, context.make("user", results)
        yield position, context.make("assistant", (Text(text=CONTINUATION_TEXT),))
        yield position, context.make("user", rest)


def _add_document_text(
    numbered: Iterable[tuple[int, M]], context: _RepairContext[M]
) -> Iterator[tuple[int, M]]:
    for position, message in numbered:
        if find_message_problem(message.parts, context.profile) != "document_without_text":
            yield position, message
            continue
        context.record_change("document_given_text", position)
        parts = (*message.parts, Text(text=DOCUMENT_PLACEHOLDER))
        yield position, context.make(message.role, parts)


def _add_first_user_message(
    numbered: Iterable[tuple[int, M]], context: _RepairContext[M]
) -> Iterator[tuple[int, M]]:
    has_user = not context.profile.starts_with_user
    for position, message in numbered:
        if not has_user and message.role == "assistant":
            context.record_change("message_added", position)
            yield position, context.make("user", (Text(text=FIRST_MESSAGE_TEXT),))
        has_user = has_user or message.role != "system"
        yield position, message


def _trim_prefill(
    numbered: Iterable[tuple[int, M]], context: _RepairContext[M]
) -> list[tuple[int, M]]:
    repaired = list(numbered)
    sent = [message for _, message in repaired]
    for problem in find_ending_problems(sent, context.profile) if repaired else ():
        position, last = repaired[-1]
        *before, end = last.parts
        if problem.code == "blank_prefill_end" and isinstance(end, Text):
            context.record_change("prefill_trimmed", position)
            trimmed = msgspec.structs.replace(end, text=end.text.rstrip())
            repaired[-1] = position, context.make("assistant", (*before, trimmed))
    return repaired


def accept_ordered_history(
    messages: Sequence[M],
    *,
    merge_results: bool,
    make: Callable[[Role, tuple[AnyPart, ...]], M],
    allow_prefill: bool = False,
) -> tuple[M, ...] | None:
    """Return a history that every provider accepts; None if it needs `find_problems`.

    `merge_results` puts results of one message's calls into one message.
    """
    sent: list[M] = []
    next_role = "user"
    open_calls: dict[str, int] = {}
    answers: list[M] = []
    for index, message in enumerate(messages):
        if open_calls:
            if not _take_results(message, open_calls):
                return None
            answers.append(message)
            if not open_calls:
                _append_results(answers, sent, make if merge_results else None)
                answers = []
                next_role = "assistant"
        elif message.role == next_role and _take_content(message, open_calls):
            sent.append(message)
            next_role = "assistant" if next_role == "user" else "user"
        elif index == 0 and not merge_results and _is_system_prompt(message):
            sent.append(message)
        else:
            return None
    is_complete = next_role == "assistant" or (
        allow_prefill and bool(sent) and _is_prefill(sent[-1])
    )
    return tuple(sent) if is_complete and not open_calls else None


def _is_prefill(message: HasParts) -> bool:
    end = message.parts[-1] if message.parts else None
    return message.role == "assistant" and type(end) is Text and not end.text[-1].isspace()


def _append_results(
    answers: list[M], sent: list[M], make: Callable[[Role, tuple[AnyPart, ...]], M] | None
) -> None:
    """Append the results; with `make`, merged into one message."""
    if make is None or len(answers) == 1:
        sent += answers
        return
    calls = (part for part in sent[-1].parts if type(part) is ToolCall)
    order = {call.id: index for index, call in enumerate(calls)}
    results = [p for answer in answers for p in answer.parts if type(p) is ToolResult]
    results.sort(key=lambda result: order[result.call_id])
    sent.append(make("user", tuple(results)))


def _take_results(message: HasParts, open_calls: dict[str, int]) -> bool:
    """Remove the calls of its results from `open_calls`; False if it has anything else."""
    if message.role not in ("tool", "user"):
        return False
    for part in message.parts:
        if type(part) is not ToolResult or open_calls.pop(part.call_id, None) is None:
            return False
        for inner in part.content:
            if type(inner) is Text and not inner.text.strip():
                return False
    return bool(message.parts)


def _take_content(message: HasParts, open_calls: dict[str, int]) -> bool:
    """Add its new calls to `open_calls`; False unless it has only texts, images and calls."""
    is_assistant = message.role == "assistant"
    has_content = False
    for part in message.parts:
        kind = type(part)
        if kind is Text:
            if not part.text or part.text.isspace():  # type: ignore[union-attr]
                return False
            has_content = True
        elif kind is ToolCall and is_assistant and part.id not in open_calls:  # type: ignore[union-attr]
            open_calls[part.id] = len(open_calls)  # type: ignore[union-attr]
            has_content = True
        elif kind is Image and not is_assistant:
            has_content = True
        elif not (is_assistant and _is_signed(part)):
            return False
    return has_content


def _is_signed(part: AnyPart) -> bool:
    return isinstance(part, RedactedThinking) or (
        isinstance(part, Thinking) and bool(part.signature)
    )


def _is_system_prompt(message: HasParts) -> bool:
    if message.role != "system" or not message.parts:
        return False
    return all(isinstance(part, Text) and bool(part.text.strip()) for part in message.parts)

"""What can be mended in a history that a provider would refuse: new messages, for the wire only.

A repair answers calls that were interrupted, puts results behind their calls, leaves out what is
blank, and joins what stands side by side. It never writes to a store, never changes an order of
words, and leaves what it cannot mend to the caller, as problems. A message that needs nothing stays
the same object.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from operator import is_
from typing import Generic

import msgspec

from cllm.assembly.validity import (
    Exchange,
    HasParts,
    M,
    Problem,
    ProblemCode,
    Profile,
    check,
    ending_problems,
    exchange_problems,
    exchanges,
    is_blank,
    joins,
    only_thinking,
    part_problem,
    side,
    whole_problem,
)
from cllm.core.message import AnyPart, Role, Text, ToolCall, ToolResult
from cllm.core.notice import Notice

INTERRUPTED = "The call was interrupted; there is no result."
DOCUMENT_PLACEHOLDER = "(document)"
NOTICES = {
    "blank_text_left_out": "Empty text was left out; the provider refuses it.",
    "document_given_text": "A document without text beside it was given some.",
    "interrupted_call_answered": "A tool call without a result was answered with an error.",
    "message_left_out": "A message with nothing in it that can be sent was left out.",
    "messages_merged": "Messages of one role side by side were sent as one.",
    "prefill_trimmed": "White space at the end of the answer's beginning was left out.",
    "result_left_out": "A tool result that answers no call before it, or one twice, was left out.",
    "result_moved": "A tool result was put directly after its call.",
    "thinking_left_out": "Thinking without a signature cannot be sent back and was left out.",
}
CHANGES: dict[ProblemCode, str] = {
    "duplicate_result": "result_left_out",
    "late_result": "result_moved",
    "missing_result": "interrupted_call_answered",
    "orphan_result": "result_left_out",
}


class Repaired(msgspec.Struct, Generic[M], frozen=True, kw_only=True):
    """The messages as they can be sent, what was changed, and what is still wrong with them."""

    messages: tuple[M, ...]
    notices: tuple[Notice, ...] = ()
    problems: tuple[Problem, ...] = ()


class _Repair(Generic[M]):
    """One repair under way: the rules, how a message is made, and what was changed."""

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
) -> Repaired[M]:
    """The messages as this provider takes them, as far as that needs no invention.

    `make` builds a message out of a role and parts; messages that need nothing are passed on.
    """
    if not check(messages, profile) and not _to_be_joined(messages, profile):
        return Repaired(messages=tuple(messages))
    under_way = _Repair(profile, make)
    mended = _ended(
        _joined(_paired(_cleaned(messages, under_way), under_way), under_way), under_way
    )
    return Repaired(
        messages=tuple(mended), notices=under_way.notices(), problems=check(mended, profile)
    )


def _to_be_joined(messages: Sequence[M], profile: Profile) -> bool:
    return profile.repeats != "kept" and any(
        joins(before, after, profile) for before, after in pairwise(messages)
    )


def _cleaned(messages: Sequence[M], under_way: _Repair[M]) -> Iterator[tuple[int, M]]:
    """Each message without what cannot be sent; a message of which nothing is left goes too."""
    takes_blank = under_way.profile.takes_blank
    for position, message in enumerate(messages):
        parts = tuple(_cleaned_parts(position, message, under_way))
        if not takes_blank and only_thinking(parts):
            under_way.changed("message_left_out", position)
            continue
        if whole_problem(parts, under_way.profile) == "document_without_text":
            under_way.changed("document_given_text", position)
            parts = (*parts, Text(text=DOCUMENT_PLACEHOLDER))
        same = len(parts) == len(message.parts) and all(map(is_, parts, message.parts))
        yield position, message if same else under_way.make(message.role, parts)


def _cleaned_parts(position: int, message: M, under_way: _Repair[M]) -> Iterator[AnyPart]:
    for part in message.parts:
        match part_problem(part, message.role, under_way.profile):
            case "blank_text":
                under_way.changed("blank_text_left_out", position)
                if isinstance(part, ToolResult):
                    kept = tuple(inner for inner in part.content if not is_blank(inner))
                    yield msgspec.structs.replace(part, content=kept)
            case "unsigned_thinking":
                under_way.changed("thinking_left_out", position)
            case _:
                yield part


def _paired(numbered: Iterable[tuple[int, M]], under_way: _Repair[M]) -> Iterator[tuple[int, M]]:
    for exchange in exchanges(numbered, one_by_one=False):
        found = list(exchange_problems(exchange))
        early_callers = any(_has_call(message) for _, message in exchange.callers[:-1])
        if early_callers:
            yield _merged(exchange.callers, under_way)
        else:
            yield from exchange.callers
        if not found or any(problem.code == "duplicate_call_id" for problem in found):
            yield from exchange.followers
        else:
            yield from _repaired_followers(exchange, found, under_way)


def _has_call(message: HasParts) -> bool:
    return any(isinstance(part, ToolCall) for part in message.parts)


def _repaired_followers(
    exchange: Exchange[M], found: list[Problem], under_way: _Repair[M]
) -> Iterator[tuple[int, M]]:
    """The results in the order of their calls, each once, and then the rest."""
    for problem in found:
        under_way.changed(CHANGES[problem.code], problem.position)
    given: dict[str, tuple[int, M, ToolResult]] = {}
    for position, message in exchange.followers:
        for part in message.parts:
            if isinstance(part, ToolResult):
                given.setdefault(part.call_id, (position, message, part))
    results: list[tuple[int, M]] = []
    for position, _, call in exchange.calls():
        if call.id not in given:
            results.append((position, under_way.make("tool", (_interrupted(call),))))
            continue
        place, message, result = given[call.id]
        alone = len(message.parts) == 1
        results.append((place, message if alone else under_way.make("tool", (result,))))
    if results and not under_way.profile.has_tool_role:
        yield results[0] if len(results) == 1 else _merged(results, under_way)
    else:
        yield from results
    yield from _without_results(exchange.followers, under_way)


def _interrupted(call: ToolCall) -> ToolResult:
    return ToolResult(call_id=call.id, content=(Text(text=INTERRUPTED),), is_error=True)


def _without_results(
    followers: list[tuple[int, M]], under_way: _Repair[M]
) -> Iterator[tuple[int, M]]:
    for position, message in followers:
        others = tuple(part for part in message.parts if not isinstance(part, ToolResult))
        if len(others) == len(message.parts):
            yield position, message
        elif others:
            yield position, under_way.make("user", others)


def _joined(numbered: Iterable[tuple[int, M]], under_way: _Repair[M]) -> Iterator[M]:
    """Neighbours that the provider wants as one message."""
    profile = under_way.profile
    group: list[tuple[int, M]] = []
    for position, message in numbered:
        if group and (profile.repeats == "kept" or not joins(group[-1][1], message, profile)):
            yield _merged(group, under_way)[1]
            group = []
        group.append((position, message))
    if group:
        yield _merged(group, under_way)[1]


def _merged(group: list[tuple[int, M]], under_way: _Repair[M]) -> tuple[int, M]:
    position, first = group[0]
    if len(group) == 1:
        return position, first
    for (_, before), (place, after) in pairwise(group):
        if before.role == after.role != "tool" and not _has_result(before):
            under_way.changed("messages_merged", place)
    parts = tuple(part for _, message in group for part in message.parts)
    return position, under_way.make(side(first), parts)


def _has_result(message: HasParts) -> bool:
    return any(isinstance(part, ToolResult) for part in message.parts)


def _ended(messages: Iterable[M], under_way: _Repair[M]) -> list[M]:
    """The messages, the last one without white space at its end where it begins the answer."""
    mended = list(messages)
    for problem in ending_problems(mended, under_way.profile) if mended else ():
        *before, end = mended[-1].parts
        if problem.code == "blank_prefill_end" and isinstance(end, Text):
            under_way.changed("prefill_trimmed", problem.position)
            trimmed = msgspec.structs.replace(end, text=end.text.rstrip())
            mended[-1] = under_way.make("assistant", (*before, trimmed))
    return mended

"""What can be mended in a history that a provider would refuse: new messages, for the wire only.

A repair answers calls that were interrupted, puts results behind their calls, leaves out what is
blank, and joins or parts what may not stand as it does. It never writes to a store, never changes
an order of words, and leaves what it cannot mend to the caller, as problems. A message that needs
nothing stays the same object.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from operator import is_
from typing import Generic

import msgspec

from cllm.assembly.orderly import in_order
from cllm.assembly.validity import (
    THINKING,
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

BEGINNING = "(empty)"
CONTINUED = "(continued)"
DOCUMENT_PLACEHOLDER = "(document attached)"
INTERRUPTED = "The call was interrupted; there is no result."
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
NEVER_MENDED = ("duplicate_call_id", "misplaced_part")


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
    places: Sequence[int] | None = None,
) -> Repaired[M]:
    """The messages as this provider takes them, as far as that needs no invention.

    `make` builds a message out of a role and parts; messages that need nothing are passed on.
    `places` are the positions by which notices and problems name the messages, where some that
    stood among them are not here.
    """
    ordered = in_order(
        messages,
        one_answer=not profile.has_tool_role,
        make=make,
        begins_answer=profile.ending != "not_assistant",
    )
    if ordered is not None:
        return Repaired(messages=ordered)
    before = check(messages, profile)
    if not before and not _to_be_joined(messages, profile):
        return Repaired(messages=tuple(messages))
    under_way = _Repair(profile, make)
    positions = tuple(places or range(len(messages)))
    numbered = list(zip(positions, messages, strict=True))
    mended = _ended(_arranged(numbered, under_way), under_way)
    sent = tuple(message for _, message in mended)
    left = _placed(check(sent, profile), [position for position, _ in mended])
    return Repaired(
        messages=sent,
        notices=under_way.notices(),
        problems=_as_found(left, _placed(before, positions)) if left else (),
    )


def _placed(problems: Iterable[Problem], places: Sequence[int]) -> tuple[Problem, ...]:
    return tuple(
        msgspec.structs.replace(problem, position=places[problem.position]) if places else problem
        for problem in problems
    )


def _as_found(left: tuple[Problem, ...], before: tuple[Problem, ...]) -> tuple[Problem, ...]:
    """What is left, at the places where it was found before messages were joined."""
    found = [problem for problem in before if problem.code in NEVER_MENDED]
    known = {problem.code for problem in found}
    return (*found, *(problem for problem in left if problem.code not in known))


def _to_be_joined(messages: Sequence[M], profile: Profile) -> bool:
    return profile.repeats != "kept" and any(
        joins(before, after, profile) for before, after in pairwise(messages)
    )


def _arranged(numbered: list[tuple[int, M]], under_way: _Repair[M]) -> Iterator[tuple[int, M]]:
    """Every step but the last: clean, pair, join, part, and what has to stand beside or before."""
    paired = _paired(_cleaned(numbered, under_way), under_way)
    parted = _parted(_joined(paired, under_way), under_way)
    return _begun(_accompanied(parted, under_way), under_way)


def _cleaned(numbered: list[tuple[int, M]], under_way: _Repair[M]) -> Iterator[tuple[int, M]]:
    """Each message without what cannot be sent; a message of which nothing is left goes too.

    But not the newest one: that nothing is asked is for the person to know.
    """
    cleaned = [_cleaned_message(position, message, under_way) for position, message in numbered]
    heard = _heard(cleaned)
    for index, message in enumerate(cleaned):
        position = numbered[index][0]
        asks = index == len(cleaned) - 1 and message.role == "user"
        if under_way.profile.takes_blank or asks or heard[index]:
            yield position, message
        else:
            under_way.changed("message_left_out", position)


def _cleaned_message(position: int, message: M, under_way: _Repair[M]) -> M:
    parts = tuple(_cleaned_parts(position, message, under_way))
    same = len(parts) == len(message.parts) and all(map(is_, parts, message.parts))
    return message if same else under_way.make(message.role, parts)


def _heard(messages: Sequence[M]) -> list[bool]:
    """Whether each message says something, or is what was thought before one that does."""
    heard: list[bool] = []
    # Whether the assistant goes on behind a message and says something before anybody else does.
    is_led_on = False
    for message in reversed(messages):
        says = not only_thinking(message.parts)
        theirs = message.role == "assistant"
        heard.append(says or (theirs and bool(message.parts) and is_led_on))
        is_led_on = theirs and (says or is_led_on)
    heard.reverse()
    return heard


def _cleaned_parts(position: int, message: M, under_way: _Repair[M]) -> list[AnyPart]:
    kept: list[AnyPart] = []
    for part in message.parts:
        match part_problem(part, message.role, under_way.profile):
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
    """The cache mark of a text that goes, on the part before it: it ends in the same place."""
    before = kept[-1] if kept else None
    if left_out.cache is None or before is None or before.cache is not None:
        return
    if not isinstance(before, THINKING):
        kept[-1] = msgspec.structs.replace(before, cache=left_out.cache)


def _paired(numbered: Iterable[tuple[int, M]], under_way: _Repair[M]) -> Iterator[tuple[int, M]]:
    for exchange in exchanges(numbered, one_by_one=False):
        found = list(exchange_problems(exchange))
        early_callers = any(_has_call(message) for _, message in exchange.callers[:-1])
        if early_callers:
            yield _merged(exchange.callers, under_way)
        else:
            yield from exchange.callers
        if any(problem.code == "duplicate_call_id" for problem in found):
            yield from exchange.followers
        elif found or _is_scattered(exchange, under_way.profile):
            yield from _repaired_followers(exchange, found, under_way)
        else:
            yield from exchange.followers


def _is_scattered(exchange: Exchange[M], profile: Profile) -> bool:
    """Whether results stand in several messages that will be one, where calls have an order."""
    answers = sum(_has_result(message) for _, message in exchange.followers)
    return answers > 1 and not profile.has_tool_role


def _has_call(message: HasParts) -> bool:
    return any(isinstance(part, ToolCall) for part in message.parts)


def _repaired_followers(
    exchange: Exchange[M], found: list[Problem], under_way: _Repair[M]
) -> Iterator[tuple[int, M]]:
    """The results in the order of their calls, each once, and then the rest."""
    for problem in found:
        under_way.changed(CHANGES[problem.code], problem.position)
    calls = exchange.calls()
    given = _given_results(exchange, {call.id for _, _, call in calls})
    results: list[tuple[int, M]] = []
    for position, _, call in calls:
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
    placed = {id(result) for _, _, result in given.values()}
    yield from _without_results(exchange.followers, placed, under_way)


def _given_results(exchange: Exchange[M], calls: set[str]) -> dict[str, tuple[int, M, ToolResult]]:
    """The first result of each call, and where it stood."""
    given: dict[str, tuple[int, M, ToolResult]] = {}
    for position, message in exchange.followers:
        for part in message.parts:
            if isinstance(part, ToolResult) and part.call_id in calls:
                given.setdefault(part.call_id, (position, message, part))
    return given


def _interrupted(call: ToolCall) -> ToolResult:
    return ToolResult(call_id=call.id, content=(Text(text=INTERRUPTED),), is_error=True)


def _without_results(
    followers: list[tuple[int, M]], placed: set[int], under_way: _Repair[M]
) -> Iterator[tuple[int, M]]:
    """What else was said; a result that has no place behind a call as what it says."""
    for position, message in followers:
        if not _has_result(message):
            yield position, message
            continue
        others: list[AnyPart] = []
        for part in message.parts:
            if not isinstance(part, ToolResult):
                others.append(part)
            elif id(part) not in placed:
                others += map(_as_said, part.content)
        if others:
            yield position, under_way.make("user", tuple(others))


def _as_said(part: AnyPart) -> AnyPart:
    return Text(text=part.text) if isinstance(part, Text) else part


def _joined(numbered: Iterable[tuple[int, M]], under_way: _Repair[M]) -> Iterator[tuple[int, M]]:
    """Neighbours that the provider wants as one message."""
    profile = under_way.profile
    group: list[tuple[int, M]] = []
    for position, message in numbered:
        if group and (profile.repeats == "kept" or not joins(group[-1][1], message, profile)):
            yield _merged(group, under_way)
            group = []
        group.append((position, message))
    if group:
        yield _merged(group, under_way)


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


def _parted(numbered: Iterable[tuple[int, M]], under_way: _Repair[M]) -> Iterator[tuple[int, M]]:
    """Results by themselves, and what may not stand beside them in a turn after that."""
    beside = ("document_beside_result", "part_beside_result")
    for position, message in numbered:
        parts = message.parts
        refused = whole_problem(parts, under_way.profile) in beside
        if not refused or message.role == "assistant":
            yield position, message
            continue
        under_way.changed("message_split", position)
        results = tuple(part for part in parts if isinstance(part, ToolResult))
        rest = tuple(part for part in parts if not isinstance(part, ToolResult))
        yield position, under_way.make("user", results)
        yield position, under_way.make("assistant", (Text(text=CONTINUED),))
        yield position, under_way.make("user", rest)


def _accompanied(
    numbered: Iterable[tuple[int, M]], under_way: _Repair[M]
) -> Iterator[tuple[int, M]]:
    """Documents with a text beside them, where the provider wants one."""
    for position, message in numbered:
        if whole_problem(message.parts, under_way.profile) != "document_without_text":
            yield position, message
            continue
        under_way.changed("document_given_text", position)
        parts = (*message.parts, Text(text=DOCUMENT_PLACEHOLDER))
        yield position, under_way.make(message.role, parts)


def _begun(numbered: Iterable[tuple[int, M]], under_way: _Repair[M]) -> Iterator[tuple[int, M]]:
    """A history that begins with the user, where it has to: an assistant's greeting stays."""
    begun = not under_way.profile.starts_with_user
    for position, message in numbered:
        if not begun and message.role == "assistant":
            under_way.changed("message_added", position)
            yield position, under_way.make("user", (Text(text=BEGINNING),))
        begun = begun or message.role != "system"
        yield position, message


def _ended(numbered: Iterable[tuple[int, M]], under_way: _Repair[M]) -> list[tuple[int, M]]:
    """The messages, the last one without white space at its end where it begins the answer."""
    mended = list(numbered)
    sent = [message for _, message in mended]
    for problem in ending_problems(sent, under_way.profile) if mended else ():
        place, last = mended[-1]
        *before, end = last.parts
        if problem.code == "blank_prefill_end" and isinstance(end, Text):
            under_way.changed("prefill_trimmed", place)
            trimmed = msgspec.structs.replace(end, text=end.text.rstrip())
            mended[-1] = place, under_way.make("assistant", (*before, trimmed))
    return mended

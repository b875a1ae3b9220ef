"""What each provider accepts as a history, and what is wrong with one by these rules.

A profile is data: the rules of one kind of model. A check lists problems by position; it never
changes a message (`repair` does). Results are paired with calls by position: with the assistant's
message directly before them. The same ID may come again later in a conversation.
"""

import re
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Generic, Literal, Protocol, TypeVar

import msgspec

from cllm.core.message import (
    AnyPart,
    Dialect,
    Document,
    RedactedThinking,
    Refusal,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Unknown,
)


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """The rules of one provider.

    `repeats`: what becomes of two messages of one role side by side. `system`: where among the
    messages a system message may stand; `after_user` is between the user and the answer. `ending`:
    whether the last message may be the assistant's; as a `prefill` it may, without white space at
    its end. `thinking`: sent back if it is signed, or by a rule of the codec. `beside_results`:
    what may stand in one message with tool results; Claude on Bedrock takes no document there,
    Llama and Mistral (`bedrock-plain`) nothing at all.
    """

    name: str
    repeats: Literal["kept", "merged", "refused"]
    starts_with_user: bool
    system: Literal["anywhere", "first", "after_user", "nowhere"]
    ending: Literal["anything", "prefill", "not_assistant"]
    thinking: Literal["signed", "left_out"]
    takes_blank: bool
    has_tool_role: bool
    document_needs_text: bool = False
    beside_results: Literal["anything", "no_document", "nothing"] = "anything"


ANTHROPIC = Profile(
    name="anthropic",
    repeats="merged",
    starts_with_user=True,
    system="nowhere",
    ending="not_assistant",
    thinking="signed",
    takes_blank=False,
    has_tool_role=False,
)
ANTHROPIC_PREFILL = msgspec.structs.replace(ANTHROPIC, name="anthropic-prefill", ending="prefill")
ANTHROPIC_SYSTEM = msgspec.structs.replace(ANTHROPIC, name="anthropic-system", system="after_user")
OPENAI = Profile(
    name="openai",
    repeats="kept",
    starts_with_user=False,
    system="anywhere",
    ending="anything",
    thinking="left_out",
    takes_blank=True,
    has_tool_role=True,
)
BEDROCK = Profile(
    name="bedrock",
    repeats="refused",
    starts_with_user=True,
    system="nowhere",
    ending="not_assistant",
    thinking="signed",
    takes_blank=False,
    has_tool_role=False,
    document_needs_text=True,
    beside_results="no_document",
)
BEDROCK_PREFILL = msgspec.structs.replace(BEDROCK, name="bedrock-prefill", ending="prefill")
BEDROCK_PLAIN = msgspec.structs.replace(BEDROCK, name="bedrock-plain", beside_results="nothing")
BEDROCK_OTHER = msgspec.structs.replace(
    BEDROCK_PREFILL, name="bedrock-other", beside_results="anything"
)
STRICT = Profile(
    name="strict",
    repeats="refused",
    starts_with_user=True,
    system="first",
    ending="not_assistant",
    thinking="left_out",
    takes_blank=False,
    has_tool_role=True,
)
PROFILES = {
    profile.name: profile
    for profile in (
        ANTHROPIC,
        ANTHROPIC_PREFILL,
        ANTHROPIC_SYSTEM,
        OPENAI,
        BEDROCK,
        BEDROCK_PREFILL,
        BEDROCK_PLAIN,
        BEDROCK_OTHER,
        STRICT,
    )
}
NO_PREFILL_SINCE = (4, 6)
SYSTEM_TURNS_SINCE = (4, 8)
NEWEST = (99, 0)
_VERSION = re.compile(r"\D*?(\d{1,2})(?:[-.](\d{1,2}))?(?!\d)")
_RESULTS_ALONE = re.compile(r"(?:^|[./])(?:meta\.llama|mistral\.)")


def profile_for(dialect: Dialect, model: str) -> Profile:
    """The rules by which a model of this name takes a history in this protocol.

    A name that says nothing of a version is given what most models take, and the provider's word.
    """
    if dialect in ("openai", "responses"):
        return OPENAI
    version = _claude_version(model)
    if dialect == "anthropic":
        if version is None or version < NO_PREFILL_SINCE:
            return ANTHROPIC_PREFILL
        return ANTHROPIC if version < SYSTEM_TURNS_SINCE else ANTHROPIC_SYSTEM
    if version is not None:
        return BEDROCK_PREFILL if version < NO_PREFILL_SINCE else BEDROCK
    return BEDROCK_PLAIN if _RESULTS_ALONE.search(model) else BEDROCK_OTHER


def _claude_version(model: str) -> tuple[int, int] | None:
    """4.6 of claude-opus-4-6-20260205; a Claude without a number is the newest, another none."""
    _, claude, rest = model.lower().partition("claude")
    if not claude:
        return None
    found = _VERSION.match(rest)
    return (int(found[1]), int(found[2] or 0)) if found else NEWEST


class HasParts(Protocol):
    """What is looked at: a message on its way to a provider, whatever else it carries."""

    @property
    def role(self) -> Role: ...

    @property
    def parts(self) -> tuple[AnyPart, ...]: ...


M = TypeVar("M", bound=HasParts)

ProblemCode = Literal[
    "assistant_last",
    "blank_prefill_end",
    "blank_text",
    "document_beside_result",
    "document_without_text",
    "duplicate_call_id",
    "duplicate_result",
    "empty_message",
    "late_result",
    "misplaced_part",
    "missing_result",
    "no_messages",
    "only_thinking",
    "orphan_result",
    "part_beside_result",
    "repeated_role",
    "starts_without_user",
    "system_message",
    "unsigned_thinking",
]
SENTENCES: dict[ProblemCode, str] = {
    "assistant_last": "the last message is the assistant's",
    "blank_prefill_end": "the beginning given to the answer ends in white space",
    "blank_text": "a text is empty or only white space",
    "document_beside_result": "a document stands beside a tool result",
    "document_without_text": "a document stands in a message without text",
    "duplicate_call_id": "two tool calls in one message have the same id",
    "duplicate_result": "a tool call is answered twice",
    "empty_message": "a message says nothing",
    "late_result": "a tool result does not come directly after its call",
    "misplaced_part": "a part stands in a message of a role that cannot say it",
    "missing_result": "a tool call has no result",
    "no_messages": "there are no messages",
    "only_thinking": "a message holds nothing but thinking",
    "orphan_result": "a tool result answers no call of the message before it",
    "part_beside_result": "something stands beside a tool result",
    "repeated_role": "two messages of the same role follow one another",
    "starts_without_user": "the first message is not the user's",
    "system_message": "a system message stands among the messages",
    "unsigned_thinking": "thinking has no signature",
}


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """One violation: where it is (message, and part if it is about one) and what it is."""

    code: ProblemCode
    position: int
    part: int | None = None
    detail: str = ""

    @property
    def path(self) -> str:
        part = "" if self.part is None else f".content[{self.part}]"
        return f"messages[{self.position}]{part}"

    @property
    def message(self) -> str:
        detail = f" ({self.detail})" if self.detail else ""
        return f"{SENTENCES[self.code]}{detail}"


def check(messages: Sequence[HasParts], profile: Profile) -> tuple[Problem, ...]:
    """What this provider would refuse, by position."""
    if not messages:
        return (Problem(code="no_messages", position=0),)
    found = [
        *_order_problems(messages, profile),
        *(
            problem
            for position, message in enumerate(messages)
            for problem in _message_problems(position, message, profile)
        ),
        *_pairing_problems(messages, profile),
    ]
    return tuple(sorted(found, key=lambda problem: problem.position))


def _order_problems(messages: Sequence[HasParts], profile: Profile) -> Iterator[Problem]:
    speakers = [n for n, message in enumerate(messages) if message.role != "system"]
    if profile.starts_with_user:
        if not speakers:
            yield Problem(code="starts_without_user", position=0)
        elif _speaker(messages[speakers[0]], profile) != "user":
            yield Problem(code="starts_without_user", position=speakers[0])
    for position, message in enumerate(messages):
        if message.role == "system" and not _system_may_stand(messages, position, profile):
            yield Problem(code="system_message", position=position)
    if profile.repeats == "refused":
        for before, after in pairwise(speakers):
            if joins(messages[before], messages[after], profile):
                yield Problem(code="repeated_role", position=after)
    yield from ending_problems(messages, profile)


def _speaker(message: HasParts, profile: Profile) -> Role:
    return message.role if profile.has_tool_role else side(message)


def _system_may_stand(messages: Sequence[HasParts], position: int, profile: Profile) -> bool:
    if profile.system == "after_user":
        before = messages[position - 1].role if position else "system"
        after = messages[position + 1].role if position + 1 < len(messages) else "assistant"
        return before in ("user", "tool") and after == "assistant"
    return profile.system == "anywhere" or (profile.system == "first" and position == 0)


def joins(before: HasParts, after: HasParts, profile: Profile) -> bool:
    """Whether two neighbours are one message to the provider."""
    if profile.has_tool_role and "tool" in (before.role, after.role):
        return False
    return side(before) == side(after)


def side(message: HasParts) -> Role:
    return "user" if message.role == "tool" else message.role


def ending_problems(messages: Sequence[HasParts], profile: Profile) -> Iterator[Problem]:
    position = len(messages) - 1
    last = messages[position]
    if last.role != "assistant" or profile.ending == "anything":
        return
    end = last.parts[-1] if last.parts else None
    if profile.ending == "not_assistant":
        if not _is_paused(end):
            yield Problem(code="assistant_last", position=position)
        return
    if isinstance(end, Text) and end.text.strip() and end.text != end.text.rstrip():
        yield Problem(code="blank_prefill_end", position=position, part=len(last.parts) - 1)


def _is_paused(end: AnyPart | None) -> bool:
    """Whether a turn stopped in the middle of Anthropic's own tools, which goes on as it is."""
    return isinstance(end, Unknown) and end.dialect == "anthropic"


def _message_problems(position: int, message: HasParts, profile: Profile) -> Iterator[Problem]:
    for index, part in enumerate(message.parts):
        code = part_problem(part, message.role, profile)
        if code is not None:
            yield Problem(code=code, position=position, part=index)
    code = whole_problem(message.parts, profile)
    if code is not None:
        yield Problem(code=code, position=position)


def part_problem(part: AnyPart, role: Role, profile: Profile) -> ProblemCode | None:
    judge = PART_RULES.get(type(part))
    return None if judge is None else judge(part, role, profile)


def _text_problem(part: Text | Refusal, _: Role, profile: Profile) -> ProblemCode | None:
    return None if profile.takes_blank or part.text.strip() else "blank_text"


def _call_problem(_part: ToolCall, role: Role, _profile: Profile) -> ProblemCode | None:
    return None if role == "assistant" else "misplaced_part"


def _thinking_problem(part: Thinking, role: Role, profile: Profile) -> ProblemCode | None:
    if role != "assistant":
        return "misplaced_part"
    return "unsigned_thinking" if profile.thinking == "signed" and not part.signature else None


def _result_part_problem(part: ToolResult, role: Role, profile: Profile) -> ProblemCode | None:
    if role not in ("user", "tool"):
        return "misplaced_part"
    blank = not profile.takes_blank and any(map(is_blank, part.content))
    return "blank_text" if blank else None


PART_RULES: dict[type, Callable[[Any, Role, Profile], ProblemCode | None]] = {
    RedactedThinking: _call_problem,
    Refusal: _text_problem,
    Text: _text_problem,
    Thinking: _thinking_problem,
    ToolCall: _call_problem,
    ToolResult: _result_part_problem,
}
THINKING = (Thinking, RedactedThinking)


def is_blank(part: AnyPart) -> bool:
    return isinstance(part, Text) and not part.text.strip()


def only_thinking(parts: tuple[AnyPart, ...]) -> bool:
    return not parts or (
        isinstance(parts[-1], THINKING) and all(isinstance(part, THINKING) for part in parts)
    )


def whole_problem(parts: tuple[AnyPart, ...], profile: Profile) -> ProblemCode | None:
    """What is wrong with a message as a whole."""
    if not profile.takes_blank and only_thinking(parts):
        return "only_thinking" if parts else "empty_message"
    kinds = {type(part) for part in parts}
    if ToolResult in kinds and len(kinds) > 1:
        if profile.beside_results == "nothing":
            return "part_beside_result"
        if profile.beside_results == "no_document" and any(map(is_file, parts)):
            return "document_beside_result"
    if Document in kinds and Text not in kinds and profile.document_needs_text:
        return "document_without_text"
    return None


def is_file(part: AnyPart) -> bool:
    """Whether Claude on Bedrock refuses it beside a result: a document, or a video, which has no
    part of its own and travels as the block it is.
    """
    return isinstance(part, Document) or (
        isinstance(part, Unknown) and part.raw.lstrip().startswith(b'{"video"')
    )


class Exchange(Generic[M]):
    """An assistant's message, or several side by side, and everything until the next."""

    def __init__(self) -> None:
        self.callers: list[tuple[int, M]] = []
        self.followers: list[tuple[int, M]] = []

    def calls(self) -> list[tuple[int, int, ToolCall]]:
        return [
            (position, index, part)
            for position, message in self.callers
            for index, part in enumerate(message.parts)
            if isinstance(part, ToolCall)
        ]


def exchanges(numbered: Iterable[tuple[int, M]], *, one_by_one: bool) -> Iterator[Exchange[M]]:
    exchange: Exchange[M] = Exchange()
    for position, message in numbered:
        if message.role != "assistant":
            exchange.followers.append((position, message))
            continue
        if exchange.followers or (exchange.callers and one_by_one):
            yield exchange
            exchange = Exchange()
        exchange.callers.append((position, message))
    yield exchange


def _pairing_problems(messages: Sequence[HasParts], profile: Profile) -> Iterator[Problem]:
    one_by_one = profile.repeats == "kept"
    for exchange in exchanges(enumerate(messages), one_by_one=one_by_one):
        yield from exchange_problems(exchange)


def exchange_problems(exchange: Exchange[M]) -> Iterator[Problem]:
    calls = exchange.calls()
    places = {call.id: (position, index) for position, index, call in calls}
    answered: set[str] = set()
    late = False
    yield from _repeated_ids(calls)
    for position, message in exchange.followers:
        late = late or not message.parts
        for index, part in enumerate(message.parts):
            if not isinstance(part, ToolResult):
                late = True
                continue
            code = _result_problem(part.call_id, places, answered, late=late)
            answered.add(part.call_id)
            if code is not None:
                yield Problem(code=code, position=position, part=index, detail=part.call_id)
    for call_id, (position, index) in places.items():
        if call_id not in answered:
            yield Problem(code="missing_result", position=position, part=index, detail=call_id)


def _repeated_ids(calls: list[tuple[int, int, ToolCall]]) -> Iterator[Problem]:
    seen: set[str] = set()
    for position, index, call in calls:
        if call.id in seen:
            yield Problem(code="duplicate_call_id", position=position, part=index, detail=call.id)
        seen.add(call.id)


def _result_problem(
    call_id: str, calls: Container[str], answered: Container[str], *, late: bool
) -> ProblemCode | None:
    if call_id not in calls:
        return "orphan_result"
    if call_id in answered:
        return "duplicate_result"
    return "late_result" if late else None

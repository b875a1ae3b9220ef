"""The rules of each provider for a history, and the problems of a history by these rules.

Tool results are paired with the calls of the assistant message directly before them, because an ID
can occur again later in a conversation.
"""

import re
from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Generic, Literal, Protocol, TypeVar

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


class HistoryProfile(msgspec.Struct, frozen=True, kw_only=True):
    """The rules of one provider.

    `repeated_roles`: whether consecutive messages may have the same role; `merged` if the provider
    merges them itself. `system`: where system messages are allowed. `last_message`: whether the
    last message may be from the assistant. `content_with_results`: the parts allowed in a message
    with tool results.
    """

    name: str
    repeated_roles: Literal["allowed", "merged", "refused"] = "refused"
    starts_with_user: bool = True
    system: Literal["anywhere", "first", "after_user", "nowhere"] = "nowhere"
    last_message: Literal["anything", "prefill", "not_assistant"] = "not_assistant"
    thinking: Literal["signed", "left_out"] = "signed"
    allows_blank_text: bool = False
    has_tool_role: bool = False
    document_needs_text: bool = False
    content_with_results: Literal["anything", "no_document", "nothing"] = "anything"


ANTHROPIC = HistoryProfile(name="anthropic", repeated_roles="merged", starts_with_user=False)
ANTHROPIC_PREFILL = msgspec.structs.replace(
    ANTHROPIC, name="anthropic-prefill", last_message="prefill"
)
ANTHROPIC_SYSTEM = msgspec.structs.replace(ANTHROPIC, name="anthropic-system", system="after_user")
OPENAI = HistoryProfile(
    name="openai",
    repeated_roles="allowed",
    starts_with_user=False,
    system="anywhere",
    last_message="anything",
    thinking="left_out",
    allows_blank_text=True,
    has_tool_role=True,
)
BEDROCK = HistoryProfile(
    name="bedrock", document_needs_text=True, content_with_results="no_document"
)
BEDROCK_PREFILL = msgspec.structs.replace(BEDROCK, name="bedrock-prefill", last_message="prefill")
# Llama and Mistral.
BEDROCK_PLAIN = msgspec.structs.replace(
    BEDROCK, name="bedrock-plain", content_with_results="nothing"
)
BEDROCK_OTHER = msgspec.structs.replace(
    BEDROCK_PREFILL, name="bedrock-other", content_with_results="anything"
)
STRICT = HistoryProfile(name="strict", system="first", thinking="left_out", has_tool_role=True)
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
NEWEST_VERSION = (99, 0)
_VERSION = re.compile(r"\D*?(\d{1,2})(?:[-.](\d{1,2}))?(?!\d)")
_RESULTS_ONLY = re.compile(r"(?:^|[./])(?:meta\.llama|mistral\.)")


def profile_for(dialect: Dialect, model: str) -> HistoryProfile:
    """Return the rules for a model; an unknown version gets the rules of most models."""
    if dialect in ("openai", "responses"):
        return OPENAI
    version = _parse_claude_version(model)
    if dialect == "anthropic":
        if version is None or version < NO_PREFILL_SINCE:
            return ANTHROPIC_PREFILL
        return ANTHROPIC if version < SYSTEM_TURNS_SINCE else ANTHROPIC_SYSTEM
    if version is not None:
        return BEDROCK_PREFILL if version < NO_PREFILL_SINCE else BEDROCK
    return BEDROCK_PLAIN if _RESULTS_ONLY.search(model) else BEDROCK_OTHER


def _parse_claude_version(model: str) -> tuple[int, int] | None:
    """Return (4, 6) for claude-opus-4-6-20260205, NEWEST_VERSION for a Claude without a number."""
    _, claude, rest = model.lower().partition("claude")
    if not claude:
        return None
    match = _VERSION.match(rest)
    return (int(match[1]), int(match[2] or 0)) if match else NEWEST_VERSION


class HasParts(Protocol):
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
PROBLEM_MESSAGES: dict[ProblemCode, str] = {
    "assistant_last": "the last message is the assistant's",
    "blank_prefill_end": "the prefilled reply ends in white space",
    "blank_text": "a text is empty or only white space",
    "document_beside_result": "a message contains both a document and a tool result",
    "document_without_text": "a message contains a document and no text",
    "duplicate_call_id": "two tool calls in one message have the same id",
    "duplicate_result": "a tool call has two results",
    "empty_message": "a message has no content",
    "late_result": "a tool result does not directly follow its call",
    "misplaced_part": "a part is not allowed in a message of this role",
    "missing_result": "a tool call has no result",
    "no_messages": "there are no messages",
    "only_thinking": "a message contains only thinking",
    "orphan_result": "a tool result matches no call in the message before it",
    "part_beside_result": "a message contains a tool result and other parts",
    "repeated_role": "two consecutive messages have the same role",
    "starts_without_user": "the first message is not the user's",
    "system_message": "a system message is not allowed at this position",
    "unsigned_thinking": "thinking has no signature",
}


class Problem(msgspec.Struct, frozen=True, kw_only=True):
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
        return f"{PROBLEM_MESSAGES[self.code]}{detail}"


def find_problems(messages: Sequence[HasParts], profile: HistoryProfile) -> tuple[Problem, ...]:
    """Return the problems that this provider would refuse, by position."""
    if not messages:
        return (Problem(code="no_messages", position=0),)
    problems = [
        *_find_order_problems(messages, profile),
        *(p for n, one in enumerate(messages) for p in _find_message_problems(n, one, profile)),
        *(
            problem
            for exchange in split_exchanges(
                enumerate(messages), merge=profile.repeated_roles != "allowed"
            )
            for problem in find_exchange_problems(exchange)
        ),
    ]
    return tuple(sorted(problems, key=lambda problem: problem.position))


def _find_order_problems(
    messages: Sequence[HasParts], profile: HistoryProfile
) -> Iterator[Problem]:
    positions = [n for n, message in enumerate(messages) if message.role != "system"]
    if profile.starts_with_user:
        first = messages[positions[0]] if positions else None
        role = first and (first.role if profile.has_tool_role else effective_role(first))
        if role != "user":
            yield Problem(code="starts_without_user", position=positions[0] if positions else 0)
    for position, message in enumerate(messages):
        if message.role == "system" and not can_have_system(messages, position, profile):
            yield Problem(code="system_message", position=position)
    if profile.repeated_roles == "refused":
        for before, after in pairwise(positions):
            if is_merged_pair(messages[before], messages[after], profile):
                yield Problem(code="repeated_role", position=after)
    yield from find_ending_problems(messages, profile)


def can_have_system(messages: Sequence[HasParts], position: int, profile: HistoryProfile) -> bool:
    if profile.system == "after_user":
        before = (messages[n].role for n in range(position - 1, -1, -1))
        after = (messages[n].role for n in range(position + 1, len(messages)))
        role_before = next((role for role in before if role != "system"), None)
        role_after = next((role for role in after if role != "system"), "assistant")
        return role_before in ("user", "tool") and role_after == "assistant"
    if profile.system == "first":
        return all(messages[n].role == "system" for n in range(position))
    return profile.system == "anywhere"


def is_merged_pair(before: HasParts, after: HasParts, profile: HistoryProfile) -> bool:
    """Whether two consecutive messages are sent as one.

    A provider that merges messages itself gets them as they are, except tool results, which
    belong into one message, and thinking without content, which needs the message after it.
    """
    has_tool = "tool" in (before.role, after.role)
    if effective_role(before) != effective_role(after) or (profile.has_tool_role and has_tool):
        return False
    is_thinking = before.role == "assistant" and has_only_thinking(before.parts)
    return profile.repeated_roles == "refused" or has_tool or is_thinking


def effective_role(message: HasParts) -> Role:
    return "user" if message.role == "tool" else message.role


def find_ending_problems(
    messages: Sequence[HasParts], profile: HistoryProfile
) -> Iterator[Problem]:
    position = len(messages) - 1
    last = messages[position]
    if last.role != "assistant" or profile.last_message == "anything":
        return
    end = last.parts[-1] if last.parts else None
    if profile.last_message == "not_assistant":
        # A turn that paused in one of Anthropic's server tools ends with such a block.
        if not (isinstance(end, Unknown) and end.dialect == "anthropic"):
            yield Problem(code="assistant_last", position=position)
    elif isinstance(end, Text) and end.text.strip() and end.text != end.text.rstrip():
        yield Problem(code="blank_prefill_end", position=position, part=len(last.parts) - 1)


def _find_message_problems(
    position: int, message: HasParts, profile: HistoryProfile
) -> Iterator[Problem]:
    for index, part in enumerate(message.parts):
        code = find_part_problem(part, message.role, profile)
        if code is not None:
            yield Problem(code=code, position=position, part=index)
    code = find_message_problem(message.parts, profile)
    if code is not None:
        yield Problem(code=code, position=position)


# A union in isinstance() would be built with every call.
TEXTS = (Text, Refusal)
THINKING = (Thinking, RedactedThinking)
ROLES: dict[type, tuple[Role, ...]] = {
    RedactedThinking: ("assistant",),
    Thinking: ("assistant",),
    ToolCall: ("assistant",),
    ToolResult: ("user", "tool"),
}
"""The roles whose messages may contain a part; other parts are allowed in any message."""


def find_part_problem(part: AnyPart, role: Role, profile: HistoryProfile) -> ProblemCode | None:
    if isinstance(part, TEXTS):
        return None if profile.allows_blank_text or part.text.strip() else "blank_text"
    roles = ROLES.get(type(part))
    if roles is not None and role not in roles:
        return "misplaced_part"
    if isinstance(part, Thinking) and profile.thinking == "signed" and not part.signature:
        return "unsigned_thinking"
    if (
        isinstance(part, ToolResult)
        and not profile.allows_blank_text
        and any(map(is_blank, part.content))
    ):
        return "blank_text"
    return None


def is_blank(part: AnyPart) -> bool:
    return isinstance(part, Text) and not part.text.strip()


def has_only_thinking(parts: tuple[AnyPart, ...]) -> bool:
    return not parts or (
        isinstance(parts[-1], THINKING) and all(isinstance(part, THINKING) for part in parts)
    )


def find_message_problem(parts: tuple[AnyPart, ...], profile: HistoryProfile) -> ProblemCode | None:
    if not profile.allows_blank_text and has_only_thinking(parts):
        return "only_thinking" if parts else "empty_message"
    kinds = {type(part) for part in parts}
    if ToolResult in kinds and len(kinds) > 1:
        if profile.content_with_results == "nothing":
            return "part_beside_result"
        if profile.content_with_results == "no_document" and any(map(is_file, parts)):
            return "document_beside_result"
    if Document in kinds and Text not in kinds and profile.document_needs_text:
        return "document_without_text"
    return None


def is_file(part: AnyPart) -> bool:
    """Whether a part is a document, or a video, which has no part type."""
    return isinstance(part, Document) or (
        isinstance(part, Unknown) and part.raw.lstrip().startswith(b'{"video"')
    )


class Exchange(Generic[M]):
    """One assistant message, or several in a row, and everything until the next."""

    def __init__(self) -> None:
        self.assistant_messages: list[tuple[int, M]] = []
        self.other_messages: list[tuple[int, M]] = []

    def calls(self) -> list[tuple[int, int, ToolCall]]:
        return [
            (position, index, part)
            for position, message in self.assistant_messages
            for index, part in enumerate(message.parts)
            if isinstance(part, ToolCall)
        ]


def split_exchanges(numbered: Iterable[tuple[int, M]], *, merge: bool) -> Iterator[Exchange[M]]:
    exchange: Exchange[M] = Exchange()
    for position, message in numbered:
        if message.role != "assistant":
            exchange.other_messages.append((position, message))
            continue
        if exchange.other_messages or (exchange.assistant_messages and not merge):
            yield exchange
            exchange = Exchange()
        exchange.assistant_messages.append((position, message))
    yield exchange


def find_exchange_problems(exchange: Exchange[M]) -> Iterator[Problem]:
    calls: dict[str, tuple[int, int]] = {}
    for position, index, call in exchange.calls():
        if call.id in calls:
            yield Problem(code="duplicate_call_id", position=position, part=index, detail=call.id)
        calls[call.id] = position, index
    result_ids: set[str] = set()
    is_late = False
    for position, message in exchange.other_messages:
        is_late = is_late or not message.parts
        for index, part in enumerate(message.parts):
            if not isinstance(part, ToolResult):
                is_late = True
                continue
            code = _find_result_problem(part.call_id, calls, result_ids, is_late=is_late)
            result_ids.add(part.call_id)
            if code is not None:
                yield Problem(code=code, position=position, part=index, detail=part.call_id)
    for call_id, (position, index) in calls.items():
        if call_id not in result_ids:
            yield Problem(code="missing_result", position=position, part=index, detail=call_id)


def _find_result_problem(
    call_id: str, calls: Container[str], result_ids: Container[str], *, is_late: bool
) -> ProblemCode | None:
    if call_id not in calls:
        return "orphan_result"
    if call_id in result_ids:
        return "duplicate_result"
    return "late_result" if is_late else None

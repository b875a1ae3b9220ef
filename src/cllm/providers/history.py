"""Repairs a history for its provider, and marks it for the provider's prompt cache."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from cllm.core.errors import SettingsError, UnsendableError
from cllm.core.message import (
    AnyPart,
    CacheMark,
    Dialect,
    Document,
    Image,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Unknown,
)
from cllm.core.prompt import Continuity
from cllm.history.cache_control import CacheBlock, min_cacheable_tokens, place_breakpoints
from cllm.history.repair import repair
from cllm.history.rules import OPENAI, PROFILES, ProblemCode, Profile, profile_for
from cllm.window.tokens import TOKENS_PER_IMAGE, estimate_text
from cllm.wire.bedrock.models import find_features
from cllm.wire.convert import AddCacheControl, ConvertedPrompt, no_cache_control
from cllm.wire.messages import (
    OutgoingMessage,
    RepairedHistory,
    omitted_field_notices,
    replace_parts,
)

ADVICE: dict[ProblemCode, str] = {
    "assistant_last": "end with a message of the user's, or ask a model that goes on from there",
    "duplicate_call_id": "give every tool call of a message an id of its own",
    "empty_message": "say something in it, or leave it out",
    "misplaced_part": "let the assistant think and call tools, and the user answer with results",
    "no_messages": "send at least one message",
    "starts_without_user": "begin with a message of the user's",
    "system_message": "put it into the system prompt",
}
ANY_ADVICE = "correct the messages and ask again"


class HistoryRepair:
    """Repairs histories for one provider by one profile."""

    def __init__(self, profile: Profile, *, provider: str) -> None:
        self._profile = profile
        self._provider = provider

    @property
    def can_skip_repair(self) -> bool:
        """Whether a history without tools needs no check."""
        return self._profile is OPENAI

    def __call__(self, messages: Sequence[OutgoingMessage]) -> RepairedHistory:
        positions = [message.prompt_index for message in messages]
        repaired = repair(messages, self._profile, make=_make, positions=positions)
        if repaired.problems:
            problem = repaired.problems[0]
            raise UnsendableError(
                f"Provider '{self._provider}' cannot be sent this: {problem.path}: "
                f"{problem.message}; {ADVICE.get(problem.code, ANY_ADVICE)}.",
                provider=self._provider,
                path=problem.path,
            )
        # The fields beside the parts are lost with each message that is replaced by another.
        sent = set(map(id, repaired.messages))
        lost = omitted_field_notices(m for m in messages if m.extra and id(m) not in sent)
        return RepairedHistory(messages=repaired.messages, notices=(*repaired.notices, *lost))


def _make(role: Role, parts: tuple[AnyPart, ...]) -> OutgoingMessage:
    return OutgoingMessage(role=role, parts=parts)


def repair_for(
    dialect: Dialect, model: str, *, provider: str, profile: str | None = None
) -> HistoryRepair:
    rules = profile_for(dialect, model) if profile is None else find_profile(profile)
    return HistoryRepair(rules, provider=provider)


def find_profile(name: str) -> Profile:
    if name not in PROFILES:
        known = ", ".join(sorted(PROFILES))
        raise SettingsError(f"there is no profile {name!r}; choose one of {known}")
    return PROFILES[name]


WRITTEN = ("cache_control", "cachePoint")
MARKED: dict[Dialect, tuple[type[AnyPart], ...]] = {
    "anthropic": (Text, Image, Document, ToolCall, ToolResult),
    # Bedrock refuses a cache point directly after a document.
    "bedrock": (Text, Image, ToolCall, ToolResult),
}
MARKABLE = CacheBlock(tokens=0)
UNMARKABLE = CacheBlock(tokens=0, allows_breakpoint=False)


def cache_control_for(
    dialect: Dialect, model: str, continuity: Continuity | None
) -> AddCacheControl:
    """Marks nothing if no later prompt starts with this one."""
    if continuity is None:
        return no_cache_control
    if dialect == "bedrock":
        known = find_features(model)
        # Nothing is known about a model that an ARN hides.
        if not known.cache or known.thinking == "as_said":
            return no_cache_control
    return partial(
        _mark, continuity=continuity, minimum=min_cacheable_tokens(model), takes=MARKED[dialect]
    )


def _mark(
    prompt: ConvertedPrompt,
    *,
    continuity: Continuity,
    minimum: int,
    takes: tuple[type[AnyPart], ...],
) -> ConvertedPrompt:
    if _is_marked(prompt):
        return prompt
    system = prompt.system or ()
    before = sum(map(_weight, system)) + _weight_of_tools(prompt.parameters)
    blocks = list(_blocks(prompt.messages, before, minimum=minimum, takes=takes))
    marks = place_breakpoints(
        blocks,
        system_tokens=before,
        minimum=minimum,
        stable_blocks=len(blocks) - _parts_in_last(prompt.messages, continuity.passing),
        cached_blocks=len(blocks) - _parts_in_last(prompt.messages, continuity.fresh),
    )
    texts = [n for n, part in enumerate(system) if isinstance(part, Text) and not _is_blank(part)]
    system_marks = set(texts[-1:]) if marks.system else set()
    if not system_marks and not marks.blocks:
        return prompt
    return msgspec.structs.replace(
        prompt,
        system=_with_marks(system, system_marks) if system_marks else prompt.system,
        system_raw=None if system_marks else prompt.system_raw,
        messages=tuple(_mark_messages(prompt.messages, set(marks.blocks))),
        cache_control_added=True,
    )


def _blocks(
    messages: Sequence[OutgoingMessage],
    before: int,
    *,
    minimum: int,
    takes: tuple[type[AnyPart], ...],
) -> Iterator[CacheBlock]:
    """Weighing stops at the minimum: later weights do not matter."""
    total = before
    for spoken in messages:
        for part in spoken.parts:
            allows_breakpoint = (
                spoken.role != "system" and isinstance(part, takes) and not _is_blank(part)
            )
            if total < minimum:
                tokens = _weight(part)
                total += tokens
                yield CacheBlock(tokens=tokens, allows_breakpoint=allows_breakpoint)
            else:
                yield MARKABLE if allows_breakpoint else UNMARKABLE


def _is_marked(prompt: ConvertedPrompt) -> bool:
    parts = (part for spoken in prompt.messages for part in spoken.parts)
    if any(map(_has_mark, prompt.system or ())) or any(map(_has_mark, parts)):
        return True
    config = prompt.parameters.get("toolConfig")
    tools = (config if isinstance(config, Mapping) else prompt.parameters).get("tools")
    holders = (prompt.parameters, *(tools if isinstance(tools, list | tuple) else ()))
    return any(name in holder for holder in holders for name in WRITTEN)


def _has_mark(part: AnyPart) -> bool:
    match part:
        case Unknown():
            return any(name.encode() in part.raw for name in WRITTEN)
        case ToolResult() if any(map(_has_mark, part.content)):
            return True
        case _:
            return part.cache is not None


def _is_blank(part: AnyPart) -> bool:
    return isinstance(part, Text) and not part.text.strip()


def _parts_in_last(messages: Sequence[OutgoingMessage], count: int) -> int:
    return sum(len(spoken.parts) for spoken in messages[-count:]) if count else 0


def _mark_messages(
    messages: Sequence[OutgoingMessage], positions: set[int]
) -> Iterator[OutgoingMessage]:
    """`positions` count the parts of all messages."""
    start = 0
    for spoken in messages:
        end = start + len(spoken.parts)
        here = {place - start for place in positions if start <= place < end}
        yield replace_parts(spoken, _with_marks(spoken.parts, here)) if here else spoken
        start = end


def _with_marks(parts: Sequence[AnyPart], positions: set[int]) -> tuple[AnyPart, ...]:
    return tuple(
        msgspec.structs.replace(part, cache=CacheMark()) if place in positions else part
        for place, part in enumerate(parts)
    )


def _weight(part: AnyPart) -> int:
    """The estimated tokens."""
    match part:
        case Text() | Thinking():
            return estimate_text(part.text).tokens
        case ToolCall():
            return estimate_text(part.name + part.arguments).tokens
        case ToolResult():
            return sum(map(_weight, part.content))
        case Document(text=str(text)):
            return estimate_text(text).tokens
        case Image() | Document():
            return TOKENS_PER_IMAGE
        case _:
            return 0


def _weight_of_tools(parameters: Mapping[str, Any]) -> int:
    tools = parameters.get("tools") or parameters.get("toolConfig")
    return estimate_text(msgspec.json.encode(tools, enc_hook=str).decode()).tokens if tools else 0

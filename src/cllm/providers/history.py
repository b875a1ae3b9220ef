"""Repairs a history for its provider, and sets cache breakpoints for the prompt cache."""

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
from cllm.history.rules import OPENAI, PROFILES, HistoryProfile, ProblemCode, profile_for
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
    "assistant_last": "end with a user message, or use a model that continues a prefilled reply",
    "duplicate_call_id": "give every tool call of a message a unique id",
    "empty_message": "add content to it or remove it",
    "misplaced_part": "put thinking and tool calls into assistant messages, tool results into user "
    "messages",
    "no_messages": "send at least one message",
    "starts_without_user": "start with a user message",
    "system_message": "put it into the system prompt",
}
DEFAULT_ADVICE = "correct the messages and try again"


class HistoryRepair:
    """Repairs histories for one provider by one profile."""

    def __init__(self, profile: HistoryProfile, *, provider: str) -> None:
        self._profile = profile
        self._provider = provider

    @property
    def can_skip_repair(self) -> bool:
        """Whether a history without tools needs no repair."""
        return self._profile is OPENAI

    def __call__(self, messages: Sequence[OutgoingMessage]) -> RepairedHistory:
        indexes = [message.prompt_index for message in messages]
        repaired = repair(messages, self._profile, make=_make_message, positions=indexes)
        if repaired.problems:
            problem = repaired.problems[0]
            raise UnsendableError(
                f"Cannot send this history to provider '{self._provider}': {problem.path}: "
                f"{problem.message}; {ADVICE.get(problem.code, DEFAULT_ADVICE)}.",
                provider=self._provider,
                path=problem.path,
            )
        # A message that is replaced loses the fields that are not in its parts.
        unchanged = set(map(id, repaired.messages))
        lost = omitted_field_notices(m for m in messages if m.extra and id(m) not in unchanged)
        return RepairedHistory(messages=repaired.messages, notices=(*repaired.notices, *lost))


def _make_message(role: Role, parts: tuple[AnyPart, ...]) -> OutgoingMessage:
    return OutgoingMessage(role=role, parts=parts)


def repair_for(
    dialect: Dialect, model: str, *, provider: str, profile: str | None = None
) -> HistoryRepair:
    rules = profile_for(dialect, model) if profile is None else find_profile(profile)
    return HistoryRepair(rules, provider=provider)


def find_profile(name: str) -> HistoryProfile:
    if name not in PROFILES:
        names = ", ".join(sorted(PROFILES))
        raise SettingsError(f"the profile {name!r} does not exist; use one of {names}")
    return PROFILES[name]


CACHE_FIELDS = ("cache_control", "cachePoint")
CACHEABLE_PARTS: dict[Dialect, tuple[type[AnyPart], ...]] = {
    "anthropic": (Text, Image, Document, ToolCall, ToolResult),
    # Bedrock refuses a cache point directly after a document.
    "bedrock": (Text, Image, ToolCall, ToolResult),
}
CACHEABLE = CacheBlock(tokens=0)
NOT_CACHEABLE = CacheBlock(tokens=0, allows_breakpoint=False)


def cache_control_for(
    dialect: Dialect, model: str, continuity: Continuity | None
) -> AddCacheControl:
    """Return a function that adds cache breakpoints if a later prompt starts with this one."""
    if continuity is None:
        return no_cache_control
    if dialect == "bedrock":
        features = find_features(model)
        # An ARN can hide the model, and so what it accepts.
        if not features.cache or features.thinking == "as_sent":
            return no_cache_control
    return partial(
        _add_cache_control,
        continuity=continuity,
        minimum=min_cacheable_tokens(model),
        cacheable=CACHEABLE_PARTS[dialect],
    )


def _add_cache_control(
    prompt: ConvertedPrompt,
    *,
    continuity: Continuity,
    minimum: int,
    cacheable: tuple[type[AnyPart], ...],
) -> ConvertedPrompt:
    if _has_cache_control(prompt):
        return prompt
    system = prompt.system or ()
    before = sum(map(_estimate_tokens, system)) + _estimate_tool_tokens(prompt.parameters)
    blocks = list(_blocks(prompt.messages, before, minimum=minimum, cacheable=cacheable))
    breakpoints = place_breakpoints(
        blocks,
        system_tokens=before,
        minimum=minimum,
        stable_blocks=len(blocks) - _parts_in_last(prompt.messages, continuity.passing),
        cached_blocks=len(blocks) - _parts_in_last(prompt.messages, continuity.fresh),
    )
    texts = [n for n, part in enumerate(system) if isinstance(part, Text) and not _is_blank(part)]
    system_indexes = set(texts[-1:]) if breakpoints.system else set()
    if not system_indexes and not breakpoints.blocks:
        return prompt
    return msgspec.structs.replace(
        prompt,
        system=_cache_parts(system, system_indexes) if system_indexes else prompt.system,
        system_raw=None if system_indexes else prompt.system_raw,
        messages=tuple(_cache_messages(prompt.messages, set(breakpoints.blocks))),
        cache_control_added=True,
    )


def _blocks(
    messages: Sequence[OutgoingMessage],
    before: int,
    *,
    minimum: int,
    cacheable: tuple[type[AnyPart], ...],
) -> Iterator[CacheBlock]:
    """Estimate tokens up to the minimum: later ones do not matter."""
    total = before
    for message in messages:
        for part in message.parts:
            allows_breakpoint = (
                message.role != "system" and isinstance(part, cacheable) and not _is_blank(part)
            )
            if total < minimum:
                tokens = _estimate_tokens(part)
                total += tokens
                yield CacheBlock(tokens=tokens, allows_breakpoint=allows_breakpoint)
            else:
                yield CACHEABLE if allows_breakpoint else NOT_CACHEABLE


def _has_cache_control(prompt: ConvertedPrompt) -> bool:
    parts = (part for message in prompt.messages for part in message.parts)
    if any(map(_part_has_cache_control, prompt.system or ())) or any(
        map(_part_has_cache_control, parts)
    ):
        return True
    config = prompt.parameters.get("toolConfig")
    tools = (config if isinstance(config, Mapping) else prompt.parameters).get("tools")
    objects = (prompt.parameters, *(tools if isinstance(tools, list | tuple) else ()))
    return any(name in fields for fields in objects for name in CACHE_FIELDS)


def _part_has_cache_control(part: AnyPart) -> bool:
    match part:
        case Unknown():
            return any(name.encode() in part.raw for name in CACHE_FIELDS)
        case ToolResult() if any(map(_part_has_cache_control, part.content)):
            return True
        case _:
            return part.cache is not None


def _is_blank(part: AnyPart) -> bool:
    return isinstance(part, Text) and not part.text.strip()


def _parts_in_last(messages: Sequence[OutgoingMessage], count: int) -> int:
    return sum(len(message.parts) for message in messages[-count:]) if count else 0


def _cache_messages(
    messages: Sequence[OutgoingMessage], indexes: set[int]
) -> Iterator[OutgoingMessage]:
    """`indexes` count the parts of all messages."""
    start = 0
    for message in messages:
        end = start + len(message.parts)
        inner = {index - start for index in indexes if start <= index < end}
        yield replace_parts(message, _cache_parts(message.parts, inner)) if inner else message
        start = end


def _cache_parts(parts: Sequence[AnyPart], indexes: set[int]) -> tuple[AnyPart, ...]:
    return tuple(
        msgspec.structs.replace(part, cache=CacheMark()) if index in indexes else part
        for index, part in enumerate(parts)
    )


def _estimate_tokens(part: AnyPart) -> int:
    match part:
        case Text() | Thinking():
            return estimate_text(part.text).tokens
        case ToolCall():
            return estimate_text(part.name + part.arguments).tokens
        case ToolResult():
            return sum(map(_estimate_tokens, part.content))
        case Document(text=str(text)):
            return estimate_text(text).tokens
        case Image() | Document():
            return TOKENS_PER_IMAGE
        case _:
            return 0


def _estimate_tool_tokens(parameters: Mapping[str, Any]) -> int:
    tools = parameters.get("tools") or parameters.get("toolConfig")
    return estimate_text(msgspec.json.encode(tools, enc_hook=str).decode()).tokens if tools else 0

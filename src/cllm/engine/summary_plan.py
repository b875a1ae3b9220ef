"""Which messages of a conversation a summary covers, and the prompts that request it.

The prompts start like the last one, so that they are in the provider's cache.
"""

from bisect import bisect_right
from typing import Any, assert_never

import msgspec

from cllm.core.conversation import StandingSummary, StoredConversation
from cllm.core.errors import CllmError, UsageError, WindowTooSmallError
from cllm.core.notice import Notice
from cllm.core.prompt import Continuity, Prompt
from cllm.engine.prompt_builder import build_full_prompt
from cllm.engine.prompt_history import LIMIT_PARAMETERS, PromptHistory, has_same_start
from cllm.engine.request import Attempt, TurnRequest
from cllm.engine.tool_rounds import add_tools
from cllm.window.plan import WindowPlan, plan_window
from cllm.window.strategies import ByTokens, ByTurns, Strategy, Summarise
from cllm.window.summary import (
    SummaryChunk,
    build_summary_messages,
    build_summary_request,
    plan_summary,
)

SUMMARY_FAILED = "summary_failed"
"""Code of the notice that is saved with a turn whose summary failed."""
UNSUMMARISED_TURNS = 1
"""Number of newest turns that a requested summary does not cover."""
SUMMARY_OVERHEAD = 24
"""Tokens in a prompt besides the text of a summary."""
MAX_LENGTH_FACTOR = 2
"""A summary may be this many times as long as requested."""
MAX_SUMMARY_SHARE = 0.25
"""Share of a window for its summary."""
THINKING_TOKENS = 1024
# These parameters would cut the summary off or change its format.
EXCLUDED_PARAMETERS = ("response_format", "output_format", "text", "stop", "stop_sequences")
LIMIT_PARAMETER = {
    "openai": "max_tokens",
    "anthropic": "max_tokens",
    "responses": "max_output_tokens",
}
THINKING_PARAMETERS = ("thinking", "reasoning", "reasoning_effort", "output_config")


class SummaryInput(msgspec.Struct, frozen=True, kw_only=True):
    """`has_cached_prefix`: whether the start of the prompt can be in a provider's cache."""

    history: PromptHistory
    prompt: Prompt
    strategy: Summarise
    has_cached_prefix: bool = True

    def chunks(self, keep_turns: int | None = None) -> tuple[SummaryChunk, ...]:
        return plan_summary(
            self.history.turn_index,
            self.strategy,
            budget=self.history.budget,
            pins=self.history.pins,
            summary=self.history.numbered_summary,
            keep_turns=keep_turns,
        )

    def plan_window(self, summary: StandingSummary | None) -> WindowPlan:
        return plan_window(
            self.history.turn_index,
            self.strategy,
            budget=self.history.budget,
            window_start=self.history.last_start,
            pins=self.history.pins,
            summary=summary,
        )


class SummaryPlan(msgspec.Struct, frozen=True, kw_only=True):
    source: SummaryInput
    chunks: tuple[SummaryChunk, ...]
    is_for_turn: bool = False

    @property
    def through(self) -> int:
        return self.source.history.to_sequence(self.chunks[-1].through)

    @property
    def turns(self) -> int:
        """The number of turns that are new in this summary."""
        starts, summary = self.source.history.turn_index.turns, self.source.history.numbered_summary
        covered = 0 if summary is None else bisect_right(starts, summary.through - 1)
        return bisect_right(starts, self.chunks[-1].through - 1) - covered

    def leaves_room(self, tokens: int) -> bool:
        """Whether the new messages fit in the window with a summary of this length."""
        through = self.chunks[-1].through
        try:
            self.source.plan_window(StandingSummary(text="", through=through, tokens=tokens))
        except WindowTooSmallError:
            return False
        return True


def has_unsaved_prompt(conversation: StoredConversation, request: TurnRequest) -> bool:
    """Whether the request has a system prompt that must not be saved, not even in a summary."""
    record = conversation.system_record
    if record is not None:
        return record.policy == "dynamic" and request.input.system.message is not None
    return request.input.system.said is not None and not conversation.has_system_message()


def has_summary_strategy(request: TurnRequest, model: str) -> bool:
    if request.storage.window is None or request.storage.read_only:
        return False
    return isinstance(request.storage.window(model), Summarise)


def build_summary_input(
    conversation: StoredConversation, request: TurnRequest, attempt: Attempt
) -> SummaryInput:
    prompt = build_full_prompt(conversation, request, attempt)
    if request.target.tools is not None:
        prompt = add_tools(prompt, request.target.tools)
    window = request.storage.window
    strategy = Summarise() if window is None else _as_summarise(window(attempt.model))
    history = PromptHistory(
        prompt, conversation, model_context=attempt.model_context, place=request.storage.place
    )
    limit = strategy.tokens.limit(history.budget)
    if limit is not None:
        largest = max(1, int(limit * MAX_SUMMARY_SHARE))
        strategy = msgspec.structs.replace(
            strategy, summary_tokens=min(strategy.summary_tokens, largest)
        )
    return SummaryInput(
        history=history,
        prompt=prompt,
        strategy=strategy,
        has_cached_prefix=not has_unsaved_prompt(conversation, request),
    )


def _as_summarise(strategy: Strategy) -> Summarise:
    match strategy:
        case Summarise():
            return strategy
        case ByTokens():
            return Summarise(tokens=strategy)
        case ByTurns():
            return Summarise()
        case _:
            assert_never(strategy)


def check_fits(source: SummaryInput) -> None:
    """Raise WindowTooSmallError if the new messages cannot be sent."""
    source.plan_window(source.history.numbered_summary)


def plan_for_turn(source: SummaryInput) -> SummaryPlan | None:
    """Plan the summary that a turn needs first; None if it needs none.

    A failed summary, which costs money, is repeated only when more turns leave the window.
    """
    history = source.history
    if _has_failed(history) and source.plan_window(history.numbered_summary).dropped_turns == 0:
        return None
    plan = SummaryPlan(source=source, chunks=source.chunks(), is_for_turn=True)
    if not plan.chunks or not plan.leaves_room(source.strategy.summary_tokens + SUMMARY_OVERHEAD):
        return None
    return plan


def _has_failed(history: PromptHistory) -> bool:
    """Whether a summary failed since the start of the window last moved."""
    window = history.last_window
    return window is not None and any(
        notice.code == SUMMARY_FAILED
        for turn in history.turns
        if turn.window is not None and has_same_start(turn.window, window)
        for notice in turn.notices
    )


def summary_failed_notice(error: CllmError) -> Notice:
    message = f"The summary failed and the conversation is unchanged. {error}"
    return Notice(code=SUMMARY_FAILED, path="messages", message=message)


def plan_on_request(source: SummaryInput) -> SummaryPlan:
    chunks = source.chunks(keep_turns=UNSUMMARISED_TURNS)
    if not chunks:
        raise UsageError(
            "There is nothing to summarise yet, because the newest turn is never summarised; send "
            "another message first."
        )
    return SummaryPlan(source=source, chunks=chunks)


def build_summary_prompt(
    source: SummaryInput, chunk: SummaryChunk, so_far: StandingSummary | None
) -> Prompt:
    """Return the prompt that requests a chunk: the last prompt up to the end of the chunk.

    Only the prompt of the first chunk can be in a provider's cache.
    """
    prompt = source.prompt
    words = source.strategy.summary_tokens // 2
    messages = build_summary_request(chunk, prompt.messages, so_far, words=words)
    offset = 0 if so_far is None else len(build_summary_messages(so_far.text))
    positions = [n for start, stop in chunk.spans for n in range(start, stop)]
    foreign = (index for index, n in enumerate(positions, offset) if n in prompt.foreign)
    has_cached_prefix = source.has_cached_prefix and so_far == source.history.stored_summary
    new = 1 if has_cached_prefix else len(messages)
    return msgspec.structs.replace(
        prompt,
        messages=messages,
        foreign=frozenset(foreign),
        parameters=_build_parameters(prompt, source.strategy),
        original=None,
        window=None,
        continuity=Continuity(fresh=new, passing=new),
        notices=(),
    )


def _build_parameters(prompt: Prompt, strategy: Summarise) -> dict[str, Any]:
    """Return the parameters of the last prompt, with enough tokens for a summary."""
    parameters = {
        name: value for name, value in prompt.parameters.items() if name not in EXCLUDED_PARAMETERS
    }
    choice = parameters.get("tool_choice")
    kind = choice.get("type") if isinstance(choice, dict) else choice
    if kind not in (None, "auto", "none"):
        del parameters["tool_choice"]
    enough = MAX_LENGTH_FACTOR * strategy.summary_tokens + THINKING_TOKENS
    limits = [name for name in LIMIT_PARAMETERS if isinstance(parameters.get(name), int)]
    if limits:
        return parameters | {name: max(parameters[name], enough) for name in limits}
    own = LIMIT_PARAMETER.get(prompt.dialect)
    return (
        parameters
        if own is None or any(name in parameters for name in THINKING_PARAMETERS)
        else parameters | {own: enough}
    )

"""Which messages of a conversation go into a summary, and the prompts that request it.

The prompts begin as the last one did, so that the provider's cache has them.
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
"""Code of the notice that is saved with a turn before which no summary could be made."""
UNSUMMARISED_TURNS = 1
"""Turns that stay outside a summary that a user requests."""
SUMMARY_OVERHEAD = 24
"""Tokens around the text of a summary in a prompt."""
MAX_LENGTH_FACTOR = 2
"""How many times as long as requested a summary may be."""
MAX_SUMMARY_SHARE = 0.25
"""Of a window, for the summary in it."""
THINKING_TOKENS = 1024
# A summary is free text, and whole; these parameters would change that.
EXCLUDED_PARAMETERS = ("response_format", "output_format", "text", "stop", "stop_sequences")
LIMIT_PARAMETER = {
    "openai": "max_tokens",
    "anthropic": "max_tokens",
    "responses": "max_output_tokens",
}
THINKING_PARAMETERS = ("thinking", "reasoning", "reasoning_effort", "output_config")


class SummaryInput(msgspec.Struct, frozen=True, kw_only=True):
    """`is_known`: whether a provider may have the beginning of the prompt in its cache."""

    log: PromptHistory
    prompt: Prompt
    strategy: Summarise
    is_known: bool = True

    def chunks(self, keep_turns: int | None = None) -> tuple[SummaryChunk, ...]:
        return plan_summary(
            self.log.turn_index,
            self.strategy,
            budget=self.log.budget,
            pins=self.log.pins,
            summary=self.log.summary,
            keep_turns=keep_turns,
        )

    def view(self, summary: StandingSummary | None) -> WindowPlan:
        return plan_window(
            self.log.turn_index,
            self.strategy,
            budget=self.log.budget,
            window_start=self.log.window_start,
            pins=self.log.pins,
            summary=summary,
        )


class SummaryPlan(msgspec.Struct, frozen=True, kw_only=True):
    material: SummaryInput
    chunks: tuple[SummaryChunk, ...]
    is_for_turn: bool = False

    @property
    def through(self) -> int:
        return self.material.log.sequence(self.chunks[-1].through)

    @property
    def turns(self) -> int:
        """How many turns are new in this summary."""
        borders, summary = self.material.log.turn_index.turns, self.material.log.summary
        covered = 0 if summary is None else bisect_right(borders, summary.through - 1)
        return bisect_right(borders, self.chunks[-1].through - 1) - covered

    def leaves_room(self, tokens: int) -> bool:
        """Whether the new messages fit beside a summary of this length."""
        through = self.chunks[-1].through
        try:
            self.material.view(StandingSummary(text="", through=through, tokens=tokens))
        except WindowTooSmallError:
            return False
        return True


def has_unsaved_prompt(conversation: StoredConversation, request: TurnRequest) -> bool:
    """Whether the request has a system prompt that must not be saved, also not in a summary."""
    record = conversation.system_record
    if record is not None:
        return record.policy == "dynamic" and request.input.system.message is not None
    return request.input.system.said is not None and not conversation.has_system_message()


def has_summary_strategy(request: TurnRequest, model: str) -> bool:
    if request.policy.window is None or request.policy.read_only:
        return False
    return isinstance(request.policy.window(model), Summarise)


def build_summary_input(
    conversation: StoredConversation, request: TurnRequest, attempt: Attempt
) -> SummaryInput:
    prompt = build_full_prompt(conversation, request, attempt)
    if request.target.tools is not None:
        prompt = add_tools(prompt, request.target.tools)
    window = request.policy.window
    strategy = Summarise() if window is None else _as_summarise(window(attempt.model))
    log = PromptHistory(
        prompt, conversation, model_context=attempt.model_context, place=request.policy.place
    )
    limit = strategy.tokens.limit(log.budget)
    if limit is not None:
        largest = max(1, int(limit * MAX_SUMMARY_SHARE))
        strategy = msgspec.structs.replace(
            strategy, summary_tokens=min(strategy.summary_tokens, largest)
        )
    return SummaryInput(
        log=log,
        prompt=prompt,
        strategy=strategy,
        is_known=not has_unsaved_prompt(conversation, request),
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


def check_fits(material: SummaryInput) -> None:
    """Raise WindowTooSmallError if the new messages cannot be sent at all."""
    material.view(material.log.summary)


def plan_for_turn(material: SummaryInput) -> SummaryPlan | None:
    """Plan what has to be summarised before a turn; None if nothing has to be.

    A failed summary, which costs money, is not tried again until more leaves the window.
    """
    log = material.log
    if _has_failed(log) and material.view(log.summary).dropped_turns == 0:
        return None
    plan = SummaryPlan(material=material, chunks=material.chunks(), is_for_turn=True)
    if not plan.chunks or not plan.leaves_room(material.strategy.summary_tokens + SUMMARY_OVERHEAD):
        return None
    return plan


def _has_failed(log: PromptHistory) -> bool:
    """Whether a summary failed since the window begins where it does."""
    window = log.remembered
    return window is not None and any(
        notice.code == SUMMARY_FAILED
        for turn in log.turns
        if turn.window is not None and has_same_start(turn.window, window)
        for notice in turn.notices
    )


def summary_failed_notice(error: CllmError) -> Notice:
    message = f"No summary was made, and nothing was changed. {error}"
    return Notice(code=SUMMARY_FAILED, path="messages", message=message)


def plan_on_request(material: SummaryInput) -> SummaryPlan:
    chunks = material.chunks(keep_turns=UNSUMMARISED_TURNS)
    if not chunks:
        raise UsageError(
            "There is nothing to summarise: all but the newest turn is in a summary already, or "
            "there is no other turn yet."
        )
    return SummaryPlan(material=material, chunks=chunks)


def build_summary_prompt(
    material: SummaryInput, chunk: SummaryChunk, so_far: StandingSummary | None
) -> Prompt:
    """Return the prompt that requests a piece: the last prompt, up to where the piece ends.

    Only the first piece can be in a provider's cache.
    """
    prompt = material.prompt
    words = material.strategy.summary_tokens // 2
    messages = build_summary_request(chunk, prompt.messages, so_far, words=words)
    ahead = 0 if so_far is None else len(build_summary_messages(so_far.text))
    positions = [n for start, stop in chunk.spans for n in range(start, stop)]
    foreign = (index for index, n in enumerate(positions, ahead) if n in prompt.foreign)
    is_known = material.is_known and so_far == material.log.standing
    new = 1 if is_known else len(messages)
    return msgspec.structs.replace(
        prompt,
        messages=messages,
        foreign=frozenset(foreign),
        parameters=_parameters(prompt, material.strategy),
        original=None,
        window=None,
        continuity=Continuity(fresh=new, passing=new),
        notices=(),
    )


def _parameters(prompt: Prompt, strategy: Summarise) -> dict[str, Any]:
    """Return the parameters of the last prompt, with room for a summary."""
    kept = {
        name: value for name, value in prompt.parameters.items() if name not in EXCLUDED_PARAMETERS
    }
    choice = kept.get("tool_choice")
    kind = choice.get("type") if isinstance(choice, dict) else choice
    if kind not in (None, "auto", "none"):
        del kept["tool_choice"]
    enough = MAX_LENGTH_FACTOR * strategy.summary_tokens + THINKING_TOKENS
    limits = [name for name in LIMIT_PARAMETERS if isinstance(kept.get(name), int)]
    if limits:
        return kept | {name: max(kept[name], enough) for name in limits}
    own = LIMIT_PARAMETER.get(prompt.dialect)
    return (
        kept
        if own is None or any(name in kept for name in THINKING_PARAMETERS)
        else kept | {own: enough}
    )

"""What of a conversation goes into a summary, and the prompts that ask for it.

The prompts begin as the last one did, so that the provider's cache has them. Asks nobody and keeps
nothing.
"""

from bisect import bisect_right
from typing import Any, assert_never

import msgspec

from cllm.assembly.window import (
    ByTokens,
    ByTurns,
    Strategy,
    Summarise,
    SummaryChunk,
    plan_summary,
    plan_window,
    summary_request,
    summary_turn,
)
from cllm.core.conversation import Conversation, StandingSummary
from cllm.core.errors import UsageError, WindowTooSmallError
from cllm.core.prompt import Continuity, Prompt
from cllm.engine.log import Log, Served
from cllm.engine.prompting import Attempt, whole_prompt
from cllm.engine.request import TurnRequest
from cllm.engine.rounds import with_tools

KEPT_TURNS = 1
"""What somebody who asks for a summary still has word for word."""
AROUND = 24
"""Tokens of what stands around the text of a summary in a prompt."""
LONGEST = 2
"""A summary may be so many times as long as it should be."""
LARGEST_SHARE = 0.25
"""Of a window, for the summary in it."""
ROOM_TO_THINK = 1024
# A summary is free text, and whole; these would make something else of it.
NOT_FOR_SUMMARIES = ("response_format", "output_format", "text", "stop", "stop_sequences")
LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
LIMIT_IN = {"openai": "max_tokens", "anthropic": "max_tokens", "responses": "max_output_tokens"}
THINKING = ("thinking", "reasoning", "reasoning_effort", "output_config")


class Material(msgspec.Struct, frozen=True, kw_only=True):
    """What a summary is made of: a log, a prompt that has all of it, and how it is to be done."""

    log: Log
    prompt: Prompt
    strategy: Summarise


class SummaryPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The pieces that are to be asked for, one after another."""

    material: Material
    chunks: tuple[SummaryChunk, ...]

    @property
    def through(self) -> int:
        """The sequence number of the last message that the summary will stand for."""
        return self.material.log.sequence(self.chunks[-1].through)

    @property
    def turns(self) -> int:
        """How many turns will have the summary in their place that had none until now."""
        borders, summary = self.material.log.ledger.turns, self.material.log.summary
        covered = 0 if summary is None else bisect_right(borders, summary.through - 1)
        return bisect_right(borders, self.chunks[-1].through - 1) - covered


def summarises(request: TurnRequest, model: str) -> bool:
    """Whether turns are to be summarised before they leave the window."""
    return request.window is not None and isinstance(request.window(model), Summarise)


def material_of(
    conversation: Conversation, request: TurnRequest, attempt: Attempt, served: Served
) -> Material:
    """The conversation and what is said now, as a summary has to see them."""
    prompt = whole_prompt(conversation, request, attempt)
    if request.tools is not None:
        prompt = with_tools(prompt, request.tools)
    strategy = Summarise() if request.window is None else request.window(attempt.model)
    log = Log(prompt, conversation, served=served, place=request.place)
    return Material(log=log, prompt=prompt, strategy=_within(_as_summarise(strategy), log.budget))


def _within(strategy: Summarise, budget: int | None) -> Summarise:
    """The strategy with a summary that leaves most of the window to what is said."""
    limit = strategy.tokens.limit(budget)
    if limit is None:
        return strategy
    largest = max(1, int(limit * LARGEST_SHARE))
    return msgspec.structs.replace(strategy, summary_tokens=min(strategy.summary_tokens, largest))


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


def check_fits(material: Material) -> None:
    """WindowTooSmallError if what is said cannot be sent at all, before anything is asked."""
    _plan_view(material, material.log.summary)


def plan_for_turn(material: Material) -> SummaryPlan | None:
    """What has to be summarised before a turn, if anything has to be.

    A turn for which there is no room beside a summary goes without a new one.
    """
    log = material.log
    chunks = plan_summary(
        log.ledger,
        material.strategy,
        budget=log.budget,
        pins=log.pins,
        idle=log.idle,
        summary=log.summary,
    )
    if not chunks or not _leaves_room(material, chunks[-1].through):
        return None
    return SummaryPlan(material=material, chunks=chunks)


def plan_now(material: Material) -> SummaryPlan:
    """A summary of all but the newest turns, because somebody wants one."""
    log = material.log
    chunks = plan_summary(
        log.ledger,
        material.strategy,
        budget=log.budget,
        pins=log.pins,
        summary=log.summary,
        keep_turns=KEPT_TURNS,
    )
    if not chunks:
        raise UsageError(
            "There is nothing to summarise: all but the newest turn is in a summary already, or "
            "there is no other turn yet."
        )
    return SummaryPlan(material=material, chunks=chunks)


def _plan_view(material: Material, summary: StandingSummary | None) -> None:
    log = material.log
    plan_window(
        log.ledger,
        material.strategy,
        budget=log.budget,
        cut=log.cut,
        pins=log.pins,
        summary=summary,
    )


def _leaves_room(material: Material, through: int) -> bool:
    tokens = material.strategy.summary_tokens + AROUND
    try:
        _plan_view(material, StandingSummary(text="", through=through, tokens=tokens))
    except WindowTooSmallError:
        return False
    return True


def summary_prompt(
    material: Material, chunk: SummaryChunk, so_far: StandingSummary | None
) -> Prompt:
    """The prompt that asks for a piece: as the last one was, up to where the piece ends."""
    asked = material.prompt
    words = material.strategy.summary_tokens // 2
    messages = summary_request(chunk, asked.messages, so_far, words=words)
    ahead = 0 if so_far is None else len(summary_turn(so_far.text))
    positions = [n for start, stop in chunk.spans for n in range(start, stop)]
    foreign = (place for place, n in enumerate(positions, ahead) if n in asked.foreign)
    return msgspec.structs.replace(
        asked,
        messages=messages,
        foreign=frozenset(foreign),
        parameters=_parameters(asked, material.strategy),
        original=None,
        window=None,
        continuity=Continuity(fresh=1, passing=1),
        notices=(),
    )


def _parameters(prompt: Prompt, strategy: Summarise) -> dict[str, Any]:
    """The parameters of the last prompt, so that the cache holds, with room for the summary."""
    kept = {
        name: value for name, value in prompt.parameters.items() if name not in NOT_FOR_SUMMARIES
    }
    if kept.get("tool_choice") not in (None, "auto", {"type": "auto"}):
        del kept["tool_choice"]
    enough = LONGEST * strategy.summary_tokens + ROOM_TO_THINK
    given = [name for name in LIMITS if isinstance(kept.get(name), int)]
    if given:
        return kept | {name: max(kept[name], enough) for name in given}
    own = LIMIT_IN.get(prompt.dialect)
    return kept if own is None or any(name in kept for name in THINKING) else kept | {own: enough}

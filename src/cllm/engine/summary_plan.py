"""What of a conversation goes into a summary, and the prompts that ask for it.

The prompts begin as the last one did, so that the provider's cache has them. Asks nobody and keeps
nothing.
"""

from bisect import bisect_right
from typing import Any, assert_never

import msgspec

from cllm.assembly.window import ByTokens, ByTurns, Strategy, Summarise
from cllm.assembly.window.summary import SummaryChunk, plan_summary, summary_request, summary_turn
from cllm.assembly.window.view import View, plan_window
from cllm.core.conversation import Conversation, StandingSummary
from cllm.core.errors import CllmError, UsageError, WindowTooSmallError
from cllm.core.notice import Notice
from cllm.core.prompt import Continuity, Prompt
from cllm.core.reply import Noticed
from cllm.engine.log import Log, begin_alike
from cllm.engine.prompt_builder import whole_prompt
from cllm.engine.request import Attempt, TurnRequest
from cllm.engine.rounds import with_tools

FAILED_CODE = "summary_failed"
"""Of the notice that is kept with a turn before which no summary could be made."""
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
    """What a summary is made of: a log, a prompt that has all of it, and how it is to be done.

    `is_known`: whether a provider may have the beginning of that prompt in its cache.
    """

    log: Log
    prompt: Prompt
    strategy: Summarise
    is_known: bool = True


class SummaryPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The pieces that are to be asked for, one after another; before a turn, or for themselves."""

    material: Material
    chunks: tuple[SummaryChunk, ...]
    is_for_turn: bool = False

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

    def leaves_room(self, tokens: int) -> bool:
        """Whether what is said now still fits beside a summary of so many tokens."""
        through = self.chunks[-1].through
        try:
            _plan_view(self.material, StandingSummary(text="", through=through, tokens=tokens))
        except WindowTooSmallError:
            return False
        return True


def hides_prompt(conversation: Conversation, request: TurnRequest) -> bool:
    """Whether the request has a prompt that the conversation does not keep.

    It is left out of summaries, which are kept.
    """
    record = conversation.system_record
    if record is not None:
        return record.policy == "dynamic" and request.input.system.message is not None
    return request.input.system.said is not None and not conversation.has_system_message()


def summarises(request: TurnRequest, model: str) -> bool:
    """Whether turns are to be summarised before they leave the window; never if nothing is kept."""
    if request.policy.window is None or request.policy.read_only:
        return False
    return isinstance(request.policy.window(model), Summarise)


def material_of(conversation: Conversation, request: TurnRequest, attempt: Attempt) -> Material:
    """The conversation and what is said now, as a summary has to see them."""
    prompt = whole_prompt(conversation, request, attempt)
    if request.target.tools is not None:
        prompt = with_tools(prompt, request.target.tools)
    strategy = (
        Summarise() if request.policy.window is None else request.policy.window(attempt.model)
    )
    log = Log(prompt, conversation, served=attempt.served, place=request.policy.place)
    return Material(
        log=log,
        prompt=prompt,
        strategy=_within(_as_summarise(strategy), log.budget),
        is_known=not hides_prompt(conversation, request),
    )


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

    A turn for which there is no room beside a summary goes without a new one, and one after a
    summary that failed as long as nothing more leaves the window: each try is paid for.
    """
    log = material.log
    if _was_in_vain(log) and _plan_view(material, log.summary).newly_left == 0:
        return None
    chunks = plan_summary(
        log.ledger,
        material.strategy,
        budget=log.budget,
        pins=log.pins,
        summary=log.summary,
    )
    plan = SummaryPlan(material=material, chunks=chunks, is_for_turn=True)
    if not chunks or not plan.leaves_room(material.strategy.summary_tokens + AROUND):
        return None
    return plan


def _was_in_vain(log: Log) -> bool:
    """Whether a summary was tried since the window begins where it does."""
    window = log.remembered
    return window is not None and any(
        notice.code == FAILED_CODE
        for turn in log.turns
        if turn.window is not None and begin_alike(turn.window, window)
        for notice in turn.notices
    )


def no_summary(error: CllmError) -> Noticed:
    """The notice that no summary was made before a turn."""
    return Noticed(
        notice=Notice(
            code=FAILED_CODE,
            path="messages",
            message=f"No summary was made, and nothing was changed. {error}",
        )
    )


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


def _plan_view(material: Material, summary: StandingSummary | None) -> View:
    log = material.log
    return plan_window(
        log.ledger,
        material.strategy,
        budget=log.budget,
        cut=log.cut,
        pins=log.pins,
        summary=summary,
    )


def summary_prompt(
    material: Material, chunk: SummaryChunk, so_far: StandingSummary | None
) -> Prompt:
    """The prompt that asks for a piece: as the last one was, up to where the piece ends.

    Only the first piece can be in a provider's cache; nothing goes on from any of them.
    """
    asked = material.prompt
    words = material.strategy.summary_tokens // 2
    messages = summary_request(chunk, asked.messages, so_far, words=words)
    ahead = 0 if so_far is None else len(summary_turn(so_far.text))
    positions = [n for start, stop in chunk.spans for n in range(start, stop)]
    foreign = (place for place, n in enumerate(positions, ahead) if n in asked.foreign)
    is_known = material.is_known and so_far == material.log.standing
    new = 1 if is_known else len(messages)
    return msgspec.structs.replace(
        asked,
        messages=messages,
        foreign=frozenset(foreign),
        parameters=_parameters(asked, material.strategy),
        original=None,
        window=None,
        continuity=Continuity(fresh=new, passing=new),
        notices=(),
    )


def _parameters(prompt: Prompt, strategy: Summarise) -> dict[str, Any]:
    """The parameters of the last prompt, so that the cache holds, with room for the summary."""
    kept = {
        name: value for name, value in prompt.parameters.items() if name not in NOT_FOR_SUMMARIES
    }
    if _forces_a_tool(kept.get("tool_choice")):
        del kept["tool_choice"]
    enough = LONGEST * strategy.summary_tokens + ROOM_TO_THINK
    given = [name for name in LIMITS if isinstance(kept.get(name), int)]
    if given:
        return kept | {name: max(kept[name], enough) for name in given}
    own = LIMIT_IN.get(prompt.dialect)
    return kept if own is None or any(name in kept for name in THINKING) else kept | {own: enough}


def _forces_a_tool(choice: object) -> bool:
    kind = choice.get("type") if isinstance(choice, dict) else choice
    return kind not in (None, "auto", "none")

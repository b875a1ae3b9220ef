"""The prompt of a turn for one model: assembled from a request, and cut to its window.

Calls nobody and saves nothing.
"""

from collections.abc import Callable
from datetime import datetime
from functools import partial

import msgspec

from cllm.assembly.assemble import assemble
from cllm.assembly.system import Context, SystemChoice
from cllm.assembly.tokens import weigh_text, weights_for
from cllm.assembly.window import ByTokens, Strategy
from cllm.assembly.window.summary import summary_turn
from cllm.assembly.window.view import View, plan_window
from cllm.core.conversation import Conversation, WindowRecord
from cllm.core.notice import Notice
from cllm.core.prompt import Prompt
from cllm.engine.keep import Price
from cllm.engine.log import Log, Served, begin_alike
from cllm.engine.request import Route, TurnRequest
from cllm.engine.rounds import ToolBox

TRIMMED_CODE = "trimmed"
TRIMMED = "Trimmed old messages to fit context window"


def cut_to_window(
    prompt: Prompt,
    conversation: Conversation | None,
    strategy: Strategy,
    *,
    served: Served,
    place: str | None = None,
    tools: ToolBox | None = None,
) -> Prompt:
    """The prompt with the window's messages in place of all; the conversation is not changed.

    `place` is that of the turn which is asked again, and `tools` will be sent along.
    WindowTooSmallError if what has to be sent is more than the model takes.
    """
    log = Log(prompt, conversation, served=served, place=place, tools=tools)
    if _may_stay_whole(log, strategy) and (log.fits_at_a_glance or log.is_small):
        return prompt
    view = plan_window(
        log.ledger,
        strategy,
        budget=log.budget,
        cut=log.cut,
        pins=log.pins,
        idle=log.idle,
        summary=log.summary,
    )
    return _seen_through(prompt, view, log)


def _may_stay_whole(log: Log, strategy: Strategy) -> bool:
    """Whether all of it is sent if only it fits."""
    return log.standing is None and log.cut in (None, 1) and _takes_what_fits(strategy)


def _takes_what_fits(strategy: Strategy) -> bool:
    """Whether the strategy has no limit of its own, below that of the model."""
    if not isinstance(strategy, ByTokens):
        return False
    return strategy.max_tokens is None and strategy.floor is None and strategy.block is None


def _seen_through(prompt: Prompt, view: View, log: Log) -> Prompt:
    ahead = () if log.standing is None else summary_turn(log.standing.text)
    messages = (*ahead, *view.of(prompt.messages))
    positions = [n for start, stop in view.spans for n in range(start, stop)]
    foreign = (place for place, n in enumerate(positions, len(ahead)) if n in prompt.foreign)
    record = WindowRecord(
        first_sequence=log.sequence(view.cut),
        sent_messages=view.sent_messages,
        left_out_messages=log.before + view.left_out_messages,
        summary_through=None if log.standing is None else log.standing.through,
        context=0 if prompt.window is None else prompt.window.context,
    )
    continuity = prompt.continuity
    if continuity is not None and _begins_anew(record, log):
        continuity = msgspec.structs.replace(continuity, fresh=len(messages))
    return msgspec.structs.replace(
        prompt,
        messages=messages,
        foreign=frozenset(foreign),
        window=record,
        continuity=continuity,
        notices=(*prompt.notices, *_notice(view)),
    )


def _begins_anew(record: WindowRecord, log: Log) -> bool:
    """Whether nothing of this window stands where the last prompt had it."""
    last = log.turns[-1].window if log.turns else None
    return last is None or not begin_alike(last, record)


def _notice(view: View) -> tuple[Notice, ...]:
    if view.newly_left == 0:
        return ()
    turns = "1 turn" if view.newly_left == 1 else f"{view.newly_left} turns"
    return (
        Notice(code=TRIMMED_CODE, path="messages", message=f"{TRIMMED} ({turns} left the window)."),
    )


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One model about to be asked: who serves it, under which prompt and context, at what price."""

    route: Route
    model: str
    choice: SystemChoice
    context: Context
    price: Price


def served_by(
    route: Route, model: str, context_window: Callable[[Route], int | None], now: datetime
) -> Served:
    """What a window has to know of the model that is asked, and when it is."""
    return Served(
        model=model,
        provider=route.provider.name,
        context_window=partial(context_window, route),
        now=now,
    )


def windowed_prompt(
    conversation: Conversation | None, request: TurnRequest, attempt: Attempt, served: Served
) -> Prompt:
    """What is sent: assembled, and cut to its window if it has one."""
    prompt = _with_context_counted(whole_prompt(conversation, request, attempt), attempt)
    if request.window is None:
        return prompt
    return cut_to_window(
        prompt,
        conversation,
        request.window(attempt.model),
        served=served,
        place=request.place,
        tools=request.tools,
    )


def whole_prompt(
    conversation: Conversation | None, request: TurnRequest, attempt: Attempt
) -> Prompt:
    """The prompt with all of the history."""
    fixed = _fixed_model_notice(conversation, request)
    return assemble(
        conversation,
        request.messages if request.sent is None else request.sent,
        system=attempt.choice,
        context=attempt.context,
        notices=() if fixed is None else (fixed,),
        model=attempt.route.model,
        asked_model=attempt.model,
        said_to=model_of(conversation, request),
        parameters=request.parameters,
        dialect=request.dialect,
        strict=request.strict,
        original=request.original,
        stream=request.stream,
        cache_key=request.cache_key,
        place=request.place,
        kept=not request.read_only and request.sent is None,
    )


def model_of(conversation: Conversation | None, request: TurnRequest) -> str:
    """A conversation keeps the model it was created with."""
    stored = None if conversation is None else conversation.model
    return stored or request.model


def _with_context_counted(prompt: Prompt, attempt: Attempt) -> Prompt:
    """The prompt, with a note of how much of it is for this turn only."""
    if not attempt.context.now or prompt.window is None:
        return prompt
    weights = weights_for(attempt.route.provider.name)
    tokens = weigh_text(attempt.context.now, weights).tokens
    return msgspec.structs.replace(
        prompt, window=msgspec.structs.replace(prompt.window, context=tokens)
    )


def _fixed_model_notice(conversation: Conversation | None, request: TurnRequest) -> Notice | None:
    if conversation is None or not request.model_is_explicit:
        return None
    if conversation.model in (None, request.model):
        return None
    return Notice(
        code="model_fixed",
        path="model",
        message=(
            f"Conversation uses model '{conversation.model}', but you specified "
            f"'{request.model}'. Using '{conversation.model}'."
        ),
    )

"""The window of a turn: what of the conversation is sent, by a strategy and what the model takes.

Views are `assembly.window`'s, and their numbers the log's; here they make one prompt of another.
"""

import msgspec

from cllm.assembly.window import ByTokens, Strategy
from cllm.assembly.window.summary import summary_turn
from cllm.assembly.window.view import View, plan_window
from cllm.core.conversation import Conversation, WindowRecord
from cllm.core.notice import Notice
from cllm.core.prompt import Prompt
from cllm.engine.log import Log, Served, begin_alike
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

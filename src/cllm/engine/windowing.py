"""The window of a turn: what of the conversation is sent, by a strategy and what the model takes.

Counts and views are `assembly.window`'s; here they meet a conversation and what was reported of it.
"""

from collections.abc import Callable
from datetime import datetime

import msgspec

from cllm.assembly.tokens import NOTHING, Weighed, Weights, weigh, weigh_text, weights_for
from cllm.assembly.window import (
    ByTokens,
    Ledger,
    Report,
    Strategy,
    View,
    count_messages,
    item_of,
    plan_window,
)
from cllm.core.conversation import Conversation, Turn
from cllm.core.message import AnyPart, Role
from cllm.core.notice import Notice
from cllm.core.prompt import Prompt
from cllm.wire.translate import parts_of

TRIMMED_CODE = "trimmed"
TRIMMED = "Trimmed old messages to fit context window"
ROOM_FOR_AN_ANSWER = 4096
LARGEST_ROOM = 0.25
LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
# No model that is asked has a smaller window, so that shorter prompts need not be looked at.
SMALLEST_WINDOW = 1000

ContextWindow = Callable[[], int | None]


class _Seen(msgspec.Struct, frozen=True, kw_only=True):
    """A message with its parts, which is what its item is made of."""

    role: Role
    parts: tuple[AnyPart, ...]


def cut_to_window(
    prompt: Prompt,
    conversation: Conversation | None,
    strategy: Strategy,
    *,
    without_place: str | None = None,
    model: str,
    provider: str,
    context_window: ContextWindow,
    now: datetime,
) -> Prompt:
    """The prompt with the window's messages in place of all; the conversation is not changed."""
    turns = _told(prompt, conversation, without_place)
    weights = weights_for(provider)
    weighed = [weigh(message, weights) for message in prompt.messages]
    beside = _beside(prompt, weights)
    cut = turns[-1].window.first_sequence if turns and turns[-1].window is not None else None
    first = 1 if conversation is None else conversation.first_sequence
    counted = count_messages(
        weighed,
        replies=_replies(turns),
        last=_report(turns, first, beside, model=model),
        beside=beside,
    )
    small = counted.beside + sum(counted.messages) < SMALLEST_WINDOW
    if small and cut in (None, first) and _takes_what_fits(strategy):
        return prompt
    ledger = Ledger(
        (
            item_of(_Seen(role=message.role, parts=parts_of(message)), tokens)
            for message, tokens in zip(prompt.messages, counted.messages, strict=True)
        ),
        first_sequence=first,
    )
    view = plan_window(
        ledger,
        strategy,
        budget=None if small else _budget(prompt, context_window(), counted.beside),
        cut=cut,
        idle=_idle(turns, now),
    )
    return _seen_through(prompt, view)


def _takes_what_fits(strategy: Strategy) -> bool:
    """Whether the strategy has no limit of its own, below that of the model."""
    return isinstance(strategy, ByTokens) and strategy.max_tokens is None


def _told(
    prompt: Prompt, conversation: Conversation | None, without_place: str | None
) -> tuple[Turn, ...]:
    """The turns of the history that the prompt begins with."""
    if conversation is None:
        return ()
    told = tuple(
        turn for turn in conversation.turns if turn.is_history and turn.place != without_place
    )
    count = sum(len(turn.messages) for turn in told)
    return told if count <= len(prompt.messages) else ()


def _beside(prompt: Prompt, weights: Weights) -> Weighed:
    system = NOTHING if prompt.system is None else weigh(prompt.system, weights)
    tools = prompt.parameters.get("tools")
    if not tools:
        return system
    return system + weigh_text(msgspec.json.encode(tools, enc_hook=str).decode(), weights)


def _replies(turns: tuple[Turn, ...]) -> dict[int, int]:
    """What providers counted in replies, by the positions of these."""
    counts: dict[int, int] = {}
    end = 0
    for turn in turns:
        end += len(turn.messages)
        if _is_one_call(turn) and turn.usage is not None:
            counts[end - 1] = turn.usage.output
    return counts


def _report(turns: tuple[Turn, ...], first: int, beside: Weighed, *, model: str) -> Report | None:
    """What the provider counted in the last prompt, if it can be said what was in that."""
    if not turns or not _is_one_call(turns[-1]):
        return None
    last = turns[-1]
    if last.usage is None or last.window is None or last.model is None:
        return None
    if last.model != model:
        return None
    start = last.window.first_sequence - first
    stop = sum(len(turn.messages) for turn in turns) - 1
    if start < 0 or stop - start != last.window.sent_messages:
        return None
    usage = last.usage
    tokens = usage.input + usage.cache_read + usage.cache_write
    return Report(spans=((start, stop),), tokens=tokens, beside=beside) if tokens else None


def _is_one_call(turn: Turn) -> bool:
    """Whether the turn's usage is that of one call, counted by its provider."""
    counted = turn.usage is not None and not turn.usage.estimated
    return counted and sum(message.role == "assistant" for message in turn.messages) == 1


def _budget(prompt: Prompt, window: int | None, beside: int) -> int | None:
    if window is None:
        return None
    asked = (prompt.parameters.get(name) for name in LIMITS)
    room = next((limit for limit in asked if isinstance(limit, int)), ROOM_FOR_AN_ANSWER)
    return window - min(room, int(window * LARGEST_ROOM)) - beside


def _idle(turns: tuple[Turn, ...], now: datetime) -> float:
    ended = turns[-1].ended_at if turns else None
    return 0.0 if ended is None else max(0.0, (now - ended).total_seconds())


def _seen_through(prompt: Prompt, view: View) -> Prompt:
    if view.newly_left == 0 and len(prompt.messages) == view.sent_messages:
        notices = prompt.notices
    else:
        notices = (*prompt.notices, *_notice(view))
    positions = [n for start, stop in view.spans for n in range(start, stop)]
    foreign = frozenset(place for place, n in enumerate(positions) if n in prompt.foreign)
    record = prompt.window
    if record is not None:
        record = msgspec.structs.replace(
            record,
            first_sequence=view.cut,
            sent_messages=view.sent_messages,
            left_out_messages=view.left_out_messages,
        )
    return msgspec.structs.replace(
        prompt,
        messages=view.of(prompt.messages),
        foreign=foreign,
        window=record,
        notices=notices,
    )


def _notice(view: View) -> tuple[Notice, ...]:
    if view.newly_left == 0:
        return ()
    turns = "1 turn" if view.newly_left == 1 else f"{view.newly_left} turns"
    return (
        Notice(code=TRIMMED_CODE, path="messages", message=f"{TRIMMED} ({turns} left the window)."),
    )

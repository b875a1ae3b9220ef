"""The log that a window is planned on: the messages of a prompt, numbered, weighed and counted.

A store numbers the messages of failed turns too, and may have loaded only the end; a plan numbers
the messages that can be sent, from 1. This module converts between the two.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from datetime import datetime
from functools import cached_property
from math import ceil

import msgspec

from cllm.core.conversation import StandingSummary, StoredConversation, Turn, WindowRecord
from cllm.core.message import Message
from cllm.core.prompt import Prompt
from cllm.core.reply import Usage
from cllm.engine.tool_rounds import ToolBox, add_tools
from cllm.window.plan import find_sent_spans
from cllm.window.tokens import (
    HIGHEST_RATIO,
    MARGIN,
    NO_TOKENS,
    TokenEstimate,
    TokenWeights,
    estimate_message,
    estimate_text,
    weights_for,
)
from cllm.window.turn_index import (
    IndexedMessage,
    ReportedCount,
    TokenCounts,
    TurnIndex,
    count_messages,
    make_indexed_message,
)
from cllm.wire.convert import parts_of

DEFAULT_REPLY_TOKENS = 4096
MAX_REPLY_SHARE = 0.25
LIMIT_PARAMETERS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
# Tokens. No model has a smaller window, so that nobody looks up the window for a shorter prompt.
SMALLEST_WINDOW = 1000
HIGHEST_FACTOR = MARGIN * HIGHEST_RATIO


class ModelContext(msgspec.Struct, frozen=True, kw_only=True):
    model: str
    provider: str
    context_window: Callable[[], int | None]
    now: datetime


class PromptHistory:
    """The messages of a prompt as a plan needs them; numbers are computed when needed.

    `place` is that of the turn which is answered again, and is not in the prompt.
    """

    def __init__(
        self,
        prompt: Prompt,
        conversation: StoredConversation | None,
        *,
        model_context: ModelContext,
        place: str | None = None,
        tools: ToolBox | None = None,
    ) -> None:
        self._prompt = prompt if tools is None else add_tools(prompt, tools)
        self._conversation = conversation
        self._place = place
        self._served = model_context
        self._weights = weights_for(model_context.provider)
        self.turns = () if conversation is None else conversation.history(before=place)
        self.standing = None if conversation is None else conversation.summary

    @cached_property
    def sequences(self) -> tuple[int, ...]:
        """The sequence numbers of the messages, also of new ones."""
        if self._conversation is None:
            return tuple(range(1, len(self._prompt.messages) + 1))
        found: list[int] = []
        number = self._conversation.first_sequence
        for turn in self._conversation.turns:
            if turn.place == self._place:
                break
            if turn.is_history:
                found.extend(range(number, number + len(turn.messages)))
            number += len(turn.messages)
        return (*found, *range(number, number + len(self._prompt.messages) - len(found)))

    def number(self, sequence: int) -> int:
        """Return the plan's number of the first message from this sequence number on."""
        return bisect_left(self.sequences, sequence) + 1

    def sequence(self, number: int) -> int:
        return self.sequences[min(number, len(self.sequences)) - 1] if self.sequences else 1

    @property
    def before(self) -> int:
        """Messages of the conversation before the log."""
        return 0 if self._conversation is None else self._conversation.first_sequence - 1

    @property
    def pins(self) -> tuple[int, ...]:
        """The plan's numbers of pinned messages in the log."""
        pinned = () if self._conversation is None else self._conversation.pins
        known = set(self.sequences) if pinned else set()
        return tuple(self.number(pin) for pin in pinned if pin in known)

    @property
    def summary(self) -> StandingSummary | None:
        """The summary, with `through` as a number of the plan."""
        if self.standing is None:
            return None
        through = bisect_right(self.sequences, self.standing.through)
        return msgspec.structs.replace(self.standing, through=through)

    @cached_property
    def remembered(self) -> WindowRecord | None:
        """The last window of this model, unless its summary was undone."""
        turns = (t for t in reversed(self.turns) if t.model in (None, self._served.model))
        window = next((turn.window for turn in turns if turn.window is not None), None)
        return None if window is None or has_undone_summary(window, self.standing) else window

    @property
    def window_start(self) -> int | None:
        """The plan's number of the remembered cut."""
        if self.remembered is None:
            return None
        first = self.remembered.first_sequence
        return 1 if first <= self.before + 1 else self.number(first)

    @property
    def idle(self) -> float:
        """Seconds since the last turn."""
        ended = self.turns[-1].ended_at if self.turns else None
        return 0.0 if ended is None else max(0.0, (self._served.now - ended).total_seconds())

    @cached_property
    def turn_index(self) -> TurnIndex:
        pairs = zip(self._items, self._counted.messages, strict=True)
        return TurnIndex(msgspec.structs.replace(item, tokens=tokens) for item, tokens in pairs)

    @property
    def fits_whole(self) -> bool:
        """Whether a plan without limits of its own sends everything (docs/decisions/0020).

        A cut leaves at least half of the budget beside the pins (`LARGEST_BLOCK`).
        """
        tokens = self._most_tokens()
        window = None if tokens < SMALLEST_WINDOW else self._served.context_window()
        return window is None or (not self.pins and 2 * tokens <= window - self._room(window))

    def _most_tokens(self) -> int:
        """Return at least the tokens of the prompt: the count of the last prompt and newer text."""
        overhead = _beside(self._prompt, self._weights)
        report = self._report(overhead)
        if report is None or len(report.spans) > 1 or report.spans[0][0] > 0:
            return self._counted.overhead + sum(self._counted.messages)
        newer = [
            estimate_message(one, self._weights)
            for one in self._prompt.messages[report.spans[0][1] :]
        ]
        estimate = HIGHEST_FACTOR * sum([one.tokens for one in (overhead, *newer)])
        reply = self.turns[-1].usage
        return report.tokens + ceil(estimate) + (0 if reply is None else reply.output)

    @cached_property
    def budget(self) -> int | None:
        """Tokens for the messages; None if there is no limit, or none that matters."""
        if self._counted.overhead + sum(self._counted.messages) < SMALLEST_WINDOW:
            return None
        window = self._served.context_window()
        if window is None:
            return None
        return window - self._room(window) - self._counted.overhead

    def _room(self, window: int) -> int:
        """Return the tokens of the window that the reply can need."""
        limits = (self._prompt.parameters.get(name) for name in LIMIT_PARAMETERS)
        room = next((limit for limit in limits if isinstance(limit, int)), DEFAULT_REPLY_TOKENS)
        return min(room, int(window * MAX_REPLY_SHARE))

    @cached_property
    def _items(self) -> tuple[IndexedMessage, ...]:
        return tuple(map(index_message, self._prompt.messages))

    @cached_property
    def _counted(self) -> TokenCounts:
        overhead = _beside(self._prompt, self._weights)
        return count_messages(
            [estimate_message(message, self._weights) for message in self._prompt.messages],
            replies=_replies(self.turns, self._served.model),
            last=self._report(overhead),
            overhead=overhead,
        )

    def _report(self, overhead: TokenEstimate) -> ReportedCount | None:
        """Return the provider's count of the last prompt, if its content is known."""
        last = self.turns[-1] if self.turns else None
        if last is None or last.window is None or last.model != self._served.model:
            return None
        tokens = _counted_in(last, last.window, self.standing)
        spans = () if tokens is None else self._sent_in(last, last.window)
        if tokens is None or not spans:
            return None
        return ReportedCount(
            spans=spans, tokens=tokens, overhead=overhead + TokenEstimate(plain=last.window.context)
        )

    def _sent_in(self, last: Turn, window: WindowRecord) -> tuple[tuple[int, int], ...]:
        """Return the spans of the last prompt; empty if its record does not match."""
        stop = sum([len(turn.messages) for turn in self.turns]) - 1
        first = window.first_sequence
        window_start = 1 if first <= self.before + 1 else self.number(first)
        spans = (
            ((0, stop),)
            if window_start == 1
            else find_sent_spans(self._items[:stop], window_start, self.pins)
        )
        between = len(last.messages) - len(last.asked) - 1
        found = sum(end - start for start, end in spans)
        return spans if found == window.sent_messages + between else ()


def has_same_start(one: WindowRecord, other: WindowRecord) -> bool:
    return (one.first_sequence, one.summary_through) == (
        other.first_sequence,
        other.summary_through,
    )


def has_undone_summary(window: WindowRecord, summary: StandingSummary | None) -> bool:
    """Whether the summary of a window was undone."""
    through = 0 if summary is None else summary.through
    return window.summary_through is not None and window.summary_through > through


def find_first_sequence(conversation: StoredConversation, model: str) -> int:
    """Return the first message that a window for this model can need.

    That is all for another model, and all after the last summary if one was undone.
    """
    last = next((turn for turn in reversed(conversation.turns) if turn.is_history), None)
    if last is None or last.window is None:
        return conversation.first_sequence
    if last.model not in (None, model):
        return 1
    if not has_undone_summary(last.window, conversation.summary):
        return _first_turn(conversation)
    through = 0 if conversation.summary is None else conversation.summary.through
    return min((through + 1, *conversation.pins))


def _first_turn(conversation: StoredConversation) -> int:
    """Return from where to load so that the log begins with a whole turn.

    A turn can be stored in pieces, and the cut or a pin can be in a later one.
    """
    history = (
        message for turn in conversation.turns if turn.is_history for message in turn.messages
    )
    first = next(history, None)
    if first is None or index_message(first).is_plain_user:
        return conversation.first_sequence
    loaded = sum(len(turn.messages) for turn in conversation.turns)
    return max(1, conversation.first_sequence - loaded)


def index_message(message: Message) -> IndexedMessage:
    return make_indexed_message(message.role, parts_of(message))


def _beside(prompt: Prompt, weights: TokenWeights) -> TokenEstimate:
    system = NO_TOKENS if prompt.system is None else estimate_message(prompt.system, weights)
    tools = prompt.parameters.get("tools")
    if not tools:
        return system
    return system + estimate_text(msgspec.json.encode(tools, enc_hook=str).decode(), weights)


def _replies(turns: tuple[Turn, ...], model: str) -> dict[int, int]:
    """Return the counted tokens of the model's replies by position."""
    counts: dict[int, int] = {}
    end = 0
    for turn in turns:
        end += len(turn.messages)
        if turn.model == model and (usage := _usage_of_call(turn)) is not None:
            counts[end - 1] = usage.output
    return counts


def _counted_in(last: Turn, window: WindowRecord, standing: StandingSummary | None) -> int | None:
    """Return the counted tokens of the last prompt without its summary."""
    tokens = window.counted
    if tokens is None and (usage := _usage_of_call(last)) is not None:
        tokens = usage.prompt
    if not tokens or not last.messages or last.messages[-1].role != "assistant":
        return None
    if window.summary_through is None:
        return tokens
    while standing is not None and standing.through != window.summary_through:
        standing = standing.before
    return None if standing is None or standing.tokens >= tokens else tokens - standing.tokens


def _usage_of_call(turn: Turn) -> Usage | None:
    """Return the usage of a turn with one counted call."""
    if turn.usage is None or turn.usage.estimated:
        return None
    calls = sum([message.role == "assistant" for message in turn.messages])
    return turn.usage if calls == 1 else None

"""The history of a prompt for the window plan: messages with numbers and token counts.

A store also numbers the messages of failed turns, and may have loaded only the newest ones. A plan
numbers the messages that can be sent, from 1. This module converts between the two.
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
# Tokens. No model has a smaller window, so a shorter prompt needs no lookup of the window.
SMALLEST_WINDOW = 1000
HIGHEST_FACTOR = MARGIN * HIGHEST_RATIO


class ModelContext(msgspec.Struct, frozen=True, kw_only=True):
    model: str
    provider: str
    context_window: Callable[[], int | None]
    now: datetime


class PromptHistory:
    """The messages of a prompt as a plan needs them; numbers are computed when needed.

    `place` is the turn that is answered again; it is not in the prompt.
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
        self._model_context = model_context
        self._weights = weights_for(model_context.provider)
        self.turns = () if conversation is None else conversation.history(before=place)
        self.stored_summary = None if conversation is None else conversation.summary

    @cached_property
    def sequences(self) -> tuple[int, ...]:
        """Of all messages, including new ones."""
        if self._conversation is None:
            return tuple(range(1, len(self._prompt.messages) + 1))
        sequences: list[int] = []
        number = self._conversation.first_sequence
        for turn in self._conversation.turns:
            if turn.place == self._place:
                break
            if turn.is_history:
                sequences.extend(range(number, number + len(turn.messages)))
            number += len(turn.messages)
        new = len(self._prompt.messages) - len(sequences)
        return (*sequences, *range(number, number + new))

    def to_number(self, sequence: int) -> int:
        """Return the plan's number of the first message from a sequence number on."""
        return bisect_left(self.sequences, sequence) + 1

    def to_sequence(self, number: int) -> int:
        return self.sequences[min(number, len(self.sequences)) - 1] if self.sequences else 1

    @property
    def unloaded_messages(self) -> int:
        return 0 if self._conversation is None else self._conversation.first_sequence - 1

    @property
    def pins(self) -> tuple[int, ...]:
        """The plan's numbers of pinned messages."""
        pinned = () if self._conversation is None else self._conversation.pins
        sequences = set(self.sequences) if pinned else set()
        return tuple(self.to_number(pin) for pin in pinned if pin in sequences)

    @property
    def numbered_summary(self) -> StandingSummary | None:
        """The stored summary, with `through` as a number of the plan."""
        if self.stored_summary is None:
            return None
        through = bisect_right(self.sequences, self.stored_summary.through)
        return msgspec.structs.replace(self.stored_summary, through=through)

    @cached_property
    def last_window(self) -> WindowRecord | None:
        """The last window of this model, unless its summary was undone."""
        turns = (t for t in reversed(self.turns) if t.model in (None, self._model_context.model))
        window = next((turn.window for turn in turns if turn.window is not None), None)
        return None if window is None or has_undone_summary(window, self.stored_summary) else window

    @property
    def last_start(self) -> int | None:
        """The plan's number for the start of the last window."""
        if self.last_window is None:
            return None
        first = self.last_window.first_sequence
        return 1 if first <= self.unloaded_messages + 1 else self.to_number(first)

    @property
    def idle(self) -> float:
        """Seconds since the last turn."""
        ended = self.turns[-1].ended_at if self.turns else None
        return 0.0 if ended is None else max(0.0, (self._model_context.now - ended).total_seconds())

    @cached_property
    def turn_index(self) -> TurnIndex:
        counts = self._token_counts
        return TurnIndex(
            msgspec.structs.replace(item, tokens=tokens, margin=margin)
            for item, tokens, margin in zip(
                self._items, counts.messages, counts.margins, strict=True
            )
        )

    @property
    def fits_whole(self) -> bool:
        """Whether a strategy without limits sends everything (docs/decisions/0020).

        Trimming leaves at least half of the budget without pins (`MAX_BLOCK_SHARE`).
        """
        tokens = self._estimate_max_tokens()
        window = None if tokens < SMALLEST_WINDOW else self._model_context.context_window()
        return window is None or (
            not self.pins and 2 * tokens <= window - self._reserve_reply_tokens(window)
        )

    def _estimate_max_tokens(self) -> int:
        """Return an upper bound: the count of the last prompt and an estimate of newer text."""
        overhead = _estimate_overhead(self._prompt, self._weights)
        report = self._find_last_report(overhead)
        if report is None or len(report.spans) > 1 or report.spans[0][0] > 0:
            return self._token_counts.overhead + sum(self._token_counts.messages)
        newer = [
            estimate_message(one, self._weights)
            for one in self._prompt.messages[report.spans[0][1] :]
        ]
        estimate = HIGHEST_FACTOR * sum([one.tokens for one in (overhead, *newer)])
        reply = self.turns[-1].usage
        return report.tokens + ceil(estimate) + (0 if reply is None else reply.output)

    @cached_property
    def budget(self) -> int | None:
        """Tokens for the messages; None if there is no limit or the prompt is far below it."""
        if self._token_counts.overhead + sum(self._token_counts.messages) < SMALLEST_WINDOW:
            return None
        window = self._model_context.context_window()
        if window is None:
            return None
        return window - self._reserve_reply_tokens(window) - self._token_counts.overhead

    def _reserve_reply_tokens(self, window: int) -> int:
        limits = (self._prompt.parameters.get(name) for name in LIMIT_PARAMETERS)
        tokens = next((limit for limit in limits if isinstance(limit, int)), DEFAULT_REPLY_TOKENS)
        return min(tokens, int(window * MAX_REPLY_SHARE))

    @cached_property
    def _items(self) -> tuple[IndexedMessage, ...]:
        return tuple(map(index_message, self._prompt.messages))

    @cached_property
    def _token_counts(self) -> TokenCounts:
        overhead = _estimate_overhead(self._prompt, self._weights)
        return count_messages(
            [estimate_message(message, self._weights) for message in self._prompt.messages],
            replies=_read_reply_counts(self.turns, self._model_context.model),
            last=self._find_last_report(overhead),
            overhead=overhead,
        )

    def _find_last_report(self, overhead: TokenEstimate) -> ReportedCount | None:
        """Return the provider's count of the last prompt, if its content is known."""
        last = self.turns[-1] if self.turns else None
        if last is None or last.window is None or last.model != self._model_context.model:
            return None
        tokens = _read_last_prompt_tokens(last, last.window, self.stored_summary)
        spans = () if tokens is None else self._find_last_spans(last, last.window)
        if tokens is None or not spans:
            return None
        return ReportedCount(
            spans=spans, tokens=tokens, overhead=overhead + TokenEstimate(plain=last.window.context)
        )

    def _find_last_spans(self, last: Turn, window: WindowRecord) -> tuple[tuple[int, int], ...]:
        """Return the spans of the last prompt; empty if they do not match its record."""
        stop = sum([len(turn.messages) for turn in self.turns]) - 1
        first = window.first_sequence
        window_start = 1 if first <= self.unloaded_messages + 1 else self.to_number(first)
        spans = (
            ((0, stop),)
            if window_start == 1
            else find_sent_spans(self._items[:stop], window_start, self.pins)
        )
        between = len(last.messages) - len(last.asked) - 1
        count = sum(end - start for start, end in spans)
        return spans if count == window.sent_messages + between else ()


def has_same_start(one: WindowRecord, other: WindowRecord) -> bool:
    return (one.first_sequence, one.summary_through) == (
        other.first_sequence,
        other.summary_through,
    )


def has_undone_summary(window: WindowRecord, summary: StandingSummary | None) -> bool:
    through = 0 if summary is None else summary.through
    return window.summary_through is not None and window.summary_through > through


def find_first_sequence(conversation: StoredConversation, model: str) -> int:
    """Return the first message that a window for this model can need.

    That is 1 for another model, the first after the last summary if one was undone.
    """
    last = next((turn for turn in reversed(conversation.turns) if turn.is_history), None)
    if last is None or last.window is None:
        return conversation.first_sequence
    if last.model not in (None, model):
        return 1
    if not has_undone_summary(last.window, conversation.summary):
        return _find_turn_start(conversation)
    through = 0 if conversation.summary is None else conversation.summary.through
    return min((through + 1, *conversation.pins))


def _find_turn_start(conversation: StoredConversation) -> int:
    """Return the message from which to load so that the history starts with a whole turn.

    A turn can be stored in several rows; the window start or a pin can be in a later one.
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


def _estimate_overhead(prompt: Prompt, weights: TokenWeights) -> TokenEstimate:
    system = NO_TOKENS if prompt.system is None else estimate_message(prompt.system, weights)
    tools = prompt.parameters.get("tools")
    if not tools:
        return system
    return system + estimate_text(msgspec.json.encode(tools, enc_hook=str).decode(), weights)


def _read_reply_counts(turns: tuple[Turn, ...], model: str) -> dict[int, int]:
    """Return the reported tokens of the model's replies by position."""
    counts: dict[int, int] = {}
    end = 0
    for turn in turns:
        end += len(turn.messages)
        if turn.model == model and (usage := _find_call_usage(turn)) is not None:
            counts[end - 1] = usage.output
    return counts


def _read_last_prompt_tokens(
    last: Turn, window: WindowRecord, summary: StandingSummary | None
) -> int | None:
    """Return the reported tokens of the last prompt without its summary."""
    tokens = window.counted
    if tokens is None and (usage := _find_call_usage(last)) is not None:
        tokens = usage.prompt
    if not tokens or not last.messages or last.messages[-1].role != "assistant":
        return None
    if window.summary_through is None:
        return tokens
    while summary is not None and summary.through != window.summary_through:
        summary = summary.before
    return None if summary is None or summary.tokens >= tokens else tokens - summary.tokens


def _find_call_usage(turn: Turn) -> Usage | None:
    """Return the usage of a turn with exactly one call, if reported."""
    if turn.usage is None or turn.usage.estimated:
        return None
    calls = sum([message.role == "assistant" for message in turn.messages])
    return turn.usage if calls == 1 else None

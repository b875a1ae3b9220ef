"""The log that a window is planned on: the messages of a prompt, numbered, weighed and counted.

A store numbers the messages of failed turns too, and may have loaded only the end of a
conversation; a plan numbers what can be sent, from 1. Both kinds of numbers meet here, and only
here. Looks at a conversation and what was reported of it; plans nothing.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from datetime import datetime
from functools import cached_property

import msgspec

from cllm.assembly.tokens import NOTHING, Weighed, Weights, weigh, weigh_text, weights_for
from cllm.assembly.window.ledger import Counted, Item, Ledger, Report, count_messages, item_of
from cllm.assembly.window.view import sent_spans
from cllm.core.conversation import Conversation, StandingSummary, Turn, WindowRecord
from cllm.core.message import Message
from cllm.core.prompt import Prompt
from cllm.engine.rounds import ToolBox, with_tools
from cllm.wire.translate import parts_of

ROOM_FOR_AN_ANSWER = 4096
LARGEST_ROOM = 0.25
LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
# No model that is asked has a smaller window, so that shorter prompts need not be looked at.
SMALLEST_WINDOW = 1000
# What stands in the JSON of a message that has a file or an image in it, in any protocol.
MEDIA = (b'"image', b'"file', b'"document', b'"input_', b'"audio', b'"video')


class Served(msgspec.Struct, frozen=True, kw_only=True):
    """The model that is asked, as turns name it, who serves it, what it takes, and when this is."""

    model: str
    provider: str
    context_window: Callable[[], int | None]
    now: datetime


class Log:
    """What a prompt says, as a plan has it; each number is worked out when it is first needed.

    `place` is that of the turn which is asked again, and is not in the prompt. `tools` are those
    that the prompt will be sent with.
    """

    def __init__(
        self,
        prompt: Prompt,
        conversation: Conversation | None,
        *,
        served: Served,
        place: str | None = None,
        tools: ToolBox | None = None,
    ) -> None:
        self._prompt = prompt if tools is None else with_tools(prompt, tools)
        self._conversation = conversation
        self._place = place
        self._served = served
        self._weights = weights_for(served.provider)
        self.turns = () if conversation is None else conversation.history(before=place)

    @cached_property
    def sequences(self) -> tuple[int, ...]:
        """The sequence numbers of the messages, in their order."""
        return _sequences(self._prompt, self._conversation, self._place)

    def number(self, sequence: int) -> int:
        """The plan's number for the first message from this sequence number on."""
        return bisect_left(self.sequences, sequence) + 1

    def sequence(self, number: int) -> int:
        """The sequence number of the message that a plan has this number for."""
        return self.sequences[min(number, len(self.sequences)) - 1] if self.sequences else 1

    @property
    def before(self) -> int:
        """How many messages of the conversation stand before the log."""
        return 0 if self._conversation is None else self._conversation.first_sequence - 1

    @property
    def pins(self) -> tuple[int, ...]:
        """The plan's numbers of what is pinned; what is not in the log is in no window."""
        pinned = () if self._conversation is None else self._conversation.pins
        known = set(self.sequences) if pinned else set()
        return tuple(self.number(pin) for pin in pinned if pin in known)

    @property
    def standing(self) -> StandingSummary | None:
        """The summary of the conversation, as it is stored."""
        return None if self._conversation is None else self._conversation.summary

    @property
    def summary(self) -> StandingSummary | None:
        """The same, for a plan: it goes through the number that the plan has for its end."""
        if self.standing is None:
            return None
        through = bisect_right(self.sequences, self.standing.through)
        return msgspec.structs.replace(self.standing, through=through)

    @cached_property
    def remembered(self) -> WindowRecord | None:
        """The last window of this model, as long as the summary stands that it was made with.

        What was added without asking a model is part of the same window.
        """
        asked = (t for t in reversed(self.turns) if t.model in (None, self._served.model))
        window = next((turn.window for turn in asked if turn.window is not None), None)
        return None if window is None or is_undone(window, self.standing) else window

    @property
    def cut(self) -> int | None:
        """The plan's number of the cut that is remembered; None where it begins anew."""
        if self.remembered is None:
            return None
        first = self.remembered.first_sequence
        return 1 if first <= self.before + 1 else self.number(first)

    @property
    def idle(self) -> float:
        """The seconds since the conversation was last answered."""
        ended = self.turns[-1].ended_at if self.turns else None
        return 0.0 if ended is None else max(0.0, (self._served.now - ended).total_seconds())

    @cached_property
    def ledger(self) -> Ledger:
        pairs = zip(self._items, self._counted.messages, strict=True)
        return Ledger(msgspec.structs.replace(item, tokens=tokens) for item, tokens in pairs)

    @cached_property
    def is_small(self) -> bool:
        """Whether it fits every model, so that nobody has to be asked what this one takes."""
        return self._counted.beside + sum(self._counted.messages) < SMALLEST_WINDOW

    @property
    def fits_at_a_glance(self) -> bool:
        """Whether its bytes alone say that no part of it has to leave, so that nothing is counted.

        No token is less than a byte. As a cold cache is a reason to cut back to half of what the
        model takes, or more, it is half of that.
        """
        most = _most_tokens(self._prompt)
        if most is None or most < SMALLEST_WINDOW:
            return most is not None
        window = self._served.context_window()
        return window is None or 2 * most <= self._without_room(window)

    @cached_property
    def budget(self) -> int | None:
        """The tokens for the messages; None where there is no limit, or none that matters."""
        window = None if self.is_small else self._served.context_window()
        return None if window is None else self._without_room(window) - self._counted.beside

    def _without_room(self, window: int) -> int:
        """What the model takes, without room for its answer."""
        asked = (self._prompt.parameters.get(name) for name in LIMITS)
        room = next((limit for limit in asked if isinstance(limit, int)), ROOM_FOR_AN_ANSWER)
        return window - min(room, int(window * LARGEST_ROOM))

    @cached_property
    def _items(self) -> tuple[Item, ...]:
        return tuple(map(item_for, self._prompt.messages))

    @cached_property
    def _counted(self) -> Counted:
        beside = _beside(self._prompt, self._weights)
        return count_messages(
            [weigh(message, self._weights) for message in self._prompt.messages],
            replies=_replies(self.turns, self._served.model),
            last=self._report(beside),
            beside=beside,
        )

    def _report(self, beside: Weighed) -> Report | None:
        """What the provider counted in the last prompt, if it can be said what was in that."""
        last = self.turns[-1] if self.turns else None
        if last is None or last.window is None or last.model != self._served.model:
            return None
        tokens = _counted_in(last, last.window, self.standing)
        spans = () if tokens is None else self._sent_in(last, last.window)
        if tokens is None or not spans:
            return None
        return Report(
            spans=spans, tokens=tokens, beside=beside + Weighed(plain=last.window.context)
        )

    def _sent_in(self, last: Turn, window: WindowRecord) -> tuple[tuple[int, int], ...]:
        """What of the log the last prompt had; nothing if its record says otherwise."""
        stop = sum(len(turn.messages) for turn in self.turns) - 1
        cut = self.number(window.first_sequence)
        spans = ((0, stop),) if cut == 1 else sent_spans(self._items[:stop], cut, self.pins)
        roles = [message.role for message in last.messages]
        asked = roles.index("assistant") if "assistant" in roles else len(roles)
        between = len(roles) - asked - 1
        found = sum(end - start for start, end in spans)
        return spans if found == window.sent_messages + between else ()


def _most_tokens(prompt: Prompt) -> int | None:
    """More tokens than the prompt can have; None where it may have files, which can be any size."""
    said = [message.raw for message in prompt.all_messages]
    # A quoted word in a text can look like a file.
    if any(kind in raw for raw in said for kind in MEDIA):
        return None
    tools = prompt.parameters.get("tools")
    beside = len(msgspec.json.encode(tools, enc_hook=str)) if tools else 0
    return beside + sum(map(len, said))


def begin_alike(one: WindowRecord, other: WindowRecord) -> bool:
    """Whether two windows begin with the same messages, behind the same summary."""
    return (one.first_sequence, one.summary_through) == (
        other.first_sequence,
        other.summary_through,
    )


def is_undone(window: WindowRecord, summary: StandingSummary | None) -> bool:
    """Whether a window was behind a summary that stands no more."""
    through = 0 if summary is None else summary.through
    return window.summary_through is not None and window.summary_through > through


def first_needed(conversation: Conversation, model: str) -> int:
    """The first message that a window for this model can need of what a store gave for one.

    That is from the last cut on, and the turns that the cut and the pins are in. For another model
    the cut begins anew, and so it does when a summary was undone: then it is all that the model, or
    the summary before it, does not have.
    """
    last = next((turn for turn in reversed(conversation.turns) if turn.is_history), None)
    if last is None or last.window is None:
        return conversation.first_sequence
    if last.model not in (None, model):
        return 1
    if not is_undone(last.window, conversation.summary):
        return _first_turn(conversation)
    through = 0 if conversation.summary is None else conversation.summary.through
    return min((through + 1, *conversation.pins))


def _first_turn(conversation: Conversation) -> int:
    """Where to look for the beginning of the first turn, if it is not in what was loaded.

    A turn can be stored in pieces, and the cut or a pin may be in one of the later ones.
    """
    history = (
        message for turn in conversation.turns if turn.is_history for message in turn.messages
    )
    first = next(history, None)
    if first is None or item_for(first).is_plain_user:
        return conversation.first_sequence
    loaded = sum(len(turn.messages) for turn in conversation.turns)
    return max(1, conversation.first_sequence - loaded)


def item_for(message: Message) -> Item:
    """What a window has to know of a message whose tokens are not counted yet."""
    return item_of(message.role, parts_of(message))


def _sequences(
    prompt: Prompt, conversation: Conversation | None, place: str | None
) -> tuple[int, ...]:
    """The sequence numbers of a prompt's messages; what is said now has those that it will have."""
    if conversation is None:
        return tuple(range(1, len(prompt.messages) + 1))
    found: list[int] = []
    number = conversation.first_sequence
    for turn in conversation.turns:
        if turn.place == place:
            break
        if turn.is_history:
            found.extend(range(number, number + len(turn.messages)))
        number += len(turn.messages)
    return (*found, *range(number, number + len(prompt.messages) - len(found)))


def _beside(prompt: Prompt, weights: Weights) -> Weighed:
    system = NOTHING if prompt.system is None else weigh(prompt.system, weights)
    tools = prompt.parameters.get("tools")
    if not tools:
        return system
    return system + weigh_text(msgspec.json.encode(tools, enc_hook=str).decode(), weights)


def _replies(turns: tuple[Turn, ...], model: str) -> dict[int, int]:
    """What the model's provider counted in replies, by the positions of these."""
    counts: dict[int, int] = {}
    end = 0
    for turn in turns:
        end += len(turn.messages)
        if turn.model == model and turn.usage is not None and _is_one_call(turn):
            counts[end - 1] = turn.usage.output
    return counts


def _counted_in(last: Turn, window: WindowRecord, standing: StandingSummary | None) -> int | None:
    """What the last prompt came to without the summary in it; None if that is not known."""
    tokens = window.counted
    if tokens is None and _is_one_call(last) and last.usage is not None:
        tokens = last.usage.prompt
    if not tokens or not last.messages or last.messages[-1].role != "assistant":
        return None
    if window.summary_through is None:
        return tokens
    while standing is not None and standing.through != window.summary_through:
        standing = standing.before
    return None if standing is None or standing.tokens >= tokens else tokens - standing.tokens


def _is_one_call(turn: Turn) -> bool:
    """Whether the turn's usage is that of one call, counted by its provider."""
    counted = turn.usage is not None and not turn.usage.estimated
    return counted and sum(message.role == "assistant" for message in turn.messages) == 1

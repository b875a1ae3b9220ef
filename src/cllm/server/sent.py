"""What a past turn sent, put together again from what is kept of it. Pure.

The window's record says which messages went out; what the policy does not keep is said to be not
kept. Where the conversation has been changed since, so that the record and the messages no longer
agree, `exact` says so.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import msgspec

from cllm.assembly.tokens import estimate_tokens, weights_for
from cllm.assembly.window import summary_turn
from cllm.core.conversation import Conversation, StandingSummary, Turn, WindowRecord
from cllm.core.message import Message
from cllm.server.views import NOT_KEPT, message_id

Kind = Literal["system", "context", "summary", "history", "request"]


class SentView(msgspec.Struct, frozen=True, kw_only=True):
    """One message of a prompt, in its place; `tokens` is an estimate."""

    kind: Kind
    role: str
    content: Any
    tokens: int | None = None
    message_id: str | None = None
    sequence_number: int | None = None


class LeftOutView(msgspec.Struct, frozen=True, kw_only=True):
    """Messages that were there and were not sent, and why."""

    first: int
    last: int
    reason: Literal["window", "summary", "failed"]


class PromptView(msgspec.Struct, frozen=True, kw_only=True):
    """What was sent, in order, and what was left out.

    `counted_tokens` is what the provider counted in the turn's last prompt, if it said so.
    """

    turn_id: str
    model: str | None
    provider: str | None
    system_policy: str | None
    exact: bool
    sent: tuple[SentView, ...]
    left_out: tuple[LeftOutView, ...]
    estimated_tokens: int
    counted_tokens: int | None = None


class _Numbered(msgspec.Struct, frozen=True):
    number: int
    ordinal: int
    turn: Turn
    message: Message


def view_prompt(conversation: Conversation, turn: Turn) -> PromptView:
    """The prompt of the turn's first round: later ones add what the turn says itself."""
    window = turn.window or WindowRecord(first_sequence=1, sent_messages=0)
    before = list(_before(conversation, turn))
    pinned = _pinned_turns(conversation, before)
    chosen = [
        said
        for said in before
        if said.turn.is_history and (said.number >= window.first_sequence or said.turn.id in pinned)
    ]
    request = turn.asked
    provider = turn.provider or ""
    sent = (
        *_system(conversation, provider),
        *_summary(conversation, window, provider),
        *(_history(said, provider) for said in chosen),
        *_context(window),
        *(_said(turn, place, message, provider) for place, message in enumerate(request)),
    )
    record = conversation.system_record
    return PromptView(
        turn_id=turn.id,
        model=turn.model,
        provider=turn.provider,
        system_policy=None if record is None else record.policy,
        exact=turn.window is not None and len(chosen) + len(request) == window.sent_messages,
        sent=sent,
        left_out=tuple(_left_out(before, chosen, window)),
        estimated_tokens=sum(one.tokens or 0 for one in sent),
        counted_tokens=window.counted,
    )


def _before(conversation: Conversation, turn: Turn) -> Iterator[_Numbered]:
    """What stood before the turn on the default path."""
    number = conversation.first_sequence
    for earlier in conversation.turns:
        if earlier.place == turn.place:
            return
        for ordinal, message in enumerate(earlier.messages):
            yield _Numbered(number, ordinal, earlier, message)
            number += 1


def _pinned_turns(conversation: Conversation, before: Sequence[_Numbered]) -> set[str]:
    pins = set(conversation.pins)
    return {said.turn.id for said in before if said.number in pins}


def _system(conversation: Conversation, provider: str) -> Iterator[SentView]:
    record = conversation.system_record
    kept = conversation.kept_prompt
    if record is not None and record.policy == "dynamic":
        yield SentView(kind="system", role="system", content=NOT_KEPT)
    elif kept is not None:
        yield SentView(
            kind="system", role="system", content=kept.text, tokens=_tokens(kept, provider)
        )


def _summary(conversation: Conversation, window: WindowRecord, provider: str) -> Iterator[SentView]:
    if window.summary_through is None:
        return
    standing = _summary_through(conversation.summary, window.summary_through)
    if standing is None:
        yield SentView(kind="summary", role="user", content=NOT_KEPT)
        return
    for message in summary_turn(standing.text):
        yield SentView(
            kind="summary",
            role=message.role,
            content=message.text,
            tokens=_tokens(message, provider),
        )


def _summary_through(standing: StandingSummary | None, through: int) -> StandingSummary | None:
    while standing is not None and standing.through != through:
        standing = standing.before
    return standing


def _context(window: WindowRecord) -> Iterator[SentView]:
    if window.context:
        yield SentView(kind="context", role="user", content=NOT_KEPT, tokens=window.context)


def _history(said: _Numbered, provider: str) -> SentView:
    return SentView(
        kind="history",
        role=said.message.role,
        content=said.message.json().get("content"),
        tokens=_tokens(said.message, provider),
        message_id=message_id(said.turn, said.ordinal),
        sequence_number=said.number,
    )


def _said(turn: Turn, ordinal: int, message: Message, provider: str) -> SentView:
    return SentView(
        kind="request",
        role=message.role,
        content=message.json().get("content"),
        tokens=_tokens(message, provider),
        message_id=message_id(turn, ordinal),
    )


def _tokens(message: Message, provider: str) -> int:
    return estimate_tokens(message, weights_for(provider))


def _left_out(
    before: Sequence[_Numbered], chosen: Sequence[_Numbered], window: WindowRecord
) -> Iterator[LeftOutView]:
    """Runs of messages that did not go out for the same reason."""
    sent = {said.number for said in chosen}
    run: LeftOutView | None = None
    for said in before:
        if said.number in sent:
            continue
        reason = _reason(said, window)
        if run is not None and run.reason == reason and run.last == said.number - 1:
            run = msgspec.structs.replace(run, last=said.number)
            continue
        if run is not None:
            yield run
        run = LeftOutView(first=said.number, last=said.number, reason=reason)
    if run is not None:
        yield run


def _reason(said: _Numbered, window: WindowRecord) -> Literal["window", "summary", "failed"]:
    if not said.turn.is_history:
        return "failed"
    covered = window.summary_through is not None and said.number <= window.summary_through
    return "summary" if covered else "window"

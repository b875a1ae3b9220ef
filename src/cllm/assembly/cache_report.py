"""What the caches of providers saved and cost, from the usage of turns.

Missed tokens were in the prompt before, of the same model at the same provider and within the
lifetime of its cache, and were not read from it. Not counted as missed: what came after the context
of one turn, prompts below the minimum of the provider, and fewer than `GRAIN` tokens in a call.
"""

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime

import msgspec

from cllm.assembly.marks import minimum_for
from cllm.assembly.tokens import estimate_tokens, weights_for
from cllm.assembly.window import PROVIDERS, prices_for
from cllm.core.conversation import Conversation, StandingSummary, Turn
from cllm.core.reply import Usage

GRAIN = 128

KeptPrice = Callable[[str, str, Usage, datetime], float | None]
"""Returns the dollars for a usage, by provider, model and time; None if unknown."""


class Amount(msgspec.Struct, frozen=True, kw_only=True):
    """Dollars, and how many replies have a known and an unknown price."""

    dollars: float = 0.0
    known: int = 0
    unknown: int = 0

    def plus(self, dollars: float | None) -> "Amount":
        return Amount(
            dollars=self.dollars + (dollars or 0.0),
            known=self.known + (dollars is not None),
            unknown=self.unknown + (dollars is None),
        )


class CacheReport(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of some conversations; `usage` and the amounts include summaries.

    `counted` are the prompt tokens that providers counted. `trimmed` is the part of `missed` after
    a cut of the window, `expired` what the cache had no longer. `saved` is relative to no cache,
    `lost` what the missed tokens cost more than reading them.
    """

    conversations: int = 0
    turns: int = 0
    answers: int = 0
    summaries: int = 0
    usage: Usage = Usage()
    counted: int = 0
    missed: int = 0
    trimmed: int = 0
    expired: int = 0
    cost: Amount = Amount()
    saved: Amount = Amount()
    lost: Amount = Amount()

    @property
    def hit_ratio(self) -> float | None:
        return self.usage.cache_read / self.counted if self.counted else None


class _Missed(msgspec.Struct, frozen=True, kw_only=True):
    tokens: int = 0
    trimmed: bool = False
    expired: int = 0


NOTHING_MISSED = _Missed()


def cache_report(conversations: Iterable[Conversation], price: KeptPrice) -> CacheReport:
    """Return the report; a turn that a branch shares is counted once."""
    report = CacheReport()
    seen: set[str] = set()
    for conversation in conversations:
        report = with_conversation(report, conversation, price, seen=seen)
    return report


def with_conversation(
    report: CacheReport, conversation: Conversation, price: KeptPrice, *, seen: set[str]
) -> CacheReport:
    """Add a conversation; `seen` has the turns and summaries of the report."""
    report = _with(report, conversations=1)
    for turn, missed in _judged(conversation):
        if turn.id not in seen:
            seen.add(turn.id)
            report = _with_turn(report, turn, missed, price)
    for summary, provider in _summaries(conversation):
        name = f"summary {summary.through} {summary.text}"
        if name not in seen:
            seen.add(name)
            report = _with_summary(report, summary, provider, price)
    return report


def _with(report: CacheReport, **more: int) -> CacheReport:
    sums = {name: getattr(report, name) + number for name, number in more.items()}
    return msgspec.structs.replace(report, **sums)


def _with_turn(report: CacheReport, turn: Turn, missed: _Missed, price: KeptPrice) -> CacheReport:
    report = _with(report, turns=1)
    if turn.usage is None:
        return report
    at = turn.ended_at or turn.started_at

    def priced(usage: Usage) -> float | None:
        if turn.provider is None or turn.model is None:
            return None
        return price(turn.provider, turn.model, usage, at)

    report = _with_usage(_with(report, answers=1), turn.usage, turn.cost, priced)
    report = _with(
        report,
        missed=missed.tokens,
        trimmed=missed.tokens if missed.trimmed else 0,
        expired=missed.expired,
    )
    if not missed.tokens:
        return report
    return msgspec.structs.replace(
        report, lost=report.lost.plus(_lost(missed.tokens, turn.usage, priced))
    )


def _with_summary(
    report: CacheReport, summary: StandingSummary, provider: str | None, price: KeptPrice
) -> CacheReport:
    report = _with(report, summaries=1)
    if summary.usage is None:
        return report

    def priced(usage: Usage) -> float | None:
        if provider is None or summary.model is None or summary.made_at is None:
            return None
        return price(provider, summary.model, usage, summary.made_at)

    return _with_usage(report, summary.usage, summary.cost, priced)


def _with_usage(
    report: CacheReport,
    usage: Usage,
    cost: float | None,
    priced: Callable[[Usage], float | None],
) -> CacheReport:
    return msgspec.structs.replace(
        report,
        usage=report.usage + usage,
        counted=report.counted + (0 if usage.estimated else usage.prompt),
        cost=report.cost.plus(cost),
        saved=report.saved.plus(_saved(usage, priced)) if _is_cached(usage) else report.saved,
    )


def _saved(usage: Usage, priced: Callable[[Usage], float | None]) -> float | None:
    return _difference(
        priced(Usage(input=usage.prompt)),
        priced(
            Usage(
                input=usage.input,
                cache_read=usage.cache_read,
                cache_write=usage.cache_write,
                cache_write_hour=usage.cache_write_hour,
            )
        ),
    )


def _lost(missed: int, usage: Usage, priced: Callable[[Usage], float | None]) -> float | None:
    """Return how much cheaper reading the missed tokens would have been."""
    written = min(missed, usage.cache_write)
    hour = min(written, usage.cache_write_hour)
    paid = Usage(input=missed - written, cache_write=written, cache_write_hour=hour)
    return _difference(priced(paid), priced(Usage(cache_read=missed)))


def _difference(larger: float | None, smaller: float | None) -> float | None:
    return None if larger is None or smaller is None else larger - smaller


def _summaries(conversation: Conversation) -> Iterator[tuple[StandingSummary, str | None]]:
    providers = {turn.model: turn.provider for turn in _all_turns(conversation)}
    found = conversation.summary
    while found is not None:
        yield found, providers.get(found.model)
        found = found.before


def _all_turns(conversation: Conversation) -> list[Turn]:
    turns = (*conversation.turns, *conversation.variants)
    return sorted(turns, key=lambda turn: turn.started_at)


def _judged(conversation: Conversation) -> Iterator[tuple[Turn, _Missed]]:
    turns = _all_turns(conversation)
    caching = {turn.provider for turn in turns if turn.usage is not None and _is_cached(turn.usage)}
    before: Turn | None = None
    for turn in turns:
        if turn.usage is None or turn.usage.estimated:
            yield turn, NOTHING_MISSED
            continue
        known = turn.provider in PROVIDERS or turn.provider in caching
        yield turn, _missed(before, turn, turn.usage) if known else NOTHING_MISSED
        before = turn


def _is_cached(usage: Usage) -> bool:
    return usage.cache_read > 0 or usage.cache_write > 0


def _missed(before: Turn | None, turn: Turn, usage: Usage) -> _Missed:
    again = _sent_again(turn, usage)
    shared = 0 if before is None else min(_shared(before, turn), usage.prompt)
    lifetime = prices_for(turn.provider or "", turn.model or "").lifetime
    fresh = before is not None and _idle(before, turn) <= lifetime
    expected = again + (shared if fresh else 0)
    grain = GRAIN * _calls(turn)
    missed = expected - usage.cache_read
    expired = 0 if fresh else min(shared, again + shared - usage.cache_read)
    return _Missed(
        tokens=missed if missed >= grain and lifetime else 0,
        trimmed=before is not None and _begins_elsewhere(before, turn),
        expired=expired if expired >= grain and lifetime else 0,
    )


def _calls(turn: Turn) -> int:
    return max(1, sum(message.role == "assistant" for message in turn.messages))


def _last_prompt(turn: Turn, usage: Usage) -> int | None:
    """Return the tokens of the last prompt of the turn, if counted."""
    counted = None if turn.window is None else turn.window.counted
    return counted if counted is not None or _calls(turn) > 1 else usage.prompt


def _sent_again(turn: Turn, usage: Usage) -> int:
    """Return the tokens that several calls of the turn sent."""
    last = _last_prompt(turn, usage)
    if last is None or _context(turn) or last < _least(turn):
        return 0
    return max(0, usage.prompt - last)


def _shared(before: Turn, turn: Turn) -> int:
    """Return the tokens that both turns sent."""
    same = before.model == turn.model and before.provider == turn.provider
    last = None if before.usage is None else _last_prompt(before, before.usage)
    if last is None or not same:
        return 0
    if context := _context(before):
        weights = weights_for(before.provider or "")
        said = sum(estimate_tokens(message, weights) for message in before.messages[:-1])
        last -= context + said
    return last if last >= _least(turn) else 0


def _context(turn: Turn) -> int:
    return 0 if turn.window is None else turn.window.context


def _begins_elsewhere(before: Turn, turn: Turn) -> bool:
    last, now = before.window, turn.window
    if last is None or now is None:
        return False
    moved = now.first_sequence != last.first_sequence
    return moved or now.summary_through != last.summary_through


def _least(turn: Turn) -> int:
    return 0 if turn.provider == "local" else minimum_for(turn.model or "")


def _idle(before: Turn, turn: Turn) -> float:
    return (turn.started_at - (before.ended_at or before.started_at)).total_seconds()

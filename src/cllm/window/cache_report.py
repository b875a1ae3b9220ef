"""What provider caches saved and cost, from the usage of turns.

Missed tokens were in the previous prompt, within the lifetime of the cache, and were not read from
it. Not counted as missed: text after the context of one turn, prompts below the provider's minimum,
and fewer than `MIN_MISSED_TOKENS` tokens in a call.
"""

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime

import msgspec

from cllm.core.conversation import StoredConversation, Turn
from cllm.core.reply import Usage
from cllm.history.cache_control import min_cacheable_tokens
from cllm.window.strategies import PROVIDERS, prices_for
from cllm.window.tokens import estimate_tokens, weights_for

MIN_MISSED_TOKENS = 128

PriceLookup = Callable[[str, str, Usage, datetime], float | None]
"""Returns the dollars for a usage, by provider, model and time; None if unknown."""
UsagePrice = Callable[[Usage], float | None]


class Amount(msgspec.Struct, frozen=True, kw_only=True):
    """Dollars, and how many replies have a known and an unknown price."""

    dollars: float = 0.0
    known: int = 0
    unknown: int = 0

    def __add__(self, other: "Amount") -> "Amount":
        return Amount(
            dollars=self.dollars + other.dollars,
            known=self.known + other.known,
            unknown=self.unknown + other.unknown,
        )


def to_amount(dollars: float | None) -> Amount:
    """Return the amount of one reply; None is an unknown price."""
    return Amount(unknown=1) if dollars is None else Amount(dollars=dollars, known=1)


class CacheReport(msgspec.Struct, frozen=True, kw_only=True):
    """`trimmed` is the part of `missed` after trimming; `saved` is relative to no cache."""

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

    def __add__(self, other: "CacheReport") -> "CacheReport":
        names = self.__struct_fields__
        return CacheReport(**{name: getattr(self, name) + getattr(other, name) for name in names})

    @property
    def hit_ratio(self) -> float | None:
        return self.usage.cache_read / self.counted if self.counted else None


class _CacheMiss(msgspec.Struct, frozen=True, kw_only=True):
    tokens: int = 0
    trimmed: bool = False
    expired: int = 0


NO_MISS = _CacheMiss()


def build_cache_report(
    conversations: Iterable[StoredConversation], price: PriceLookup
) -> CacheReport:
    """Return the report; a turn that a branch shares is counted once."""
    report = CacheReport()
    seen: set[str] = set()
    for conversation in conversations:
        report = add_conversation(report, conversation, price, seen=seen)
    return report


def add_conversation(
    report: CacheReport, conversation: StoredConversation, price: PriceLookup, *, seen: set[str]
) -> CacheReport:
    """Add a conversation; `seen` has the turns and summaries of the report."""
    report += CacheReport(conversations=1)
    for turn, miss in _find_misses(conversation):
        if turn.id not in seen:
            seen.add(turn.id)
            report += _turn_report(turn, miss, price)
    providers = {turn.model: turn.provider for turn in _all_turns(conversation)}
    summary = conversation.summary
    while summary is not None:
        name = f"summary {summary.through} {summary.text}"
        if name not in seen:
            seen.add(name)
            usage_price = _usage_price(
                price, providers.get(summary.model), summary.model, summary.made_at
            )
            report += CacheReport(summaries=1)
            report += _usage_report(summary.usage, summary.cost, usage_price)
        summary = summary.before
    return report


def _usage_price(
    price: PriceLookup, provider: str | None, model: str | None, at: datetime | None
) -> UsagePrice:
    def usage_price(usage: Usage) -> float | None:
        if provider is None or model is None or at is None:
            return None
        return price(provider, model, usage, at)

    return usage_price


def _turn_report(turn: Turn, miss: _CacheMiss, price: PriceLookup) -> CacheReport:
    if turn.usage is None:
        return CacheReport(turns=1)
    usage_price = _usage_price(price, turn.provider, turn.model, turn.ended_at or turn.started_at)
    has_lost = miss.tokens > 0
    return _usage_report(turn.usage, turn.cost, usage_price) + CacheReport(
        turns=1,
        answers=1,
        missed=miss.tokens,
        trimmed=miss.tokens if miss.trimmed else 0,
        expired=miss.expired,
        lost=to_amount(_lost_dollars(miss.tokens, turn.usage, usage_price))
        if has_lost
        else Amount(),
    )


def _usage_report(usage: Usage | None, cost: float | None, usage_price: UsagePrice) -> CacheReport:
    if usage is None:
        return CacheReport()
    return CacheReport(
        usage=usage,
        counted=0 if usage.estimated else usage.prompt,
        cost=to_amount(cost),
        saved=to_amount(count_saved_dollars(usage, usage_price)) if _is_cached(usage) else Amount(),
    )


def count_saved_dollars(usage: Usage, usage_price: UsagePrice) -> float | None:
    """Return how much less the prompt cost than without a cache; None if a price is unknown."""
    return _difference(
        usage_price(Usage(input=usage.prompt)),
        usage_price(
            Usage(
                input=usage.input,
                cache_read=usage.cache_read,
                cache_write=usage.cache_write,
                cache_write_hour=usage.cache_write_hour,
            )
        ),
    )


def _lost_dollars(missed: int, usage: Usage, usage_price: UsagePrice) -> float | None:
    """Return how much cheaper reading the missed tokens would have been."""
    written = min(missed, usage.cache_write)
    hour = min(written, usage.cache_write_hour)
    paid = Usage(input=missed - written, cache_write=written, cache_write_hour=hour)
    return _difference(usage_price(paid), usage_price(Usage(cache_read=missed)))


def _difference(larger: float | None, smaller: float | None) -> float | None:
    return None if larger is None or smaller is None else larger - smaller


def _all_turns(conversation: StoredConversation) -> list[Turn]:
    turns = (*conversation.turns, *conversation.variants)
    return sorted(turns, key=lambda turn: turn.started_at)


def _find_misses(conversation: StoredConversation) -> Iterator[tuple[Turn, _CacheMiss]]:
    turns = _all_turns(conversation)
    caching = {turn.provider for turn in turns if turn.usage is not None and _is_cached(turn.usage)}
    before: Turn | None = None
    for turn in turns:
        if turn.usage is None or turn.usage.estimated:
            yield turn, NO_MISS
            continue
        known = turn.provider in PROVIDERS or turn.provider in caching
        yield turn, _find_miss(before, turn, turn.usage) if known else NO_MISS
        before = turn


def _is_cached(usage: Usage) -> bool:
    return usage.cache_read > 0 or usage.cache_write > 0


def _find_miss(before: Turn | None, turn: Turn, usage: Usage) -> _CacheMiss:
    again = _count_repeated_tokens(turn, usage)
    shared = 0 if before is None else min(_count_shared_tokens(before, turn), usage.prompt)
    lifetime = prices_for(turn.provider or "", turn.model or "").lifetime
    fresh = before is not None and _idle_seconds(before, turn) <= lifetime
    expected = again + (shared if fresh else 0)
    grain = MIN_MISSED_TOKENS * _count_calls(turn)
    missed = expected - usage.cache_read
    expired = 0 if fresh else min(shared, again + shared - usage.cache_read)
    return _CacheMiss(
        tokens=missed if missed >= grain and lifetime else 0,
        trimmed=before is not None and _has_moved_start(before, turn),
        expired=expired if expired >= grain and lifetime else 0,
    )


def _count_calls(turn: Turn) -> int:
    return max(1, sum(message.role == "assistant" for message in turn.messages))


def _last_prompt_tokens(turn: Turn, usage: Usage) -> int | None:
    """Return the tokens of the last prompt of the turn, if counted."""
    counted = None if turn.window is None else turn.window.counted
    return counted if counted is not None or _count_calls(turn) > 1 else usage.prompt


def _count_repeated_tokens(turn: Turn, usage: Usage) -> int:
    """Return the tokens that several calls of the turn sent."""
    last = _last_prompt_tokens(turn, usage)
    if last is None or _context_tokens(turn) or last < _min_tokens(turn):
        return 0
    return max(0, usage.prompt - last)


def _count_shared_tokens(before: Turn, turn: Turn) -> int:
    """Return the tokens that both turns sent."""
    same = before.model == turn.model and before.provider == turn.provider
    last = None if before.usage is None else _last_prompt_tokens(before, before.usage)
    if last is None or not same:
        return 0
    if context := _context_tokens(before):
        weights = weights_for(before.provider or "")
        own = sum(estimate_tokens(message, weights) for message in before.messages[:-1])
        last -= context + own
    return last if last >= _min_tokens(turn) else 0


def _context_tokens(turn: Turn) -> int:
    return 0 if turn.window is None else turn.window.context


def _has_moved_start(before: Turn, turn: Turn) -> bool:
    last, now = before.window, turn.window
    if last is None or now is None:
        return False
    moved = now.first_sequence != last.first_sequence
    return moved or now.summary_through != last.summary_through


def _min_tokens(turn: Turn) -> int:
    return 0 if turn.provider == "local" else min_cacheable_tokens(turn.model or "")


def _idle_seconds(before: Turn, turn: Turn) -> float:
    return (turn.started_at - (before.ended_at or before.started_at)).total_seconds()

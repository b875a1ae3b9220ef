"""What is known of a model's prices, and what a call costs by them.

Values and exact arithmetic. Knows no provider and no table. What has no price is unknown, which
is None and never zero.
"""

from datetime import UTC, date, datetime, time
from decimal import Context, Decimal

import msgspec

from cllm.core.reply import Usage

_EXACT = Context(prec=100)
_PER_MILLION = -6


class Tier(msgspec.Struct, frozen=True, kw_only=True):
    """The price of every token of a call whose prompt has more tokens than `above`."""

    above: int
    price: Decimal


class Rate(msgspec.Struct, frozen=True, kw_only=True):
    """Dollars for a million tokens of one kind; `tiers` go upwards."""

    base: Decimal
    tiers: tuple[Tier, ...] = ()

    def price(self, prompt_tokens: int) -> Decimal:
        for tier in reversed(self.tiers):
            if prompt_tokens > tier.above:
                return tier.price
        return self.base


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """A rate for each kind of token; None where nobody says.

    Reasoning costs what output does, unless it has a rate of its own. `per_call` is what every
    call costs beside its tokens.
    """

    input: Rate | None = None
    output: Rate | None = None
    cache_read: Rate | None = None
    cache_write: Rate | None = None
    cache_write_hour: Rate | None = None
    reasoning: Rate | None = None
    per_call: Decimal = Decimal(0)

    def cost(self, usage: Usage) -> Decimal | None:
        """Dollars, exactly; None if tokens were used that have no rate."""
        prompt_tokens = usage.input + usage.cache_read + usage.cache_write
        total = _EXACT.scaleb(self.per_call, -_PER_MILLION)
        hour = usage.cache_write_hour
        for tokens, rate in (
            (usage.input, self.input),
            (usage.cache_read, self.cache_read),
            (usage.cache_write - hour, self.cache_write),
            (hour, self.cache_write_hour),
            (usage.output, self.output),
            (usage.reasoning, self.reasoning or self.output),
        ):
            if not tokens:
                continue
            if rate is None or tokens < 0:
                return None
            total = _EXACT.fma(rate.price(prompt_tokens), tokens, total)
        return _EXACT.scaleb(total, _PER_MILLION)


class DatedRates(msgspec.Struct, frozen=True, kw_only=True):
    """Rates and when they apply, in UTC; `rates` is None if they are unknown.

    `since` is the first day. `daily` is a start and an end time; it spans midnight if the end is
    earlier.
    """

    rates: Rates | None
    since: date | None = None
    daily: tuple[time, time] | None = None

    def applies(self, at: datetime) -> bool:
        if self.since is not None and at.date() < self.since:
            return False
        if self.daily is None:
            return True
        start, end = self.daily
        if end < start:
            return at.time() >= start or at.time() < end
        return start <= at.time() < end


class ModelRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All that is known of a model; with no field set, that it is not known.

    Of the rates that hold at a time the last ones are meant, and the first ones if none do.
    """

    dated: tuple[DatedRates, ...] = ()
    context_window: int | None = None

    def rates(self, at: datetime) -> Rates | None:
        """The rates at that time; a time without a zone is in UTC."""
        if not self.dated:
            return None
        if len(self.dated) == 1:
            return self.dated[0].rates
        at = at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
        applying = (dated for dated in reversed(self.dated) if dated.applies(at))
        return next(applying, self.dated[0]).rates

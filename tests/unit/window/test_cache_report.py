"""Cache reports: tokens read, missed and expired, and their prices."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from cllm.core.conversation import StandingSummary, StoredConversation, Turn, WindowRecord
from cllm.core.message import plain_message
from cllm.core.reply import Usage
from cllm.window.cache_report import Amount, CacheReport, build_cache_report

NOON = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
PRICES = {"input": 4.0, "cache_read": 0.4, "cache_write": 5.0, "output": 8.0}
HOUR_PRICE = 8.0


def price(provider: str, model: str, usage: Usage, at: datetime) -> float | None:
    """Return dollars by the table above, for one model only."""
    assert at >= NOON
    if (provider, model) != ("anthropic", "claude-sonnet-4-5"):
        return None
    hour = usage.cache_write_hour
    total: float = sum(getattr(usage, kind) * rate for kind, rate in PRICES.items())
    return (total + hour * (HOUR_PRICE - PRICES["cache_write"])) / 1_000_000


def turn(number: int, usage: Usage | None, **fields: Any) -> Turn:
    """Return a turn that starts a minute after the last start and takes ten seconds."""
    started = fields.pop("started_at", NOON + timedelta(minutes=number))
    calls = fields.pop("calls", 1)
    first = fields.pop("first", 1)
    reply_text = [plain_message("user", f"{number}?")]
    reply_text += [plain_message("assistant", f"{number}!")] * calls
    counted = fields.pop("counted", None)
    given: dict[str, Any] = {
        "place": str(number),
        "model": "claude-sonnet-4-5",
        "provider": "anthropic",
        "cost": None if usage is None else price("anthropic", "claude-sonnet-4-5", usage, NOON),
        "window": WindowRecord(
            first_sequence=first,
            sent_messages=1,
            counted=counted,
            context=fields.pop("context", 0),
        ),
    }
    return Turn(
        id=str(number),
        state="complete",
        messages=tuple(reply_text),
        started_at=started,
        ended_at=started + timedelta(seconds=10),
        usage=usage,
        **given | fields,
    )


def conversation(*turns: Turn, **fields: Any) -> StoredConversation:
    return StoredConversation(id="demo", created_at=NOON, updated_at=NOON, turns=turns, **fields)


def report(*turns: Turn, **fields: Any) -> CacheReport:
    return build_cache_report([conversation(*turns, **fields)], price)


WRITTEN = Usage(cache_write=10_000, output=100)
READ = Usage(cache_read=10_000, cache_write=500, output=100)


def test_cache_reads_and_writes_are_added_up():
    found = report(turn(1, WRITTEN), turn(2, READ))

    assert found.usage == Usage(cache_read=10_000, cache_write=10_500, output=200)
    assert (found.turns, found.answers, found.missed, found.expired) == (2, 2, 0, 0)
    assert found.hit_ratio == pytest.approx(10_000 / 20_500)


def test_savings_are_relative_to_the_price_without_a_cache():
    found = report(turn(1, WRITTEN), turn(2, READ))

    without = 20_500 * 4.0
    paid = 10_000 * 0.4 + 10_500 * 5.0
    assert found.saved.dollars == pytest.approx((without - paid) / 1_000_000)
    assert (found.saved.known, found.saved.unknown) == (2, 0)
    assert found.cost.dollars == pytest.approx((paid + 200 * 8.0) / 1_000_000)


def test_tokens_cached_for_an_hour_have_their_own_price():
    found = report(turn(1, Usage(cache_write=10_000, cache_write_hour=4_000)))

    saved = 10_000 * 4.0 - 6_000 * 5.0 - 4_000 * 8.0
    assert found.saved.dollars == pytest.approx(saved / 1_000_000)


def test_tokens_that_are_written_again_after_a_minute_are_missed():
    found = report(turn(1, WRITTEN), turn(2, Usage(cache_write=10_500)))

    assert (found.missed, found.trimmed) == (10_000, 0)
    assert found.lost.dollars == pytest.approx(10_000 * (5.0 - 0.4) / 1_000_000)
    assert (found.lost.known, found.lost.unknown) == (1, 0)


def test_missed_tokens_that_are_not_written_cost_the_input_price():
    found = report(turn(1, WRITTEN), turn(2, Usage(input=10_500)))

    assert found.lost.dollars == pytest.approx(10_000 * (4.0 - 0.4) / 1_000_000)


def test_tokens_after_the_cache_lifetime_are_expired_and_not_missed():
    late = turn(2, Usage(cache_write=10_500), started_at=NOON + timedelta(minutes=7))

    found = report(turn(1, WRITTEN), late)

    assert (found.missed, found.expired, found.lost) == (0, 10_000, Amount())


def test_a_miss_after_the_window_moved_counts_as_trimmed():
    found = report(turn(1, WRITTEN), turn(2, Usage(cache_write=6_000), first=7))

    assert (found.missed, found.trimmed) == (6_000, 6_000)


@pytest.mark.parametrize(
    "other",
    [{"model": "claude-opus-4-5"}, {"provider": "bedrock"}],
    ids=["another model", "another provider"],
)
def test_tokens_in_the_cache_of_another_model_are_not_missed(other):
    assert report(turn(1, WRITTEN), turn(2, Usage(cache_write=10_500), **other)).missed == 0


def test_below_the_minimum_nothing_is_missed():
    found = report(turn(1, Usage(input=900)), turn(2, Usage(input=1_000)))

    assert found.missed == 0


def test_a_few_tokens_are_not_missed():
    assert report(turn(1, WRITTEN), turn(2, Usage(cache_read=9_900, input=700))).missed == 0


def test_calls_of_a_turn_read_what_earlier_calls_sent():
    rounds = {"calls": 3, "counted": 12_000}
    read = Usage(input=2_000, cache_read=10_000 + 10_500 + 11_000)
    unread = Usage(input=33_500)

    assert report(turn(1, WRITTEN), turn(2, read, **rounds)).missed == 0
    assert report(turn(1, WRITTEN), turn(2, unread, **rounds)).missed == 10_000 + 21_500


def test_a_turn_of_several_uncounted_calls_has_no_misses():
    found = report(turn(1, WRITTEN, calls=2), turn(2, Usage(input=10_500)))

    assert found.missed == 0


def test_messages_after_the_context_of_one_turn_are_not_missed():
    report_with_context = turn(1, WRITTEN, context=400)

    found = report(report_with_context, turn(2, Usage(cache_read=9_500, cache_write=1_000)))

    assert found.missed == 0


def test_a_provider_without_a_cache_has_no_misses():
    unknown = {"provider": "mine"}
    silent = [turn(n, Usage(input=10_000), **unknown) for n in (1, 2)]
    caching = [*silent, turn(3, Usage(cache_read=10_000), **unknown)]

    assert report(*silent).missed == 0
    assert report(*caching).missed == 10_000


def test_estimated_usage_has_no_misses():
    found = report(turn(1, WRITTEN), turn(2, Usage(input=10_500, estimated=True)))

    assert found.missed == 0
    assert found.counted == 10_000


def test_an_unknown_price_is_not_zero():
    other = turn(2, READ, model="claude-unheard-of", cost=None)

    found = report(turn(1, WRITTEN), other)

    assert (found.cost.known, found.cost.unknown) == (1, 1)
    assert (found.saved.known, found.saved.unknown) == (1, 1)


def test_without_cached_tokens_nothing_is_saved():
    found = report(turn(1, Usage(input=50), model="claude-unheard-of", cost=None))

    assert found.saved == Amount()
    assert found.hit_ratio == 0.0
    assert CacheReport().hit_ratio is None


def test_summaries_count_with_their_cost_and_savings():
    older = StandingSummary(
        text="old",
        through=2,
        tokens=10,
        model="claude-sonnet-4-5",
        usage=Usage(cache_read=5_000, output=10),
        cost=0.25,
        made_at=NOON,
    )
    newer = msgspec.structs.replace(older, text="new", through=4, before=older)

    found = report(turn(1, WRITTEN), summary=newer)

    assert (found.summaries, found.answers) == (2, 1)
    assert found.usage.cache_read == 10_000
    assert found.cost.dollars == pytest.approx(0.5 + (10_000 * 5.0 + 100 * 8.0) / 1_000_000)
    read = 2 * 5_000 * (4.0 - 0.4)
    assert found.saved.dollars == pytest.approx((read - 10_000 * 1.0) / 1_000_000)


def test_variants_cost_money_and_read_the_prompt_of_the_first_variant():
    again = turn(2, Usage(cache_read=10_000), place="1")

    found = build_cache_report([conversation(again, variants=(turn(1, WRITTEN),))], price)

    assert (found.turns, found.missed, found.usage.cache_read) == (2, 0, 10_000)


def test_a_turn_that_a_branch_shares_counts_once():
    first = turn(1, WRITTEN)
    branch = conversation(first, turn(2, Usage(cache_write=10_500)))

    found = build_cache_report([conversation(first), branch], price)

    assert (found.conversations, found.turns, found.missed) == (2, 2, 10_000)


def test_a_failed_turn_counts_as_a_turn_and_not_as_an_answer():
    found = report(turn(1, None))

    assert (found.turns, found.answers, found.cost) == (1, 0, Amount())

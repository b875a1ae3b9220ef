from datetime import UTC, datetime, timedelta

from cllm.core.conversation import StoredConversation, Turn
from cllm.core.ports import CallRecord
from cllm.core.reply import Usage
from cllm.stores.usage import list_calls, sum_usage

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)


def call(model: str = "big", *, days: int = 0, cost: float | None = 0.5) -> CallRecord:
    usage = Usage(input=1, output=2)
    return CallRecord(model=model, usage=usage, cost=cost, ended_at=NOON + days * DAY)


def turn(key: str, *, model: str | None = None, usage: Usage | None = None) -> Turn:
    return Turn(
        id=key,
        place=key,
        state="failed",
        messages=(),
        started_at=NOON,
        ended_at=NOON,
        model=model,
        usage=usage,
    )


def test_usage_is_summed_by_day():
    first, second = sum_usage(
        [call(days=1), call(), call(cost=None)], since=None, until=None, by="day"
    )
    assert (first.key, first.calls, first.cost, first.unpriced) == ("2026-03-01", 2, 0.5, 1)
    assert first.usage == Usage(input=2, output=4)
    assert second.key == "2026-03-02"


def test_usage_is_summed_by_model():
    sums = sum_usage([call("b"), call("a"), call("b")], since=None, until=None, by="model")
    assert [(each.key, each.calls) for each in sums] == [("a", 1), ("b", 2)]


def test_a_period_includes_its_start_and_excludes_its_end():
    calls = [call(days=day) for day in range(3)]
    sums = sum_usage(calls, since=NOON + DAY, until=NOON + 2 * DAY, by="day")
    assert [each.key for each in sums] == ["2026-03-02"]


def test_variants_and_failed_turns_count_and_turns_without_usage_do_not():
    usage = Usage(input=3)
    conversation = StoredConversation(
        id="demo",
        created_at=NOON,
        updated_at=NOON,
        model="fallback",
        turns=(turn("t1", usage=usage), turn("t2")),
        variants=(turn("t3", model="big", usage=usage),),
    )
    assert [each.model for each in list_calls(conversation)] == ["fallback", "big"]


def test_a_turn_without_a_model_is_counted_as_unknown():
    conversation = StoredConversation(
        id="demo", created_at=NOON, updated_at=NOON, turns=(turn("t1", usage=Usage(input=1)),)
    )
    assert [each.model for each in list_calls(conversation)] == ["unknown"]

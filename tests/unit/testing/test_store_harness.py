from cllm.stores.memory import MemoryStore
from cllm.testing.store_harness import (
    SYSTEM,
    TickingClock,
    bring_results,
    say,
    say_again,
    start,
    texts,
)


def test_the_clock_advances_at_each_call():
    clock = TickingClock()
    first, second = clock(), clock()
    assert second > first
    clock.advance(60)
    assert (clock() - second).total_seconds() > 60


def test_a_start_can_have_other_fields():
    assert start("t1", "Hi", visible=False).visible is False
    assert start("t1").messages[0].text == "Hello"


async def test_the_helpers_store_turns():
    store = MemoryStore(clock=TickingClock())
    await say(store, "demo", "t1", "one")
    await bring_results(store, "demo", "t2")
    await say_again(store, "demo", "t3", place="t2", text="other")
    loaded = await store.load("demo")
    assert loaded.system == SYSTEM
    assert texts(loaded) == ["one", "one?", "Hello", "other"]
    assert [turn.id for turn in loaded.variants] == ["t2"]

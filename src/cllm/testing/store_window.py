"""The window: tail, pins and summaries."""

import msgspec
import pytest

from cllm.core.conversation import StandingSummary, WindowRecord
from cllm.core.errors import SequenceNotFoundError
from cllm.core.ports import Changes, NewConversation, Store
from cllm.testing.store_harness import StoreSuite, answered, failed, say, start

replace = msgspec.structs.replace


def _summary(through: int, *, before: StandingSummary | None = None) -> StandingSummary:
    return StandingSummary(text=f"Until {through}.", through=through, tokens=5, before=before)


async def _say_with_cut(store: Store, turn_id: str, cut: int) -> None:
    lease = await store.begin_turn("demo", start(turn_id))
    window = WindowRecord(first_sequence=cut, sent_messages=3)
    await store.finish_turn(lease, replace(answered(lease), window=window))


class WindowContract(StoreSuite):
    async def test_the_window_tail_starts_at_the_last_cut(self, store: Store) -> None:
        await self._say_turns(store, 4)
        await _say_with_cut(store, "t5", 5)
        tail = await store.load("demo", tail="window")
        assert [turn.id for turn in tail.turns] == ["t3", "t4", "t5"]
        assert tail.first_sequence == 5
        assert tail.message_count == 10

    async def test_a_cut_within_a_turn_loads_the_whole_turn(self, store: Store) -> None:
        await self._say_turns(store, 3)
        await _say_with_cut(store, "t4", 4)
        assert (await store.load("demo", tail="window")).first_sequence == 3

    async def test_the_window_tail_is_everything_without_a_cut(self, store: Store) -> None:
        await self._say_turns(store, 3)
        assert await store.load("demo", tail="window") == await store.load("demo")

    async def test_a_failed_turn_does_not_move_the_window(self, store: Store) -> None:
        await say(store, "demo", "t1")
        await _say_with_cut(store, "t2", 3)
        lease = await store.begin_turn("demo", start("t3"))
        window = WindowRecord(first_sequence=5, sent_messages=1)
        await store.finish_turn(lease, replace(failed(lease), window=window))
        assert (await store.load("demo", tail="window")).first_sequence == 3

    async def test_a_lease_has_the_messages_of_the_window(self, store: Store) -> None:
        await say(store, "demo", "t1")
        await say(store, "demo", "t2")
        await _say_with_cut(store, "t3", 3)
        lease = await store.begin_turn("demo", start("t4"), tail="window")
        assert lease.conversation.first_sequence <= 3
        assert lease.conversation.message_count == 6
        assert [turn.id for turn in lease.conversation.turns][-2:] == ["t2", "t3"]
        await store.finish_turn(lease, answered(lease))
        assert (await store.load("demo")).message_count == 8

    async def test_pinned_messages_are_in_the_window_tail(self, store: Store, other: Store) -> None:
        await self._say_turns(store, 3)
        await _say_with_cut(store, "t4", 7)
        await store.update("demo", Changes(pins=(4, 3, 4)))
        assert (await other.load("demo", tail="window")).first_sequence == 3
        assert (await other.load("demo", tail=0)).pins == (3, 4)
        await store.update("demo", Changes(pins=()))
        assert (await other.load("demo", tail="window")).first_sequence == 7

    async def test_a_summary_can_be_replaced(self, store: Store, other: Store) -> None:
        await say(store, "demo", "t1")
        first = _summary(1)
        await store.update("demo", Changes(summary=first))
        assert (await other.load("demo")).summary == first
        await store.update("demo", Changes(summary=None))
        assert (await other.load("demo")).summary is None

    async def test_pins_and_summaries_do_not_change_updated_at(self, store: Store) -> None:
        await say(store, "demo", "t1")
        before = await store.load("demo")
        await store.update("demo", Changes(pins=(1,), summary=_summary(1)))
        after = await store.load("demo")
        assert after == replace(before, pins=(1,), summary=_summary(1))

    @pytest.mark.parametrize("sequence", [0, 3])
    async def test_pins_and_summaries_must_refer_to_messages(
        self, store: Store, sequence: int
    ) -> None:
        await say(store, "demo", "t1")
        before = await store.load("demo")
        await self._refuse(
            SequenceNotFoundError,
            store.update("demo", Changes(pins=(1, sequence))),
            store.update("demo", Changes(summary=_summary(sequence))),
        )
        assert await store.load("demo") == before

    async def test_deleted_messages_lose_their_pins_and_summaries(self, store: Store) -> None:
        await self._say_turns(store, 3)
        older = _summary(2)
        await store.update("demo", Changes(pins=(1, 5), summary=_summary(4, before=older)))
        await store.delete_from("demo", 4)
        loaded = await store.load("demo")
        assert (loaded.pins, loaded.summary) == ((1,), older)

    async def test_a_branch_copies_the_pins_and_summary_of_its_messages(self, store: Store) -> None:
        await self._say_turns(store, 3)
        older = _summary(2)
        await store.update("demo", Changes(pins=(1, 6), summary=_summary(4, before=older)))
        branch = await store.branch("demo", NewConversation(id="copy"), at=2)
        assert (branch.pins, branch.summary) == ((1,), older)
        assert await store.load("copy") == branch

"""Turns: start one with a lease, one at a time, then finish or drop it."""

import asyncio

import msgspec
import pytest

from cllm.core.errors import (
    ConversationBusyError,
    ConversationNotFoundError,
    StaleLeaseError,
    UsageError,
)
from cllm.core.message import Message
from cllm.core.ports import Lease, NewConversation, Store, Tail
from cllm.testing.store_harness import (
    OPENING,
    SYSTEM,
    StoreHarness,
    StoreSuite,
    answered,
    failed,
    say,
    start,
    texts,
)

replace = msgspec.structs.replace


class TurnContract(StoreSuite):
    async def test_another_process_sees_a_finished_turn(self, store: Store, other: Store) -> None:
        lease = await store.begin_turn("demo", start("t1"), create=NewConversation(id="demo"))
        turn = answered(lease)
        await store.finish_turn(lease, turn, opening=OPENING)
        loaded = await other.load("demo")
        assert loaded.turns == (turn,)
        assert loaded.system == SYSTEM
        assert loaded.system_record == OPENING.system_record
        assert loaded.total_tokens == 7

    async def test_messages_are_stored_byte_for_byte(self, store: Store, other: Store) -> None:
        question = Message(
            role="user", raw='{"role":"user","content":"\\u00e9é","n":1.50e3}'.encode()
        )
        reply = Message(
            role="assistant",
            dialect="anthropic",
            raw=b'{"role":"assistant","content":[{"type":"thinking","thinking":"x",'
            b'"signature":"s"},{"type":"text","text":"ok"}]}',
        )
        reasoned = Message(
            role="assistant",
            raw=b'{"role":"assistant","content":"ok","reasoning":"\\u00e9","reasoning_content":"",'
            b'"reasoning_details":[{"type":"reasoning.text","text":"x","index":0,"n":1.50}]}',
        )
        lease = await store.begin_turn(
            "demo", start("t1", messages=(question,)), create=NewConversation(id="demo")
        )
        turn = replace(lease.turn, state="complete", messages=(question, reply, reasoned))
        await store.finish_turn(lease, turn)
        assert (await other.load("demo")).turns[0].messages == (question, reply, reasoned)

    async def test_nul_in_messages_is_stored_as_its_escape(
        self, store: Store, other: Store
    ) -> None:
        question = Message(role="user", raw=b'{"role":"user","content":"tar \\u0000 gzip"}')
        result = Message(
            role="tool", raw=b'{"role":"tool","tool_call_id":"c1","content":"\\u0000ustar"}'
        )
        system = Message(role="system", raw=b'{"role":"system","content":"a\\u0000b"}')
        lease = await store.begin_turn(
            "demo", start("t1", messages=(question, result)), create=NewConversation(id="demo")
        )
        turn = answered(lease, "yes\0no")
        await store.finish_turn(lease, turn, opening=replace(OPENING, system=system))
        loaded = await other.load("demo")
        assert loaded.turns == (turn,)
        assert loaded.system == system
        assert loaded.title == "tar gzip"
        hits = await other.search("gzip")
        assert [hit.content for hit in hits.items] == ["tar \0 gzip"]
        await other.add(replace(loaded, id="copy", name=None))
        assert (await store.load("copy")).messages == loaded.messages
        await store.branch("demo", NewConversation(id="branch"))
        assert (await other.load("branch")).messages == loaded.messages

    async def test_turns_are_stored_in_order(self, store: Store) -> None:
        await say(store, "demo", "t1", "one")
        await say(store, "demo", "t2", "two")
        loaded = await store.load("demo")
        assert texts(loaded) == ["one", "one?", "two", "two?"]
        assert [number for number, _, _ in loaded.numbered_messages()] == [1, 2, 3, 4]

    async def test_a_lease_has_the_conversation_without_its_turn(self, store: Store) -> None:
        await say(store, "demo", "t1", "one")
        lease = await store.begin_turn("demo", start("t2", "two"))
        assert texts(lease.conversation) == ["one", "one?"]
        assert lease.turn.state == "running"
        assert not lease.created
        await store.drop_turn(lease)

    async def test_a_visible_turn_is_loaded_while_it_runs(self, store: Store, other: Store) -> None:
        lease = await store.begin_turn("demo", start("t1"), create=NewConversation(id="demo"))
        assert [turn.state for turn in (await other.load("demo")).turns] == ["running"]
        await store.drop_turn(lease)

    async def test_a_hidden_turn_is_not_loaded_until_it_finishes(
        self, store: Store, other: Store
    ) -> None:
        lease = await store.begin_turn(
            "demo", start("t1", visible=False), create=NewConversation(id="demo")
        )
        await self._refuse(ConversationNotFoundError, other.load("demo"))
        assert (await other.list_conversations()).items == ()
        await store.finish_turn(lease, answered(lease))
        assert texts(await other.load("demo")) == ["Hello", "Hi"]

    @pytest.mark.parametrize("visible", [True, False])
    async def test_dropping_the_first_turn_deletes_the_conversation(
        self, store: Store, other: Store, *, visible: bool
    ) -> None:
        lease = await store.begin_turn(
            "demo", start("t1", visible=visible), create=NewConversation(id="demo")
        )
        await store.drop_turn(lease)
        await self._refuse(ConversationNotFoundError, other.load("demo"))

    @pytest.mark.parametrize("visible", [True, False])
    async def test_dropping_a_turn_keeps_the_others(self, store: Store, *, visible: bool) -> None:
        await say(store, "demo", "t1")
        before = await store.load("demo")
        await store.drop_turn(await store.begin_turn("demo", start("t2", visible=visible)))
        assert await store.load("demo") == before

    @pytest.mark.parametrize("visible", [True, False])
    async def test_one_turn_runs_at_a_time(
        self, store: Store, other: Store, *, visible: bool
    ) -> None:
        new = NewConversation(id="demo")
        lease = await store.begin_turn("demo", start("t1", visible=visible), create=new)
        for another in (store, other):
            with pytest.raises(ConversationBusyError):
                await another.begin_turn("demo", start("t2"), create=new)
        await store.finish_turn(lease, answered(lease))
        await say(other, "demo", "t2")
        assert len((await store.load("demo")).turns) == 2

    async def test_a_second_turn_waits_for_the_first(self, store: Store, other: Store) -> None:
        new = NewConversation(id="demo")
        first = await store.begin_turn("demo", start("t1", visible=False), create=new)
        waiting = asyncio.create_task(other.begin_turn("demo", start("t2"), create=new, wait=None))
        await asyncio.sleep(0.02)
        assert not waiting.done()
        await store.finish_turn(first, answered(first))
        second = await waiting
        assert [turn.id for turn in second.conversation.turns] == ["t1"]
        assert not second.created
        await other.drop_turn(second)

    @pytest.mark.parametrize("tail", [None, 1, "window"])
    async def test_parameters_are_stored_with_a_running_turn(
        self, store: Store, other: Store, tail: Tail
    ) -> None:
        parameters = msgspec.Raw('{"user":"é","tools":[{"name":"a"}]}'.encode())
        create: NewConversation | None = NewConversation(id="demo")
        for turn_id in ("t1", "t2"):
            started = replace(start(turn_id), parameters=parameters)
            lease = await store.begin_turn("demo", started, create=create, tail=tail)
            create = None
            turn = replace(answered(lease), window=lease.turn.window)
            await self._check_parameters(other, parameters)
            await store.finish_turn(lease, turn)
            await self._check_parameters(other, parameters)

    async def _check_parameters(self, store: Store, parameters: msgspec.Raw) -> None:
        window = (await store.load("demo")).turns[-1].window
        assert window is not None
        assert isinstance(window.parameters, msgspec.Raw)
        # White space can differ.
        assert msgspec.json.decode(window.parameters) == msgspec.json.decode(parameters)

    async def test_waiting_for_a_turn_times_out(self, store: Store, other: Store) -> None:
        lease = await store.begin_turn("demo", start("t1"), create=NewConversation(id="demo"))
        await self._refuse(ConversationBusyError, other.begin_turn("demo", start("t2"), wait=0.02))
        await store.drop_turn(lease)

    async def test_a_cancelled_wait_leaves_no_turn(self, store: Store, other: Store) -> None:
        lease = await store.begin_turn("demo", start("t1"), create=NewConversation(id="demo"))
        waiting = asyncio.create_task(other.begin_turn("demo", start("t2"), wait=None))
        await asyncio.sleep(0.01)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await store.finish_turn(lease, answered(lease))
        await say(other, "demo", "t3")
        assert [turn.id for turn in (await store.load("demo")).turns] == ["t1", "t3"]

    async def test_turns_in_different_conversations_run_in_parallel(self, store: Store) -> None:
        one = await store.begin_turn("one", start("t1"), create=NewConversation(id="one"))
        await self._finish(store, start("t1"), ref="two")
        await store.finish_turn(one, answered(one))
        assert len((await store.list_conversations()).items) == 2

    async def test_a_lease_ends_one_turn_only(self, store: Store) -> None:
        lease = await store.begin_turn("demo", start("t1"), create=NewConversation(id="demo"))
        await store.finish_turn(lease, answered(lease))
        await self._check_stale(store, lease)

    async def test_a_lease_is_for_its_own_turn(self, store: Store) -> None:
        lease = await store.begin_turn("demo", start("t1"), create=NewConversation(id="demo"))
        with pytest.raises(UsageError):
            await store.finish_turn(lease, replace(answered(lease), id="t2", place="t2"))
        await store.finish_turn(await store.renew_lease(lease), answered(lease))
        assert [turn.id for turn in (await store.load("demo")).turns] == ["t1"]

    async def test_fencing_numbers_grow(self, store: Store, other: Store) -> None:
        first = await store.begin_turn("demo", start("t1"), create=NewConversation(id="demo"))
        await store.finish_turn(first, answered(first))
        second = await other.begin_turn("demo", start("t2"))
        assert second.fence > first.fence
        await other.drop_turn(second)

    @pytest.fixture
    async def lost_lease(self, harness: StoreHarness, store: Store) -> Lease:
        """The lease of a turn t1 whose process died."""
        lease = await store.begin_turn("demo", start("t1"), create=NewConversation(id="demo"))
        await harness.lose(store)
        return lease

    async def _check_stale(self, store: Store, lost_lease: Lease) -> None:
        finished = store.finish_turn(lost_lease, answered(lost_lease))
        await self._refuse(
            StaleLeaseError, finished, store.drop_turn(lost_lease), store.renew_lease(lost_lease)
        )

    async def test_a_lost_lease_writes_nothing(
        self, store: Store, other: Store, lost_lease: Lease
    ) -> None:
        await say(other, "demo", "t2")
        before = await other.load("demo")
        await self._check_stale(store, lost_lease)
        assert await other.load("demo") == before

    async def test_a_lost_lease_does_not_end_the_next_turn(
        self, store: Store, other: Store, lost_lease: Lease
    ) -> None:
        lease = await other.begin_turn("demo", start("t2"))
        await self._check_stale(store, lost_lease)
        await other.finish_turn(lease, answered(lease))
        states = [(turn.id, turn.state) for turn in (await other.load("demo")).turns]
        assert states == [("t1", "failed"), ("t2", "complete")]

    @pytest.mark.usefixtures("lost_lease")
    async def test_a_turn_whose_process_died_is_failed(self, other: Store) -> None:
        await say(other, "demo", "t2")
        first, second = (await other.load("demo")).turns
        assert (first.id, first.state) == ("t1", "failed")
        assert first.failure is not None
        assert first.failure.code == "interrupted"
        assert second.state == "complete"

    @pytest.mark.usefixtures("lost_lease")
    async def test_a_read_shows_that_the_process_of_a_turn_died(self, other: Store) -> None:
        (turn,) = (await other.load("demo")).turns
        assert (turn.state, turn.messages[0].text) == ("failed", "Hello")
        assert turn.failure is not None
        assert turn.failure.code == "interrupted"
        assert turn.ended_at is not None

    async def test_a_read_does_not_end_the_turn_of_a_living_process(
        self, store: Store, other: Store
    ) -> None:
        lease = await store.begin_turn("demo", start("t1"), create=NewConversation(id="demo"))
        assert [turn.state for turn in (await other.load("demo")).turns] == ["running"]
        await other.list_conversations()
        await store.finish_turn(lease, answered(lease))
        assert [turn.state for turn in (await other.load("demo")).turns] == ["complete"]

    async def test_a_hidden_turn_whose_process_died_is_not_stored(
        self, harness: StoreHarness, store: Store, other: Store
    ) -> None:
        new = NewConversation(id="demo")
        await store.begin_turn("demo", start("t1", visible=False), create=new)
        await harness.lose(store)
        await self._refuse(ConversationNotFoundError, other.begin_turn("demo", start("t2")))
        await say(other, "demo", "t2")
        assert [turn.id for turn in (await other.load("demo")).turns] == ["t2"]

    async def test_a_failed_turn_is_stored_and_is_not_history(self, store: Store) -> None:
        lease = await store.begin_turn("demo", start("t1"), create=NewConversation(id="demo"))
        await store.finish_turn(lease, failed(lease))
        turn = (await store.load("demo")).turns[0]
        assert turn == failed(lease)
        assert not turn.is_history

    async def test_an_incomplete_turn_is_history(self, store: Store) -> None:
        lease = await store.begin_turn("demo", start("t1"), create=NewConversation(id="demo"))
        await store.finish_turn(lease, replace(answered(lease), state="incomplete"))
        assert (await store.load("demo")).turns[0].is_history

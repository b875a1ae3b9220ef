"""A state machine: any series of operations has the same result in a store as in memory.

A test subclasses `StoreMachine` and defines how its store is opened and cleaned up.
"""

import asyncio
from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from cllm.core.conversation import (
    StandingSummary,
    StoredConversation,
    SystemRecord,
    TurnFailure,
    WindowRecord,
)
from cllm.core.errors import CllmError
from cllm.core.message import plain_message
from cllm.core.ports import (
    Changes,
    Clock,
    Hits,
    Lease,
    NewConversation,
    Opening,
    PathMatch,
    Store,
    Tail,
    TurnStart,
)
from cllm.core.reply import Usage
from cllm.stores.memory import MemoryData, MemoryStore
from cllm.transfer.verification import StoreCheck
from cllm.wire.path_digest import digest_turns

REFS = ("a", "b", "c")
IDS = st.sampled_from(REFS)
STATES = st.sampled_from(["complete", "complete", "incomplete", "failed"])
WORDS = ("about", "yes", "t1", "t3")
OPENING = Opening(
    system=plain_message("system", "S"),
    system_record=SystemRecord(policy="captured", source="settings"),
)
LEASE_SECONDS = 1_000


def comparable(outcome: Any) -> Any:
    """The outcome with sorted variants and hits, whose order a store may choose.

    Of the matches of a path only those on a default path are compared.
    """
    if isinstance(outcome, StoredConversation):
        variants = tuple(sorted(outcome.variants, key=lambda turn: turn.id))
        return msgspec.structs.replace(outcome, variants=variants)
    if isinstance(outcome, Hits):
        items = sorted(outcome.items, key=lambda hit: (hit.conversation, hit.sequence))
        return msgspec.structs.replace(outcome, items=tuple(items))
    if isinstance(outcome, tuple) and outcome and isinstance(outcome[0], PathMatch):
        on_path = [match for match in outcome if match.sequence is not None]
        return sorted(on_path, key=lambda match: (match.conversation, match.turn, match.ordinal))
    return outcome


class StoreMachine(RuleBasedStateMachine):
    """Runs every operation on the store under test and on one in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.runner = asyncio.Runner()
        self.data = MemoryData()
        self.count = 0
        self.leases: list[tuple[Lease, Lease]] = []
        self.prepare()
        self.open()

    def prepare(self) -> None:
        """Create the store's folder or database."""

    def open_store(self, clock: Clock) -> Store:
        raise NotImplementedError

    def clean_up(self) -> None:
        """Delete the store's data."""

    def open(self) -> None:
        def clock() -> datetime:
            return self.now

        self.store: Store = self.open_store(clock)
        self.memory: Store = MemoryStore(
            clock=clock, data=self.data, lease_seconds=LEASE_SECONDS, patience=0
        )

    def teardown(self) -> None:
        check = StoreCheck(self.store)
        self.step(check.run())
        assert check.problems == []
        self.step(self.store.close())
        self.runner.close()
        self.clean_up()

    def step(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return self.runner.run(coroutine)

    def outcome(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        try:
            return comparable(self.step(coroutine))
        except CllmError as error:
            return type(error)

    def both(self, name: str, *args: Any, **options: Any) -> tuple[Any, Any]:
        self.now += timedelta(seconds=1)
        stores = (self.store, self.memory)
        first, second = (self.outcome(getattr(each, name)(*args, **options)) for each in stores)
        return first, second

    def same(self, name: str, *args: Any, **options: Any) -> Any:
        found, expected = self.both(name, *args, **options)
        assert found == expected
        return found

    def new_id(self) -> str:
        self.count += 1
        return f"t{self.count}"

    @rule(
        ref=IDS,
        visible=st.booleans(),
        create=st.booleans(),
        again=st.booleans(),
        tail=st.sampled_from([None, "window", "window", 3]),
    )
    def begin(self, ref: str, visible: bool, create: bool, again: bool, tail: Tail) -> None:
        place = None
        if again:
            place = next((turn.place for turn in reversed(self.turns(ref))), None)
        turn_id = self.new_id()
        start = TurnStart(
            id=turn_id,
            messages=(plain_message("user", f"about {turn_id}"),),
            place=place,
            visible=visible,
        )
        new = NewConversation(id=ref, model="m") if create else None
        before = self.outcome(self.store.load(ref, tail=tail))
        found, expected = self.both("begin_turn", ref, start, create=new, tail=tail)
        if isinstance(found, type) or isinstance(expected, type):
            assert found == expected
            return
        self.check_start(found.conversation, expected.conversation, before)
        assert (found.turn, found.created) == (expected.turn, expected.created)
        self.leases.append((found, expected))

    def check_start(
        self, found: StoredConversation, expected: StoredConversation, before: Any
    ) -> None:
        """A lease has the conversation of the memory store, with the loadable variants."""
        assert found == msgspec.structs.replace(expected, variants=found.variants)
        loaded = () if isinstance(before, type) else before.variants
        interrupted = {turn.id for turn in loaded if turn.state == "running"}
        assert {turn for turn in found.variants if turn.id not in interrupted} == {
            turn for turn in loaded if turn.id not in interrupted
        }

    def turns(self, ref: str) -> Any:
        found = self.outcome(self.memory.load(ref))
        return () if isinstance(found, type) else found.turns

    @precondition(lambda self: self.leases)
    @rule(
        data=st.data(),
        state=STATES,
        opened=st.booleans(),
        cut=st.integers(0, 4),
        replies=st.integers(1, 3),
    )
    def finish(self, data: st.DataObject, state: str, opened: bool, cut: int, replies: int) -> None:
        pair = data.draw(st.sampled_from(self.leases))
        before = pair[1].conversation.message_count
        first = max(before - cut, 1)
        turn = msgspec.structs.replace(
            pair[0].turn,
            state=state,
            messages=(*pair[0].turn.messages, *[plain_message("assistant", "yes")] * replies),
            usage=Usage(input=1, output=2),
            ended_at=self.now,
            window=WindowRecord(first_sequence=first, sent_messages=1) if cut else None,
            failure=TurnFailure(code="x", message="y") if state == "failed" else None,
        )
        opening = OPENING if opened else None
        self.end(pair, "finish_turn", turn, opening=opening)

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        self.end(data.draw(st.sampled_from(self.leases)), "drop_turn")

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def renew(self, data: st.DataObject) -> None:
        pair = data.draw(st.sampled_from(self.leases))
        outcomes = [
            isinstance(self.outcome(store.renew_lease(lease)), type)
            for store, lease in zip((self.store, self.memory), pair, strict=True)
        ]
        assert outcomes[0] == outcomes[1]

    def end(self, pair: tuple[Lease, Lease], name: str, *args: Any, **options: Any) -> None:
        """End a turn, perhaps with an expired lease."""
        self.now += timedelta(seconds=1)
        outcomes = [
            self.outcome(getattr(store, name)(lease, *args, **options))
            for store, lease in zip((self.store, self.memory), pair, strict=True)
        ]
        assert outcomes[0] == outcomes[1]

    @rule()
    def lose_all_leases(self) -> None:
        self.step(self.store.close())
        self.now += timedelta(seconds=LEASE_SECONDS + 1)
        self.open()

    @rule(ref=IDS, opened=st.booleans())
    def create(self, ref: str, opened: bool) -> None:
        new = NewConversation(id=ref, model="m", metadata={"k": [1, "é"]})
        self.same("create", new, opening=OPENING if opened else None)

    @rule(ref=IDS, title=st.none() | st.just("T"), archived=st.booleans())
    def update(self, ref: str, title: str | None, archived: bool) -> None:
        self.same("update", ref, Changes(title=title, archived=archived))

    @rule(ref=IDS, pins=st.lists(st.integers(0, 6), max_size=2), through=st.integers(0, 6))
    def note(self, ref: str, pins: list[int], through: int) -> None:
        summary = StandingSummary(text="s", through=through, tokens=1) if through else None
        self.same("update", ref, Changes(pins=tuple(pins), summary=summary))

    @rule(ref=IDS)
    def capture(self, ref: str) -> None:
        self.same("capture", ref, OPENING)

    @rule(ref=IDS)
    def delete(self, ref: str) -> None:
        self.same("delete", ref)

    @rule(ref=IDS, sequence=st.integers(0, 5))
    def delete_from(self, ref: str, sequence: int) -> None:
        self.same("delete_from", ref, sequence)

    @rule(ref=IDS, to=IDS, at=st.none() | st.integers(0, 5))
    def branch(self, ref: str, to: str, at: int | None) -> None:
        self.same("branch", ref, NewConversation(id=to), at=at)

    @rule(ref=IDS, to=IDS, data=st.data())
    def branch_path(self, ref: str, to: str, data: st.DataObject) -> None:
        """Branch a path of any turns, as a client does that continues an older response."""
        found = self.outcome(self.memory.load(ref))
        if isinstance(found, type):
            return
        length = data.draw(st.integers(0, len(found.turns)))
        path: list[str] = [turn.id for turn in found.turns[:length] if turn.state != "running"]
        others = [
            turn.id for turn in found.turns[length:] + found.variants if turn.state != "running"
        ]
        path += data.draw(st.lists(st.sampled_from(others), max_size=1)) if others else []
        self.same("branch", ref, NewConversation(id=to), path=path)

    @rule(ref=IDS, data=st.data())
    def choose(self, ref: str, data: st.DataObject) -> None:
        number = data.draw(st.integers(1, max(self.count, 1)))
        self.same("choose_variant", ref, f"t{number}")

    @rule(word=st.sampled_from(WORDS))
    def search(self, word: str) -> None:
        self.same("search", word, limit=1000, archive_filter="all")

    @rule(ref=IDS, data=st.data())
    def find_paths(self, ref: str, data: st.DataObject) -> None:
        """Find the messages of a default path in all conversations."""
        turns = self.turns(ref)
        if not turns:
            return
        digests = digest_turns(self.outcome(self.memory.load(ref)))
        turn = data.draw(st.sampled_from(turns))
        self.same("find_paths", digests[turn.id])

    def check_rows(self) -> None:
        """Check that the tables have no row that nothing uses."""

    @invariant()
    def check_everything(self) -> None:
        for ref in REFS:
            self.same("load", ref)
            self.same("summary", ref)
            self.check_tail(ref)
        self.same("list_conversations", archive_filter="all")
        self.same("usage", by="model")
        self.check_rows()

    def check_tail(self, ref: str) -> None:
        """A store may load only the variants of the turns that it loads."""
        for tail in ("window", 0, 3):
            found, expected = self.both("load", ref, tail=tail)
            if isinstance(expected, StoredConversation):
                assert found == msgspec.structs.replace(expected, variants=found.variants)
            else:
                assert found == expected

"""Any series of operations has the same outcome in the JSON file store as in memory."""

import shutil
import tempfile
from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from cllm.core.conversation import SystemRecord, TurnFailure
from cllm.core.errors import CllmError
from cllm.core.message import plain_message
from cllm.core.ports import Changes, Lease, NewConversation, Opening, Store, TurnStart
from cllm.core.reply import Usage
from cllm.stores.json_files import JsonFileStore
from cllm.stores.memory import MemoryData, MemoryStore

IDS = st.sampled_from(["a", "b", "c"])
STATES = st.sampled_from(["complete", "complete", "incomplete", "failed"])
OPENING = Opening(
    system=plain_message("system", "S"),
    system_record=SystemRecord(policy="captured", source="settings"),
)
LEASE_SECONDS = 10_000


def step(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run what never suspends."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("A store suspended without waiting.")


class StoresAgree(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.folder = Path(tempfile.mkdtemp())
        self.data = MemoryData()
        self.count = 0
        self.leases: list[tuple[Lease, Lease]] = []
        self.open()

    def open(self) -> None:
        def clock() -> datetime:
            return self.now

        self.files: Store = JsonFileStore(self.folder / "c", clock=clock, patience=0)
        self.memory: Store = MemoryStore(
            clock=clock, data=self.data, lease_seconds=LEASE_SECONDS, patience=0
        )

    def teardown(self) -> None:
        step(self.files.close())
        shutil.rmtree(self.folder)

    def both(self, name: str, *args: Any, **options: Any) -> tuple[Any, Any]:
        self.now += timedelta(seconds=1)
        outcomes = []
        for store in (self.files, self.memory):
            try:
                outcomes.append(step(getattr(store, name)(*args, **options)))
            except CllmError as error:
                outcomes.append(type(error))
        return outcomes[0], outcomes[1]

    def same(self, name: str, *args: Any, **options: Any) -> Any:
        files, memory = self.both(name, *args, **options)
        assert files == memory
        return files

    def new_id(self) -> str:
        self.count += 1
        return f"t{self.count}"

    @rule(ref=IDS, visible=st.booleans(), create=st.booleans(), again=st.booleans())
    def begin(self, ref: str, visible: bool, create: bool, again: bool) -> None:
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
        files, memory = self.both("begin_turn", ref, start, create=new)
        if isinstance(files, type):
            assert files == memory
            return
        assert files.conversation == memory.conversation
        assert (files.turn, files.created) == (memory.turn, memory.created)
        self.leases.append((files, memory))

    def turns(self, ref: str) -> Any:
        try:
            return step(self.memory.load(ref)).turns
        except CllmError:
            return ()

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), state=STATES, opened=st.booleans())
    def finish(self, data: st.DataObject, state: str, opened: bool) -> None:
        pair = data.draw(st.sampled_from(self.leases))
        turn = msgspec.structs.replace(
            pair[0].turn,
            state=state,
            messages=(*pair[0].turn.messages, plain_message("assistant", "yes")),
            usage=Usage(input=1, output=2),
            failure=TurnFailure(code="x", message="y") if state == "failed" else None,
        )
        opening = OPENING if opened else None
        self.end(pair, "finish_turn", turn, opening=opening)

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        self.end(data.draw(st.sampled_from(self.leases)), "drop_turn")

    def end(self, pair: tuple[Lease, Lease], name: str, *args: Any, **options: Any) -> None:
        """End a turn, perhaps with a lease that is long gone."""
        self.now += timedelta(seconds=1)
        outcomes = []
        for store, lease in zip((self.files, self.memory), pair, strict=True):
            try:
                outcomes.append(step(getattr(store, name)(lease, *args, **options)))
            except CllmError as error:
                outcomes.append(type(error))
        assert outcomes[0] == outcomes[1]

    @rule()
    def lose_all_leases(self) -> None:
        step(self.files.close())
        self.now += timedelta(seconds=LEASE_SECONDS + 1)
        self.open()

    @rule(ref=IDS, opened=st.booleans())
    def create(self, ref: str, opened: bool) -> None:
        new = NewConversation(id=ref, model="m", metadata={"k": [1, "é"]})
        self.same("create", new, opening=OPENING if opened else None)

    @rule(ref=IDS, title=st.none() | st.just("T"), archived=st.booleans())
    def update(self, ref: str, title: str | None, archived: bool) -> None:
        self.same("update", ref, Changes(title=title, archived=archived))

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

    @rule(ref=IDS, data=st.data())
    def choose(self, ref: str, data: st.DataObject) -> None:
        number = data.draw(st.integers(1, max(self.count, 1)))
        self.same("choose_variant", ref, f"t{number}")

    @invariant()
    def everything_is_the_same(self) -> None:
        for ref in ("a", "b", "c"):
            self.same("load", ref)
        self.same("list_conversations", archive_filter="all")


TestStoresAgree = StoresAgree.TestCase
TestStoresAgree.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)

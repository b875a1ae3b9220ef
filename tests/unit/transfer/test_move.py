from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.import_sources import write_chatgpt
from tests.unit.transfer.conftest import Import, list_all

from cllm.app import now
from cllm.core.conversation import StoredConversation
from cllm.core.errors import ConversationNotFoundError, StoreUnavailableError, UsageError
from cllm.core.message import Message
from cllm.core.ports import Changes, NewConversation, Page, Store, TurnStart
from cllm.stores.combined import CombinedStore
from cllm.stores.json.store import JsonFileStore
from cllm.stores.memory import MemoryStore
from cllm.stores.registry import open_store
from cllm.transfer.move import move_conversations

pytestmark = pytest.mark.asyncio


async def test_everything_moves_and_a_repeated_move_completes_it(
    import_file: Import, store: Store, tmp_path: Path
) -> None:
    await import_file(write_chatgpt(tmp_path / "a.zip"))
    before = await list_all(store)
    target = JsonFileStore(tmp_path / "target", clock=now)
    result = await move_conversations(store, target, (), clock=now, is_copy=True)
    assert (result.count, result.problems) == (3, [])
    assert await list_all(store) == before
    result = await move_conversations(store, target, (), clock=now)
    assert (result.count, result.problems) == (3, [])
    assert await list_all(store) == {}
    assert await list_all(target) == before


async def test_a_conversation_that_exists_and_differs_stays(store: Store) -> None:
    target = MemoryStore(clock=now)
    await target.create(NewConversation(id="cats", title="Theirs"))
    for name in ("cats", "dogs"):
        await store.create(NewConversation(id=name))
    result = await move_conversations(store, target, ("cats", "dogs"), clock=now)
    assert (result.count, result.problems) == (
        1,
        ["cats: another conversation with this ID exists."],
    )
    assert [one.id for one in (await list_all(store)).values()] == ["cats"]


async def test_a_copy_that_differs_deletes_nothing(store: Store) -> None:
    class Forgetful(MemoryStore):
        async def load(self, *args: Any, **options: Any) -> StoredConversation:
            loaded = await super().load(*args, **options)
            return msgspec.structs.replace(loaded, title="Lost")

    await store.create(NewConversation(id="cats"))
    result = await move_conversations(store, Forgetful(clock=now), (), clock=now)
    assert (result.count, result.problems) == (0, ["cats: the copy differs; nothing was deleted."])
    assert len(await list_all(store)) == 1


async def test_the_spacing_of_a_request_is_no_difference(store: Store, tmp_path: Path) -> None:
    spaced = Message(role="user", raw=b'{"role": "user", "content": "Hello"}')
    await store.create(NewConversation(id="cats"))
    lease = await store.begin_turn("cats", TurnStart(id="t1", messages=(spaced,)))
    await store.finish_turn(lease, msgspec.structs.replace(lease.turn, state="complete"))
    target = JsonFileStore(tmp_path, clock=now)
    for _ in range(2):
        copied = await move_conversations(store, target, (), clock=now, is_copy=True)
        assert (copied.count, copied.problems) == (1, [])
    result = await move_conversations(store, target, (), clock=now)
    assert (result.count, result.problems) == (1, [])


async def test_a_change_during_the_move_is_not_lost(store: Store) -> None:
    class Changing(MemoryStore):
        async def add(self, *args: Any, **options: Any) -> str:
            added = await super().add(*args, **options)
            await store.update("cats", Changes(title="New"))
            return added

    await store.create(NewConversation(id="cats"))
    result = await move_conversations(store, Changing(clock=now), (), clock=now)
    assert result.problems == ["cats: it changed during the move; move it again."]
    assert (await store.load("cats")).title == "New"


async def test_a_move_into_the_same_store_deletes_nothing(store: Store, tmp_path: Path) -> None:
    await store.create(NewConversation(id="cats"))
    before = await list_all(store)
    (tmp_path / "link").symlink_to(tmp_path / "same")
    same = [JsonFileStore(tmp_path / name, clock=now) for name in ("same", "link")]
    await same[0].create(NewConversation(id="dogs"))
    for source, target in ((store, store), (same[0], same[1])):
        for refs in ((), ("cats",)):
            with pytest.raises(UsageError, match="already"):
                await move_conversations(source, target, refs, clock=now)
    assert await list_all(store) == before
    assert len(await list_all(same[0])) == 1


async def test_a_folder_that_is_mounted_twice_loses_nothing(tmp_path: Path) -> None:
    class OtherMount(JsonFileStore):
        async def is_same_store(self, other: Store) -> bool:  # noqa: ARG002
            return False

    mounts = [OtherMount(tmp_path, clock=now) for _ in range(2)]
    await mounts[0].create(NewConversation(id="cats", title="Cats"))
    before = await mounts[0].load("cats")
    with pytest.raises(UsageError, match="already"):
        await move_conversations(mounts[0], mounts[1], (), clock=now)
    assert await mounts[0].load("cats") == before


@pytest.mark.parametrize("target", ["sqlite", "json"])
async def test_a_missing_conversation_creates_no_target(
    store: Store, tmp_path: Path, target: str
) -> None:
    path = tmp_path / "new"
    new = open_store(f"{target}:{path}", clock=now)
    both = CombinedStore(store, lambda: MemoryStore(clock=now), locations=("own", "other"))
    for source in (store, both):
        with pytest.raises(ConversationNotFoundError, match="'nope'"):
            await move_conversations(source, new, ("nope",), clock=now, is_new=True)
        assert (await move_conversations(source, new, (), clock=now)).count == 0
    assert not path.exists()


async def test_a_conversation_that_only_the_target_has_is_named(tmp_path: Path) -> None:
    files, database = JsonFileStore(tmp_path, clock=now), MemoryStore(clock=now)
    both = CombinedStore(files, lambda: database, locations=("files", "database"))
    await files.create(NewConversation(id="cats"))
    await database.create(NewConversation(id="dogs"))
    for ref, source, target in (
        ("dogs", both, database),
        ("files:cats", both, files),
        ("dogs", files, database),
    ):
        result = await move_conversations(source, target, (ref,), clock=now)
        assert (result.count, result.problems) == (0, [f"{ref}: it is in the other store already."])
        with pytest.raises(ConversationNotFoundError, match="'nope'"):
            await move_conversations(source, database, ("nope",), clock=now)


async def test_an_interrupted_move_of_named_conversations_can_be_repeated(store: Store) -> None:
    for name in ("cats", "dogs"):
        await store.create(NewConversation(id=name))
    target = MemoryStore(clock=now)
    await move_conversations(store, target, ("cats",), clock=now)
    result = await move_conversations(store, target, ("cats", "dogs"), clock=now)
    assert (result.count, result.problems) == (1, ["cats: it is in the other store already."])
    assert await list_all(store) == {}


async def test_a_move_writes_nothing_but_the_conversations(store: Store, tmp_path: Path) -> None:
    """A process that is killed leaves nothing else in the target."""

    class AddOnly(MemoryStore):
        async def create(self, *args: Any, **options: Any) -> StoredConversation:
            raise AssertionError(args, options)

    files, target = JsonFileStore(tmp_path, clock=now), AddOnly(clock=now)
    for source in (files, store):
        await source.create(NewConversation(id="cats" if source is store else "dogs"))
    both = CombinedStore(files, lambda: store, locations=("files", "store"))
    assert (await move_conversations(both, target, (), clock=now)).count == 2


async def test_a_store_that_is_unavailable_keeps_its_conversations(tmp_path: Path) -> None:
    class Locked(MemoryStore):
        async def list_conversations(self, **_: Any) -> Page:
            raise StoreUnavailableError("The file is locked.")

    files, database = JsonFileStore(tmp_path, clock=now), Locked(clock=now)
    both = CombinedStore(files, lambda: database, locations=("files", "database"))
    await files.create(NewConversation(id="cats"))
    await database.create(NewConversation(id="dogs"))
    result = await move_conversations(both, MemoryStore(clock=now), (), clock=now)
    assert result.count == 1
    assert "locked" in result.problems[0]
    assert (await database.summary("dogs")).id == "dogs"


async def test_a_repeated_move_into_one_of_two_stores_deletes_nothing_in_it(tmp_path: Path) -> None:
    files, database = JsonFileStore(tmp_path, clock=now), MemoryStore(clock=now)
    both = CombinedStore(files, lambda: database, locations=("files", "database"))
    await files.create(NewConversation(id="cats", title="Cats"))
    await database.create(NewConversation(id="dogs", title="Dogs"))
    for count in (1, 0):
        result = await move_conversations(both, database, (), clock=now)
        assert (result.count, result.problems) == (count, [])
        assert await list_all(files) == {}
        assert len(await list_all(database)) == 2

from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.import_sources import write_chatgpt
from tests.unit.transfer.conftest import Import, list_all

from cllm.app import new_id, now
from cllm.core.conversation import StoredConversation, Summary
from cllm.core.errors import StoreUnavailableError, UsageError
from cllm.core.ports import Changes, NewConversation, Store
from cllm.stores.combined import CombinedStore
from cllm.stores.json.store import JsonFileStore
from cllm.stores.memory import MemoryStore
from cllm.transfer.move import move_conversations

pytestmark = pytest.mark.asyncio


async def test_everything_moves_and_a_repeated_move_completes_it(
    import_file: Import, store: Store, tmp_path: Path
) -> None:
    await import_file(write_chatgpt(tmp_path / "a.zip"))
    before = await list_all(store)
    target = JsonFileStore(tmp_path / "target", clock=now)
    result = await move_conversations(store, target, (), clock=now, new_id=new_id, is_copy=True)
    assert (result.count, result.problems) == (3, [])
    assert await list_all(store) == before
    result = await move_conversations(store, target, (), clock=now, new_id=new_id)
    assert (result.count, result.problems) == (3, [])
    assert await list_all(store) == {}
    assert await list_all(target) == before


async def test_a_conversation_that_exists_and_differs_stays(store: Store) -> None:
    target = MemoryStore(clock=now)
    await target.create(NewConversation(id="cats", title="Theirs"))
    for name in ("cats", "dogs"):
        await store.create(NewConversation(id=name))
    result = await move_conversations(store, target, ("cats", "dogs"), clock=now, new_id=new_id)
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
    result = await move_conversations(store, Forgetful(clock=now), (), clock=now, new_id=new_id)
    assert (result.count, result.problems) == (0, ["cats: the copy differs; nothing was deleted."])
    assert len(await list_all(store)) == 1


async def test_a_change_during_the_move_is_not_lost(store: Store) -> None:
    class Changing(MemoryStore):
        async def add(self, *args: Any, **options: Any) -> str:
            added = await super().add(*args, **options)
            await store.update("cats", Changes(title="New"))
            return added

    await store.create(NewConversation(id="cats"))
    result = await move_conversations(store, Changing(clock=now), (), clock=now, new_id=new_id)
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
                await move_conversations(source, target, refs, clock=now, new_id=new_id)
    assert await list_all(store) == before
    assert len(await list_all(same[0])) == 1


async def test_a_store_that_cannot_be_compared_is_an_error_and_nothing_is_deleted(
    tmp_path: Path,
) -> None:
    class Locked(MemoryStore):
        async def summary(self, *_: Any, **__: Any) -> Summary:
            raise StoreUnavailableError("The file is locked.")

    files, database = JsonFileStore(tmp_path, clock=now), Locked(clock=now)
    both = CombinedStore(files, lambda: database, locations=("files", "database"))
    await files.create(NewConversation(id="cats", title="Cats"))
    await database.create(NewConversation(id="dogs", title="Dogs"))
    for target in (database, MemoryStore(clock=now)):
        with pytest.raises(StoreUnavailableError, match="locked"):
            await move_conversations(both, target, (), clock=now, new_id=new_id)
        page = await database.list_conversations(side=True)
        assert [one.title for one in page.items] == ["Dogs"]
        assert len(await list_all(files)) == 1


async def test_a_repeated_move_into_one_of_two_stores_deletes_nothing_in_it(tmp_path: Path) -> None:
    files, database = JsonFileStore(tmp_path, clock=now), MemoryStore(clock=now)
    both = CombinedStore(files, lambda: database, locations=("files", "database"))
    await files.create(NewConversation(id="cats", title="Cats"))
    await database.create(NewConversation(id="dogs", title="Dogs"))
    for count in (1, 0):
        result = await move_conversations(both, database, (), clock=now, new_id=new_id)
        assert (result.count, result.problems) == (count, [])
        assert await list_all(files) == {}
        assert len(await list_all(database)) == 2

from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.import_sources import write_chatgpt
from tests.unit.transfer.conftest import Import, list_all

from cllm.app import now
from cllm.core.conversation import StoredConversation
from cllm.core.ports import Changes, NewConversation, Store
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

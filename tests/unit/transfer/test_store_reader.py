from pathlib import Path

import pytest

from cllm.app import now
from cllm.core.conversation import StoredConversation
from cllm.core.errors import BrokenConversationError
from cllm.core.ports import Changes, NewConversation
from cllm.stores.json.store import JsonFileStore
from cllm.transfer.store_reader import list_summaries, load_all

pytestmark = pytest.mark.asyncio


async def test_all_conversations_are_read_oldest_first(tmp_path: Path) -> None:
    store = JsonFileStore(tmp_path, clock=now)
    for name in ("c", "a", "b", "deleted"):
        await store.create(NewConversation(id=name, is_side=name == "b"))
    await store.update("c", Changes(archived=True))
    summaries, notices = await list_summaries(store)
    assert [summary.id for summary in summaries] == ["c", "a", "b", "deleted"]
    assert notices == ()
    (tmp_path / "a.json").write_text("{", encoding="utf-8")
    await store.delete("deleted")
    loaded = {summary.id: one async for summary, one in load_all(store, summaries)}
    assert isinstance(loaded["a"], BrokenConversationError)
    assert isinstance(loaded["c"], StoredConversation)
    assert "deleted" not in loaded

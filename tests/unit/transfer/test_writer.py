import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.import_sources import chatgpt_conversation, chatgpt_node
from tests.unit.transfer.conftest import Import, list_all, texts

from cllm.app import now
from cllm.core.conversation import Branch, StoredConversation
from cllm.core.errors import StoreUnavailableError
from cllm.core.message import Message, plain_message
from cllm.core.ports import Changes, NewConversation, Store, TurnStart
from cllm.stores.json.store import JsonFileStore
from cllm.stores.memory import MemoryStore
from cllm.transfer.report import ImportReport
from cllm.transfer.writer import CHANGED_IN_SOURCE, DIFFERS, ImportWriter

pytestmark = pytest.mark.asyncio
replace = msgspec.structs.replace
QUESTION = chatgpt_node("a", None, "user", "One")
ANSWER = chatgpt_node("b", "a", "assistant", "Two")
NEXT = chatgpt_node("c", "b", "user", "Three")


def write(tmp_path: Path, *nodes: dict[str, Any]) -> Path:
    path = tmp_path / "c.json"
    path.write_text(json.dumps([chatgpt_conversation("x", *nodes)]), encoding="utf-8")
    return path


async def say(store: Store, ref: str, text: str) -> None:
    message = plain_message("user", text)
    lease = await store.begin_turn(ref, TurnStart(id="mine", messages=(message,)))
    await store.finish_turn(lease, replace(lease.turn, state="complete"))


async def test_a_reply_that_came_later_is_appended(
    import_file: Import, store: Store, tmp_path: Path
) -> None:
    await import_file(write(tmp_path, QUESTION))
    report = await import_file(write(tmp_path, QUESTION, ANSWER, NEXT))
    (found,) = (await list_all(store)).values()
    assert texts(found) == ["One", "Two", "Three"]
    assert (report.continued, report.messages) == (1, 2)
    before = await list_all(store)
    assert (await import_file(write(tmp_path, QUESTION, ANSWER, NEXT))).unchanged == 1
    assert await list_all(store) == before


async def test_a_reply_that_was_incomplete_is_replaced_and_stays_as_a_variant(
    import_file: Import, store: Store, tmp_path: Path
) -> None:
    partial = chatgpt_node("b", "a", "assistant", "Tw", status="in_progress")
    await import_file(write(tmp_path, QUESTION, partial))
    report = await import_file(write(tmp_path, QUESTION, ANSWER, NEXT), dry_run=True)
    assert (report.continued, report.messages, report.skipped) == (1, 2, [])
    report = await import_file(write(tmp_path, QUESTION, ANSWER, NEXT))
    assert (report.continued, report.messages, report.skipped) == (1, 2, [])
    (found,) = (await list_all(store)).values()
    assert texts(found) == ["One", "Two", "Three"]
    assert [turn.messages[-1].text for turn in found.variants] == ["Tw"]
    assert [turn.state for turn in found.turns] == ["complete", "complete"]
    assert (await import_file(write(tmp_path, QUESTION, ANSWER, NEXT))).unchanged == 1


async def test_an_earlier_message_that_changed_in_the_source_is_reported(
    import_file: Import, store: Store, tmp_path: Path
) -> None:
    await import_file(write(tmp_path, QUESTION, ANSWER, NEXT))
    changed = chatgpt_node("a", None, "user", "Uno")
    report = await import_file(write(tmp_path, changed, ANSWER, NEXT))
    assert [one.reason for one in report.skipped] == [CHANGED_IN_SOURCE]
    (found,) = (await list_all(store)).values()
    assert texts(found) == ["One", "Two", "Three"]


async def test_a_conversation_that_was_continued_here_is_not_changed(
    import_file: Import, store: Store, tmp_path: Path
) -> None:
    await import_file(write(tmp_path, QUESTION, ANSWER))
    (found,) = (await list_all(store)).values()
    await say(store, found.id, "Mine")
    assert (await import_file(write(tmp_path, QUESTION, ANSWER))).unchanged == 1
    report = await import_file(write(tmp_path, QUESTION, ANSWER, NEXT))
    assert report.continued == 0
    assert [one.reason[:23] for one in report.skipped] == ["it was changed here sin"]
    assert texts(await store.load(found.id)) == ["One", "Two", "Mine"]


async def test_deleted_messages_are_not_imported_again(
    import_file: Import, store: Store, tmp_path: Path
) -> None:
    await import_file(write(tmp_path, QUESTION, ANSWER))
    (found,) = (await list_all(store)).values()
    await store.delete_from(found.id, 2)
    assert (await import_file(write(tmp_path, QUESTION, ANSWER))).unchanged == 1
    report = await import_file(write(tmp_path, QUESTION, ANSWER, NEXT))
    assert len(report.skipped) == 1
    assert texts(await store.load(found.id)) == ["One"]


async def test_an_interrupted_continuation_is_completed(
    import_file: Import, store: Store, tmp_path: Path
) -> None:
    await import_file(write(tmp_path, QUESTION))
    (found,) = (await list_all(store)).values()
    metadata = found.metadata
    await import_file(write(tmp_path, QUESTION, ANSWER))
    await store.update(found.id, Changes(metadata=metadata))
    await import_file(write(tmp_path, QUESTION, ANSWER, NEXT))
    assert texts(await store.load(found.id)) == ["One", "Two", "Three"]


async def test_a_dry_run_writes_nothing(import_file: Import, store: Store, tmp_path: Path) -> None:
    report = await import_file(write(tmp_path, QUESTION, ANSWER), dry_run=True)
    assert (report.imported, report.messages) == (1, 2)
    assert await list_all(store) == {}
    await import_file(write(tmp_path, QUESTION))
    report = await import_file(write(tmp_path, QUESTION, ANSWER), dry_run=True)
    assert report.continued == 1
    assert [texts(one) for one in (await list_all(store)).values()] == [["One"]]


async def test_a_stored_conversation_is_added_with_its_id(store: Store, tmp_path: Path) -> None:
    moment = now()
    parent = StoredConversation(id="c-1", name="cats", created_at=moment, updated_at=moment)
    branch = replace(
        parent, id="c-2", name=None, parent=Branch(conversation="c-1", sequence=0), family="c-1"
    )
    files = JsonFileStore(tmp_path, clock=now)
    for target in (store, files):
        report = ImportReport()
        writer = ImportWriter(target, report, clock=now)
        for _ in range(2):
            await writer.add(parent)
            await writer.add(branch)
        assert (report.imported, report.unchanged) == (2, 2)
    stored = await files.load("c-2")
    assert stored.parent == Branch(conversation="cats", sequence=0)
    assert stored.family == "cats"
    await writer.add(replace(parent, title="Another"))
    assert [one.reason for one in report.skipped] == ["another conversation with this ID exists"]


async def test_a_stored_conversation_that_has_grown_is_continued(store: Store) -> None:
    other = MemoryStore(clock=now)
    await other.create(NewConversation(id="cats"))
    report = ImportReport()
    writer = ImportWriter(store, report, clock=now)
    for text in ("One", "Two", "Three"):
        message = plain_message("user", text)
        lease = await other.begin_turn("cats", TurnStart(id=text, messages=(message,)))
        await other.finish_turn(lease, replace(lease.turn, state="complete"))
        for _ in range(2):
            await writer.add(await other.load("cats"))
    assert (report.imported, report.continued, report.unchanged) == (1, 2, 3)
    assert (report.messages, report.skipped) == (3, [])
    stored = await store.load("cats")
    assert stored.turns == (await other.load("cats")).turns
    await say(store, "cats", "Mine")
    await writer.add(await other.load("cats"))
    assert report.unchanged == 4
    message = plain_message("user", "Uno")
    lease = await other.begin_turn("cats", TurnStart(id="v", messages=(message,), place="Three"))
    await other.finish_turn(lease, replace(lease.turn, state="complete"))
    await writer.add(await other.load("cats"))
    assert [one.reason for one in report.skipped] == [DIFFERS]


async def test_a_stored_conversation_that_a_client_sent_with_spaces_is_continued(
    tmp_path: Path,
) -> None:
    other = MemoryStore(clock=now)
    await other.create(NewConversation(id="cats"))
    report = ImportReport()
    writer = ImportWriter(JsonFileStore(tmp_path, clock=now), report, clock=now)
    for text in ("One", "Two"):
        raw = json.dumps({"role": "user", "content": text}).encode()
        start = TurnStart(id=text, messages=(Message(role="user", raw=raw),))
        lease = await other.begin_turn("cats", start)
        await other.finish_turn(lease, replace(lease.turn, state="complete"))
        for _ in range(2):
            await writer.add(await other.load("cats"))
    assert (report.imported, report.continued, report.unchanged) == (1, 1, 2)
    assert report.skipped == []


async def test_what_a_store_refuses_is_reported(store: Store) -> None:
    report = ImportReport()
    writer = ImportWriter(store, report, clock=now)
    moment = now()
    await writer.add(StoredConversation(id="a/b", created_at=moment, updated_at=moment))
    assert [one.damaged for one in report.skipped] == [True]


async def test_an_unavailable_store_ends_the_import(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    store = JsonFileStore(tmp_path / "file", clock=now)
    writer = ImportWriter(store, ImportReport(), clock=now)
    moment = now()
    with pytest.raises(StoreUnavailableError):
        await writer.add(StoredConversation(id="a", created_at=moment, updated_at=moment))

"""Conversations that continue after a summary of another one."""

import pytest
from tests.history_client import HistoryClient, make_engine, reply, user
from tests.scripted_provider import ScriptedProvider
from tests.unit.engine.conftest import Clock

from cllm.core.conversation import Branch
from cllm.engine.request import ClientHistory
from cllm.stores.memory import MemoryStore

SUMMARY = "The user wants a parser; it is written."


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(clock=Clock())


def make_client(
    store: MemoryStore, history: ClientHistory, *, summary: str = SUMMARY
) -> HistoryClient:
    numbers = iter(range(1, 100))
    provider = ScriptedProvider(["answer 1", "answer 2", summary, "answer 3", "answer 4"])
    engine = make_engine(store, provider, clock=Clock(), new_id=lambda: f"id-{next(numbers)}")
    return HistoryClient(store, engine, provider, history)


async def compact(client: HistoryClient) -> HistoryClient:
    """Two turns, then a request for a summary; return the client of that request."""
    await client.ask("one")
    await client.ask("two")
    side = ClientHistory(client="test", family=client.history.family, side="compaction")
    other = client.fork(side)
    other.messages.append(user("Summarise."))
    await other.request()
    return other


SESSION = ClientHistory(client="test", family="test:a")
NO_SESSION = ClientHistory(client="test")


@pytest.mark.parametrize("history", [SESSION, NO_SESSION])
async def test_a_message_with_the_summary_continues(
    store: MemoryStore, history: ClientHistory
) -> None:
    client = make_client(store, history)
    await compact(client)
    main = await client.stored()
    client.messages = [user(f"Summary:\n\n{SUMMARY.replace(' ', '  ')}"), reply("Thanks.")]
    await client.ask("three")
    stored = await client.stored()
    assert stored.parent == Branch(conversation=main.id, sequence=4, kind="compaction")
    assert stored.family_key == main.family_key
    assert len(stored.messages) == 4


async def test_the_summary_can_be_after_messages_that_stay(store: MemoryStore) -> None:
    client = make_client(store, SESSION)
    await compact(client)
    main = client.conversation
    client.messages = [user("one"), user(f"Summary: {SUMMARY}")]
    await client.request()
    stored = await client.stored()
    assert stored.parent == Branch(conversation=main or "", sequence=4, kind="compaction")
    assert [one.text for one in (await store.load(main or "")).messages][:2] == ["one", "answer 1"]


async def test_a_rewind_after_a_compaction_is_no_compaction(store: MemoryStore) -> None:
    client = make_client(store, SESSION)
    await compact(client)
    client.messages = [user(f"Summary: {SUMMARY}")]
    await client.request()
    continued = client.conversation
    client.messages.append(reply("answer 3"))
    await client.ask("three")
    client.messages[-2:] = [user("edited")]
    await client.request()
    assert client.conversation == continued


@pytest.mark.parametrize(
    ("summary", "message"),
    [
        ("Done.", "Done. What now?"),
        (SUMMARY, "The user wants a parser."),
        (f"<analysis>{SUMMARY}</analysis><summary> </summary>", SUMMARY),
    ],
)
async def test_without_a_session_other_texts_start_a_new_conversation(
    store: MemoryStore, summary: str, message: str
) -> None:
    client = make_client(store, NO_SESSION, summary=summary)
    await compact(client)
    client.messages = [user(message)]
    await client.request()
    assert (await client.stored()).parent is None


async def test_a_short_summary_is_enough_in_a_session(store: MemoryStore) -> None:
    client = make_client(store, SESSION, summary="Done.")
    await compact(client)
    client.messages = [user("Summary: Done."), user("three")]
    await client.request()
    parent = (await client.stored()).parent
    assert parent is not None
    assert parent.kind == "compaction"


async def test_other_clients_and_deleted_conversations_are_not_continued(
    store: MemoryStore,
) -> None:
    client = make_client(store, NO_SESSION)
    await compact(client)
    await store.delete(client.conversation or "")
    client.messages = [user(f"Summary: {SUMMARY}")]
    await client.request()
    assert (await client.stored()).parent is None
    other = client.fork(ClientHistory(client="other"))
    other.messages = [user(f"Summary: {SUMMARY} Go.")]
    await other.request()
    assert (await other.stored()).parent is None


async def test_a_request_without_the_history_is_linked_to_its_session(store: MemoryStore) -> None:
    client = make_client(store, SESSION)
    await client.ask("one")
    side = client.fork(ClientHistory(client="test", family="test:a", side="compaction"))
    side.messages = [user("Here is the conversation so far: one, answer 1")]
    await side.request()
    stored = await side.stored()
    assert stored.parent == Branch(conversation=client.conversation or "", sequence=2, kind="side")
    assert stored.is_side


@pytest.mark.parametrize("history", [SESSION, NO_SESSION])
async def test_a_second_compaction_has_only_its_own_messages(
    store: MemoryStore, history: ClientHistory
) -> None:
    client = make_client(store, history)
    await compact(client)
    client.messages = [user(f"Summary: {SUMMARY}")]
    await client.ask("three")
    continued = client.conversation
    side = client.fork(ClientHistory(client="test", family=history.family, side="compaction"))
    side.messages.append(user("Summarise."))
    await side.request()
    stored = await side.stored()
    assert stored.parent == Branch(conversation=continued or "", sequence=3, kind="side")
    assert await side.stored_texts() == ["Summarise.", "answer 4"]

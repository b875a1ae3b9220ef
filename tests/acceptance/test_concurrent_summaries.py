"""Several commands that summarise one conversation at the same time, or are killed at it."""

import asyncio
from datetime import UTC, datetime

import pytest
from tests.fake_provider import Request

from cllm.core.conversation import StoredConversation
from cllm.core.ports import Store
from cllm.stores.json.store import JsonFileStore
from cllm.stores.sqlite.store import SqliteStore

LONG = "word " * 165
WINDOW = {"strategy": "summarise", "max_tokens": 1000, "summary_tokens": 100}


def is_summary(request: Request) -> bool:
    return str(request.messages[-1]["content"]).startswith("Summarise our conversation")


@pytest.fixture(params=["json", "sqlite"], autouse=True)
def stored(request, settings, home):
    """Conversations in a folder of files, or in a database."""
    store = {} if request.param == "json" else {"store": f"sqlite:{home.path / 'saved.db'}"}
    settings(window=WINDOW, default_system_message="Be brief.", **store)
    return request.param


@pytest.fixture
def load_conversation(stored, home):
    """The conversation as it is stored."""

    async def load() -> StoredConversation:
        store: Store = JsonFileStore(home.file("demo").parent, clock=_now)
        if stored == "sqlite":
            store = SqliteStore(home.path / "saved.db", clock=_now)
        try:
            return await store.load("demo")
        finally:
            await store.close()

    return lambda: asyncio.run(load())


def _now() -> datetime:
    return datetime.now(UTC)


@pytest.fixture
def full(provider, cllm):
    """A conversation whose next turn needs a summary; returns the number of requests so far."""
    for number in range(5):
        provider.queue_reply(f"Fine, {number}.", usage=None)
        cllm(f"Question {number}. {LONG}", "--conversation", "demo").succeeded()
    assert not any(map(is_summary, provider.requests))
    return len(provider.requests)


def test_one_of_two_concurrent_summaries_is_saved_and_both_turns_are(
    full, provider, cllm, load_conversation
):
    gates = [
        provider.queue_held_reply(f"Half a summary {n}", " and the rest", at=1, usage=None)
        for n in range(2)
    ]
    provider.queue_reply("Fine.", usage=None)
    provider.queue_reply("Fine too.", usage=None)
    running = [
        cllm.start(f"Question {name}. {LONG * 2}", "--conversation", "demo") for name in ("A", "B")
    ]
    provider.wait_for(full + 2)
    assert all(map(is_summary, provider.requests[full:]))

    for gate in gates:
        gate.open()
    done = [one.finish() for one in running]

    assert [one.code for one in done] == [0, 0], [one.report() for one in done]
    errors = "".join(one.err for one in done)
    assert errors.count("summarised to fit the context window") == 1
    assert errors.count("The summary failed and the conversation is unchanged.") == 1
    found = load_conversation()
    assert len(found.messages) == 15
    assert found.summary.before is None
    assert found.summary.text.startswith("Half a summary")


def test_a_kill_during_a_summary_changes_nothing(full, provider, cllm, load_conversation):
    before = load_conversation()
    provider.queue_held_reply("Half a summary", " and the rest", at=1, usage=None)

    running = cllm.start(f"Question 5. {LONG * 2}", "--conversation", "demo")
    provider.wait_for(full + 1)
    assert is_summary(provider.requests[-1])
    running.process.kill()
    running.finish()

    assert load_conversation() == before
    provider.queue_reply("A summary.", usage=None)
    provider.queue_reply("Fine.", usage=None)
    cllm(f"Question 5. {LONG * 2}", "--conversation", "demo").succeeded()
    found = load_conversation()
    assert found.summary.text == "A summary."
    assert len(found.messages) == 13

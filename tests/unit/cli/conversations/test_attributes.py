"""Pins of a conversation; `tests/acceptance/test_conversations_command.py` runs the commands."""

from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from cllm.cli.conversations.attributes import _pin, _unpin
from cllm.cli.inputs import OptionError
from cllm.core.conversation import StoredConversation, Turn
from cllm.core.message import plain_message
from cllm.stores.memory import MemoryStore

THEN = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
async def app():
    store = MemoryStore(clock=lambda: THEN)
    messages = (plain_message("user", "One"), plain_message("assistant", "Two"))
    turn = Turn(id="t", place="t", state="complete", messages=messages, started_at=THEN)
    await store.add(StoredConversation(id="cats", created_at=THEN, updated_at=THEN, turns=(turn,)))
    return SimpleNamespace(store=store)


async def test_without_numbers_all_pins_are_removed(app):
    assert (await _pin(app, "cats", (1, 2))).pins == (1, 2)
    assert (await _pin(app, "cats", ())).pins == (1, 2)
    assert await _unpin(app, "cats", ()) == (1, 2)
    assert (await _pin(app, "cats", ())).pins == ()


async def test_a_number_that_is_not_pinned_is_refused(app):
    with pytest.raises(OptionError, match=r"Message 2 is not pinned\. Pinned: none\."):
        await _unpin(app, "cats", (2,))

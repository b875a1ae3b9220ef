import pytest

from cllm.core.errors import (
    ConversationBusyError,
    ConversationExistsError,
    ConversationNotFoundError,
    SequenceNotFoundError,
)
from cllm.core.ports import Changes, NewConversation
from cllm.stores.postgres.store import PostgresStore
from cllm.testing.store_harness import say, say_again, start, texts


async def test_an_edit_of_the_head_keeps_the_turns(store: PostgresStore):
    await say(store, "demo", "t1")
    await store.update("demo", Changes(title="Cats"))
    loaded = await store.load("demo")
    assert (loaded.title, texts(loaded)) == ("Cats", ["Hello", "Hello?"])


async def test_deleting_messages_truncates_a_turn(store: PostgresStore):
    await say(store, "demo", "t1", "one")
    await say(store, "demo", "t2", "two")
    await store.delete_from("demo", 4)
    loaded = await store.load("demo")
    assert texts(loaded) == ["one", "one?", "two"]
    assert [turn.state for turn in loaded.turns] == ["complete", "incomplete"]
    with pytest.raises(SequenceNotFoundError):
        await store.delete_from("demo", 4)


async def test_choosing_a_variant_moves_the_turns(store: PostgresStore):
    await say(store, "demo", "t1")
    await say_again(store, "demo", "t2", place="t1", text="other")
    await store.choose_variant("demo", "t1")
    loaded = await store.load("demo")
    assert [turn.id for turn in loaded.turns] == ["t1"]
    assert [turn.id for turn in loaded.variants] == ["t2"]


async def test_a_running_turn_blocks_edits(store: PostgresStore):
    await say(store, "demo", "t1")
    lease = await store.begin_turn("demo", start("t2"))
    with pytest.raises(ConversationBusyError):
        await store.update("demo", Changes(title="Cats"))
    await store.drop_turn(lease)
    await store.delete("demo")
    with pytest.raises(ConversationNotFoundError):
        await store.update("demo", Changes(title="Cats"))


async def test_a_hidden_first_turn_reserves_its_id(store: PostgresStore):
    new = NewConversation(id="demo", name="cats")
    lease = await store.begin_turn("demo", start("t1", visible=False), create=new)
    with pytest.raises(ConversationBusyError):
        await store.create(NewConversation(id="cats"))
    await store.drop_turn(lease)
    await store.create(NewConversation(id="cats"))
    with pytest.raises(ConversationExistsError):
        await store.create(new)

"""Messages of a request that its stored conversation already has."""

from datetime import UTC, datetime

import pytest

from cllm.core.conversation import LOCAL_OWNER
from cllm.core.errors import ConversationNotFoundError
from cllm.core.message import plain_message
from cllm.core.ports import NewConversation
from cllm.server.turns.headers import ContinueConversation
from cllm.server.turns.repeated_messages import drop_repeated, has_whole_history
from cllm.stores.memory import MemoryStore
from cllm.testing.store_contract import answered, start

USER, MORE = plain_message("user", "Hello."), plain_message("user", "More?")
REPLY, OTHER = plain_message("assistant", "Hi."), plain_message("assistant", "Bye.")
CATS = ContinueConversation("cats")


@pytest.fixture
async def store():
    """Return a store with the conversation `cats`: a question and its reply."""
    store = MemoryStore(clock=lambda: datetime.now(UTC))
    await store.create(NewConversation(id="cats"))
    lease = await store.begin_turn("cats", start("t1", messages=(USER,)))
    await store.finish_turn(lease, answered(lease, REPLY.text))
    return store


@pytest.mark.parametrize(
    ("mode", "messages", "is_whole"),
    [
        ("auto", (USER, REPLY, MORE), True),
        ("auto", (USER, MORE), False),
        ("auto", (REPLY, MORE), False),
        ("full", (MORE,), True),
        ("append", (USER, REPLY, MORE), False),
        ("full", (), False),
    ],
)
def test_a_history_is_whole_if_it_starts_with_a_user_message_and_has_a_reply(
    mode, messages, is_whole
):
    assert has_whole_history(mode, messages) is is_whole


@pytest.mark.parametrize(
    ("history", "messages", "new"),
    [
        ("auto", (REPLY, MORE), (MORE,)),
        ("append", (REPLY, MORE), (MORE,)),
        ("full", (REPLY, MORE), (REPLY, MORE)),
        ("auto", (OTHER, MORE), (OTHER, MORE)),
        ("auto", (MORE,), (MORE,)),
        ("auto", (USER, MORE), (USER, MORE)),
    ],
    ids=["reply", "append", "full", "other reply", "one message", "user messages"],
)
async def test_messages_that_repeat_the_end_of_the_conversation_are_dropped(
    store, history, messages, new
):
    assert await drop_repeated(store, CATS, LOCAL_OWNER, messages, history) == new


async def test_only_a_named_conversation_may_be_unknown(store):
    messages = (REPLY, MORE)
    named = ContinueConversation("dogs", is_name=True)

    assert await drop_repeated(store, named, LOCAL_OWNER, messages, "auto") == messages
    with pytest.raises(ConversationNotFoundError):
        await drop_repeated(store, ContinueConversation("dogs"), LOCAL_OWNER, messages, "auto")


async def test_a_turn_that_is_sent_again_with_tool_results_is_dropped_from_a_longer_conversation(
    store,
):
    messages = (USER, REPLY, plain_message("tool", "4"))

    assert await drop_repeated(store, CATS, LOCAL_OWNER, messages, "auto") == messages
    lease = await store.begin_turn("cats", start("t2", messages=(USER,)))
    await store.finish_turn(lease, answered(lease, REPLY.text))
    assert await drop_repeated(store, CATS, LOCAL_OWNER, messages, "auto") == messages[2:]
    assert await drop_repeated(store, CATS, LOCAL_OWNER, messages, "append") == messages

"""A manager with a store shows the same window as one in memory."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import cllm
from cllm import ConversationManager

pytestmark = pytest.mark.usefixtures("empty_home")


def facts(manager: ConversationManager) -> tuple[object, ...]:
    return (
        manager.get_messages(),
        manager.get_message_count(),
        manager.get_turn_count(),
        manager.was_trimmed(),
    )


@settings(max_examples=60, deadline=None)
@given(st.text("ua", max_size=25), st.integers(1, 4))
def test_a_store_and_memory_show_the_same_messages(roles, limit):
    store = cllm.open_store("memory:")
    plain = ConversationManager(limit)
    stored = ConversationManager(limit, store=store, conversation="demo")
    for number, role in enumerate(roles):
        for manager in (plain, stored):
            add = manager.add_user_message if role == "u" else manager.add_assistant_message
            add(f"{number}")
        assert facts(stored) == facts(plain)
    again = ConversationManager(limit, store=store, conversation="demo")

    assert facts(again) == facts(plain)
    if roles:
        assert store.blocking.load("demo").message_count == len(roles)


def test_only_the_window_of_a_long_conversation_is_loaded():
    store = cllm.open_store("memory:")
    manager = ConversationManager(2, store=store, conversation="demo")
    for number in range(30):
        manager.add_user_message(f"question {number}")
        manager.add_assistant_message(f"answer {number}")

    tail = store.blocking.load("demo", tail="window")

    assert tail.message_count == 60
    assert sum(len(turn.messages) for turn in tail.turns) <= 6


def test_max_turns_can_be_changed_later():
    manager = ConversationManager(5, store="memory:")
    for number in range(5):
        manager.add_user_message(f"question {number}")
        manager.add_assistant_message(f"answer {number}")
    manager.max_turns = 2
    manager.add_user_message("and?")
    manager.add_assistant_message("yes")

    assert manager.get_turn_count() == 2
    assert manager.was_trimmed()


def test_was_trimmed_is_right_with_pins():
    store = cllm.open_store("memory:")
    manager = ConversationManager(1, store=store, conversation="demo")
    manager.add_user_message("My name is Alice.")
    manager.add_assistant_message("Hello.")
    cllm.Conversation("demo", store=store).pin(1)
    manager.add_user_message("Two?")
    manager.add_assistant_message("Two.")
    assert manager.get_messages()[0]["content"] == "My name is Alice."
    assert not manager.was_trimmed()

    manager.add_user_message("Three?")
    manager.add_assistant_message("Three.")

    assert [message["content"] for message in manager.get_messages()] == [
        *("My name is Alice.", "Hello."),
        *("Three?", "Three."),
    ]
    assert manager.was_trimmed()


def test_messages_above_the_context_window_are_still_shown():
    manager = ConversationManager(store="memory:", model="local/smollm2-135m")
    manager.add_user_message("word " * 50_000)

    assert manager.get_message_count() == 1

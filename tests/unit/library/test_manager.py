"""ConversationManager in memory: messages, trimming and errors."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cllm import DEFAULT_MAX_TURNS, DEFAULT_SYSTEM_PROMPT, ConversationManager


def manager_with(manager: ConversationManager, turns: int) -> ConversationManager:
    for number in range(turns):
        manager.add_user_message(f"question {number}")
        manager.add_assistant_message(f"answer {number}")
    return manager


def contents(manager: ConversationManager) -> list[str]:
    return [message["content"] for message in manager.get_messages()]


def test_a_new_manager_is_empty_and_has_the_defaults():
    manager = ConversationManager()

    assert manager.messages == []
    assert manager.max_turns == DEFAULT_MAX_TURNS == 10
    assert manager.system_prompt == DEFAULT_SYSTEM_PROMPT
    assert manager._last_trimmed is False
    assert (manager.get_message_count(), manager.get_turn_count()) == (0, 0)


def test_the_default_prompt_is_one_line_with_single_spaces():
    assert DEFAULT_SYSTEM_PROMPT == (
        "You are a helpful AI assistant powered by Claude. Be concise, accurate, and friendly in "
        "your responses."
    )


def test_messages_have_role_and_content():
    manager = manager_with(ConversationManager(), 1)

    assert manager.get_messages() == [
        {"role": "user", "content": "question 0"},
        {"role": "assistant", "content": "answer 0"},
    ]


@pytest.mark.parametrize("message", ["", " ", "\n\t "])
def test_an_empty_message_is_refused_for_both_roles(message):
    manager = ConversationManager()

    for add in (manager.add_user_message, manager.add_assistant_message):
        with pytest.raises(ValueError, match="must not be empty"):
            add(message)
    assert manager.get_messages() == []


def test_white_space_around_a_message_stays():
    manager = ConversationManager()
    manager.add_user_message("  hello\n")

    assert contents(manager) == ["  hello\n"]


def test_size_is_never_refused():
    manager = ConversationManager()
    manager.add_user_message("x" * 1_000_000)

    assert manager.get_message_count() == 1


def test_only_answered_turns_are_counted():
    manager = manager_with(ConversationManager(), 2)
    manager.add_user_message("and?")

    assert (manager.get_turn_count(), manager.get_message_count()) == (2, 5)


def test_nothing_is_dropped_at_max_turns():
    manager = manager_with(ConversationManager(max_turns=3), 3)

    assert manager.get_turn_count() == 3
    assert not manager.was_trimmed()


def test_the_oldest_turn_is_dropped_when_one_more_is_completed():
    manager = manager_with(ConversationManager(max_turns=3), 3)

    manager.add_user_message("question 3")
    assert manager.get_message_count() == 7
    manager.add_assistant_message("answer 3")

    assert contents(manager)[0] == "question 1"
    assert manager.get_turn_count() == 3
    assert manager.was_trimmed()
    assert manager._last_trimmed is True


def test_was_trimmed_is_about_the_last_completed_turn():
    manager = manager_with(ConversationManager(max_turns=1), 2)
    assert manager.was_trimmed()

    manager.add_user_message("and?")
    assert manager.was_trimmed()
    manager.clear()
    manager_with(manager, 1)

    assert not manager.was_trimmed()


def test_consecutive_user_messages_stay_and_are_dropped_together():
    manager = ConversationManager(max_turns=1)
    for word in ("one", "two", "three"):
        manager.add_user_message(word)
    manager.add_assistant_message("yes")
    assert contents(manager) == ["one", "two", "three", "yes"]

    manager_with(manager, 1)

    assert contents(manager) == ["question 0", "answer 0"]


def test_consecutive_answers_are_one_turn():
    manager = manager_with(ConversationManager(max_turns=1), 1)
    manager.add_assistant_message("and another")

    assert contents(manager) == ["question 0", "answer 0", "and another"]
    assert manager.get_turn_count() == 1
    assert not manager.was_trimmed()


def test_clear_keeps_the_system_prompt_and_works_on_an_empty_manager():
    manager = ConversationManager(system_prompt="Custom")
    manager.clear()
    manager_with(manager, 12)

    manager.clear()

    assert (manager.messages, manager.get_turn_count()) == ([], 0)
    assert manager.system_prompt == "Custom"
    assert not manager.was_trimmed()


def test_the_prompt_is_never_among_the_messages():
    manager = manager_with(ConversationManager(system_prompt="Custom"), 2)

    assert "Custom" not in contents(manager)


def test_get_messages_returns_a_copy():
    manager = manager_with(ConversationManager(), 1)

    manager.get_messages()[0]["content"] = "changed"
    manager.get_messages().clear()

    assert contents(manager)[0] == "question 0"


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_below_one_is_refused(limit):
    with pytest.raises(ValueError, match="max_turns"):
        ConversationManager(max_turns=limit)


@given(st.lists(st.sampled_from("ua"), max_size=60), st.integers(1, 5))
def test_there_are_never_orphans_or_more_turns_than_max_turns(roles, limit):
    manager = ConversationManager(max_turns=limit)
    for role in roles:
        (manager.add_user_message if role == "u" else manager.add_assistant_message)("x")
        remaining = [message["role"] for message in manager.get_messages()]
        if "u" in roles[:1] and remaining:
            assert remaining[0] == "user"
        assert manager.get_turn_count() <= limit
        assert len(remaining) == manager.get_message_count()

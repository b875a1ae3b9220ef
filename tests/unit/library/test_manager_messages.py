"""`messages` of a manager in memory is a plain list that can be changed."""

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cllm import ConversationManager

USER = {"role": "user", "content": "q"}
ASSISTANT = {"role": "assistant", "content": "a"}


def roles(manager: ConversationManager) -> str:
    return "".join(message["role"][0] for message in manager.messages)


def test_appended_messages_count():
    manager = ConversationManager()
    manager.add_user_message("a")
    manager.messages.append({"role": "assistant", "content": "b"})

    assert (manager.get_message_count(), manager.get_turn_count()) == (2, 1)


def test_the_list_can_be_replaced():
    manager = ConversationManager()
    mine = [USER, ASSISTANT, USER]

    manager.messages = mine

    assert manager.messages is mine
    assert (manager.get_message_count(), manager.get_turn_count()) == (3, 1)
    manager.add_assistant_message("yes")
    assert manager.get_turn_count() == 2


def test_a_replaced_list_is_trimmed_by_the_next_turn():
    manager = ConversationManager(max_turns=2)
    manager.messages = [copy.copy(one) for one in (USER, ASSISTANT) * 5]
    assert manager.get_turn_count() == 5

    manager.add_user_message("newest")
    manager.add_assistant_message("yes")

    assert roles(manager) == "uaua"
    assert manager.messages[2]["content"] == "newest"
    assert manager.was_trimmed()


def test_clear_does_not_change_the_callers_list():
    manager = ConversationManager()
    mine = [USER, ASSISTANT]
    manager.messages = mine

    manager.clear()

    assert (manager.messages, mine) == ([], [USER, ASSISTANT])


def test_tool_calls_belong_to_their_turn():
    manager = ConversationManager(max_turns=1)
    call = {"id": "1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    manager.messages += [
        USER,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "seen"},
        ASSISTANT,
    ]
    assert manager.get_turn_count() == 1

    manager.add_user_message("and?")
    manager.add_assistant_message("yes")

    assert roles(manager) == "ua"


@pytest.mark.parametrize("wrong", ["hello", {"content": "x"}, {"role": "narrator"}, 7])
def test_an_invalid_message_error_has_its_index(wrong):
    manager = ConversationManager()
    with pytest.raises(ValueError, match=r"messages\[1\]"):
        manager.messages = [USER, wrong]
    assert manager.messages == []

    manager.messages.extend([USER, wrong])
    for look in (manager.get_turn_count, lambda: manager.ask("and?")):
        with pytest.raises(ValueError, match=r"messages\[1\]"):
            look()


@pytest.mark.parametrize("wrong", [None, "hello", ({"role": "user"},)])
def test_only_a_list_can_replace_the_messages(wrong):
    with pytest.raises(TypeError, match="list"):
        ConversationManager().messages = wrong


@pytest.mark.usefixtures("empty_home")
def test_stored_messages_cannot_be_replaced():
    manager = ConversationManager(store="memory:")

    with pytest.raises(AttributeError, match="store"):
        manager.messages = []


def test_get_messages_returns_a_deep_copy():
    manager = ConversationManager()
    manager.messages = [{"role": "user", "content": [{"type": "text", "text": "q"}]}]

    manager.get_messages()[0]["content"][0]["text"] = "changed"

    assert manager.messages[0]["content"][0]["text"] == "q"


@given(st.text("uat", max_size=40), st.integers(1, 4))
def test_counts_always_match_the_list(role_list, limit):
    added, assigned = ConversationManager(limit), ConversationManager(limit)
    names = {"u": "user", "a": "assistant", "t": "tool"}
    for role in role_list:
        if role == "t":
            added.messages.append({"role": "tool", "content": "x"})
        else:
            (added.add_user_message if role == "u" else added.add_assistant_message)("x")
        assigned.messages = [{"role": names[one], "content": "x"} for one in roles(added)]

        assert added.get_turn_count() == assigned.get_turn_count() <= limit


class CountedList(list[dict[str, str]]):
    """A list that counts how often an item is read."""

    reads = 0

    def __getitem__(self, index):
        self.reads += 1
        return super().__getitem__(index)


def test_a_new_turn_in_a_long_history_reads_only_the_ends():
    manager = ConversationManager(max_turns=1000)
    messages = CountedList([USER, ASSISTANT] * 1000)
    manager.messages = messages
    manager.add_user_message("first")
    messages.reads = 0

    for _ in range(10):
        manager.add_assistant_message("answer")
        manager.add_user_message("next")

    assert len(messages) == 2001
    assert messages.reads < 10 * 20


def test_a_list_that_the_caller_cut_is_counted_again():
    manager = ConversationManager(max_turns=2)
    for _ in range(2):
        manager.add_user_message("q")
        manager.add_assistant_message("a")
    del manager.messages[:2]

    manager.add_user_message("q")
    manager.add_assistant_message("a")

    assert (roles(manager), manager.was_trimmed()) == ("uaua", False)

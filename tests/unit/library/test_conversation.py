"""Methods of a conversation that call no model, on a store in memory."""

import json

import pytest

import cllm
from cllm.core.errors import ConversationExistsError, ConversationNotFoundError, UsageError

pytestmark = pytest.mark.usefixtures("empty_home")


@pytest.fixture
def conversation():
    conversation = cllm.Conversation("demo", store="memory:", system="Be brief.")
    for number in range(3):
        conversation.add("user", f"question {number}")
        conversation.add("assistant", f"answer {number}")
    return conversation


def texts(conversation: cllm.Conversation) -> list[str]:
    return [message.text for message in conversation.messages()]


def test_nothing_is_stored_before_the_first_message():
    conversation = cllm.Conversation("demo", store="memory:")

    assert not conversation.exists()
    conversation.add("user", "Hello")
    assert conversation.exists()


def test_create_stores_an_empty_conversation_once():
    conversation = cllm.Conversation("demo", store="memory:", system="Be brief.")
    conversation.create()

    assert texts(conversation) == []
    assert conversation.load().messages[0].text == "Be brief."
    with pytest.raises(ConversationExistsError):
        conversation.create()


def test_undo_deletes_the_last_turn(conversation):
    removed = conversation.undo()

    assert [message.text for message in removed] == ["question 2", "answer 2"]
    assert texts(conversation) == ["question 0", "answer 0", "question 1", "answer 1"]


@pytest.mark.parametrize("method", ["undo", "regenerate"])
def test_a_conversation_without_messages_has_nothing_to_undo_or_regenerate(method):
    conversation = cllm.Conversation("demo", store="memory:")
    conversation.create()

    with pytest.raises(UsageError, match="'demo' has no messages yet"):
        getattr(conversation, method)()


def test_delete_removes_the_conversation(conversation):
    conversation.delete()

    with pytest.raises(ConversationNotFoundError):
        conversation.load()


def test_a_branch_has_the_messages_up_to_a_number_and_another_prompt(conversation):
    branch = conversation.branch("other", at=2, system="Be long.")

    assert texts(branch) == ["question 0", "answer 0"]
    assert branch.load().messages[0].text == "Be long."
    assert conversation.load().messages[0].text == "Be brief."


def test_pins_are_added_and_removed(conversation):
    assert conversation.pin(3, 1) == (1, 3)
    assert conversation.pin(1) == (1, 3)
    assert conversation.unpin(1, 5) == (3,)


def test_search_finds_messages_with_all_words(conversation):
    assert [hit.sequence for hit in conversation.search("answer 1").items] == [4]
    assert conversation.search("answer", limit=2).total == 3
    assert conversation.search("nothing").total == 0


def test_an_export_can_be_imported_under_another_id(conversation):
    copy = cllm.Conversation("copy", store="memory:")
    copy.import_json(conversation.export())

    assert texts(copy) == texts(conversation)
    assert json.loads(copy.export())["id"] == "copy"
    with pytest.raises(ConversationExistsError):
        copy.import_json(conversation.export())


def test_markdown_contains_the_messages(conversation):
    assert "question 2" in conversation.export("markdown")


def test_a_conversation_without_a_summary_has_none_to_undo(conversation):
    with pytest.raises(UsageError, match="no summary to undo"):
        conversation.undo_compact()

"""The state of a chat, with a store in memory."""

import io

import pytest

from cllm.app import App
from cllm.core.errors import ConversationNotFoundError, UsageError
from cllm.core.message import plain_message
from cllm.core.notice import Notice
from cllm.core.ports import NewConversation
from cllm.engine.prompt_builder import TRIMMED_CODE
from cllm.history.system_prompt import GivenPrompt
from cllm.repl.chat import Chat, ChatOptions
from cllm.repl.screen import Screen
from cllm.settings.load import CommandLine, Environment, load_settings


@pytest.fixture
def chat(tmp_path):
    env = Environment(home=tmp_path, directory=tmp_path, environment={"OPENAI_API_KEY": "sk-1"})
    line = CommandLine(values={"model": "openai/gpt-test", "store": "memory:"})
    screen = Screen(io.StringIO(), io.StringIO(), environment={})
    return Chat(App(load_settings(env, line)), screen, ChatOptions(), attach=lambda _: ())


def test_a_new_chat_has_an_automatic_id_and_the_configured_model(chat):
    before = chat.ref
    chat.named_model = "openai/other"
    chat.new()

    assert chat.ref != before
    assert chat.model == "openai/other"
    assert chat.conversation is None


def test_a_notice_is_new_once_except_those_about_the_window(chat):
    old = Notice(code="old", message="Old.")
    trimmed = Notice(code=TRIMMED_CODE, message="Trimmed.")

    assert chat.new_notices([old, trimmed]) == (old, trimmed)
    assert chat.new_notices([old, trimmed]) == (trimmed,)


async def test_an_unknown_id_starts_a_conversation_with_that_id(chat):
    with pytest.raises(ConversationNotFoundError):
        await chat.open("cats")

    assert await chat.open_or_start("cats") == ()
    assert (chat.ref, chat.conversation) == ("cats", None)


async def test_a_stored_conversation_has_its_own_model_unless_the_user_names_one(chat):
    await chat.app.store.create(NewConversation(id="cats", model="openai/gpt-old"))

    await chat.open_or_start("cats")
    assert chat.model == "openai/gpt-test"
    await chat.open("cats")

    assert chat.model == "openai/gpt-old"


def test_a_request_has_attachments_and_commands(chat):
    chat.exec_commands = ("date",)
    chat.system = GivenPrompt(text="Be brief.", source="--system", explicit=True)

    request = chat.request("Hello")

    assert request.input.messages == (plain_message("user", "Hello"),)
    assert [command.command for command in request.input.context] == ["date"]
    assert request.input.system.text == "Be brief."
    assert request.storage.create.id == chat.ref


def test_without_messages_there_is_no_last_turn(chat):
    with pytest.raises(UsageError, match="no messages yet"):
        chat.last_turn()
    with pytest.raises(UsageError, match="no messages yet"):
        chat.require_conversation()


async def test_a_saved_conversation_is_not_saved_again(chat):
    with pytest.raises(UsageError, match="already saved"):
        await chat.save_to_store("copy")

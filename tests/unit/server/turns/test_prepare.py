"""Preparing a turn: model, conversation, system prompt and messages of a request."""

import pytest
from tests.server_app import open_server_app

from cllm.core.conversation import LOCAL_OWNER
from cllm.core.errors import ConversationNotFoundError, ModelNotFoundError
from cllm.core.message import plain_message
from cllm.core.ports import Changes, NewConversation
from cllm.core.prompt import Prompt
from cllm.core.secret import CallersKey, Secret
from cllm.engine.request import TurnInput
from cllm.history.system_prompt import GivenPrompt, split_messages
from cllm.server.http.errors import ApiError
from cllm.server.state import Caller
from cllm.server.turns.headers import (
    NO_HEADERS,
    START_CONVERSATION,
    ContinueConversation,
    RequestHeaders,
)
from cllm.server.turns.prepare import (
    prepare_turn,
    select_engine,
    set_system_prompt,
)

MODEL = "openai/gpt-test"
SYSTEM, USER = plain_message("system", "Be brief."), plain_message("user", "Hello.")
SETTINGS = (
    "providers: {mine: {type: openai, api_base: 'http://127.0.0.1:1/v1', models: [small]}}\n"
    "server: {default_provider: openai, routes: {fast: mine/small, tiny: little}}\n"
    "aliases: {fast: openai/hidden-by-the-route, little: mine/small, small: openai/other}\n"
)
ANTHROPIC_KEY = CallersKey(secret=Secret("sk-ant-0123456789"), token=False)


@pytest.fixture
async def server(tmp_path):
    async with open_server_app(tmp_path, SETTINGS) as server:
        yield server


def make_prompt(*messages, **fields) -> Prompt:
    return Prompt(model=MODEL, messages=messages, **fields)


class TestModes:
    async def test_a_stateless_turn_is_not_saved(self, server):
        prompt = make_prompt(SYSTEM, USER)

        prepared = await prepare_turn(prompt, NO_HEADERS, Caller(), server.state)

        assert prepared.store is None
        assert prepared.public_id is None
        assert prepared.request.input.messages == (SYSTEM, USER)
        assert select_engine(prepared, server.state) is server.state.engine

    async def test_a_new_conversation_saves_no_system_message(self, server):
        headers = RequestHeaders(mode=START_CONVERSATION)

        prepared = await prepare_turn(make_prompt(SYSTEM, USER), headers, Caller(), server.state)

        assert prepared.store is server.state.store
        assert prepared.request.storage.ref == prepared.public_id
        assert prepared.request.input.messages == (USER,)

    @pytest.mark.parametrize(("on_conflict", "waits"), [("queue", True), ("reject", False)])
    async def test_a_turn_that_starts_a_named_conversation_can_be_queued(
        self, server, on_conflict, waits
    ):
        """Another request can start it at the same moment."""
        mode = ContinueConversation("cats", is_name=True)
        headers = RequestHeaders(mode=mode, on_conflict=on_conflict)

        prepared = await prepare_turn(make_prompt(USER), headers, Caller(), server.state)

        seconds = server.state.settings.limits.queue_seconds
        assert prepared.request.storage.wait == (seconds if waits else 0)

    @pytest.mark.parametrize("mode", [NO_HEADERS.mode, START_CONVERSATION])
    async def test_a_request_without_messages_is_rejected(self, server, mode):
        with pytest.raises(ApiError) as raised:
            await prepare_turn(make_prompt(), RequestHeaders(mode=mode), Caller(), server.state)

        assert raised.value.code == "empty_messages_array"

    async def test_a_model_file_of_a_stored_conversation_is_rejected(self, server):
        ref = server.state.new_id()
        await server.state.store.create(NewConversation(id=ref, model="./x.gguf"))
        keep = RequestHeaders(mode=ContinueConversation(ref), switches_model=False)

        with pytest.raises(ModelNotFoundError, match="model file"):
            await prepare_turn(make_prompt(USER), keep, Caller(), server.state)

        own = RequestHeaders(mode=ContinueConversation(ref))
        prepared = await prepare_turn(make_prompt(USER), own, Caller(), server.state)
        assert prepared.request.target.uses_own_model

    async def test_without_messages_the_last_reply_is_regenerated(self, server):
        conversation = await server.create_conversation()
        turn = await server.add_turn(conversation, "Hello.", "Hi.")
        headers = RequestHeaders(mode=ContinueConversation(conversation))

        prepared = await prepare_turn(make_prompt(), headers, Caller(), server.state)

        assert prepared.request.input.messages == turn.messages[:1]
        assert prepared.request.storage.place == turn.place

    async def test_an_empty_conversation_has_no_reply_to_regenerate(self, server):
        headers = RequestHeaders(mode=ContinueConversation(await server.create_conversation()))

        with pytest.raises(ApiError, match="no reply to regenerate"):
            await prepare_turn(make_prompt(), headers, Caller(), server.state)

    async def test_an_archived_conversation_is_not_continued_without_messages(self, server):
        conversation = await server.create_conversation()
        await server.state.store.update(conversation, Changes(archived=True), owner=LOCAL_OWNER)
        headers = RequestHeaders(mode=ContinueConversation(conversation))

        with pytest.raises(ConversationNotFoundError):
            await prepare_turn(make_prompt(), headers, Caller(), server.state)

    async def test_further_system_messages_of_a_continued_conversation_are_ignored(self, server):
        headers = RequestHeaders(mode=ContinueConversation(await server.create_conversation()))
        prompt = make_prompt(SYSTEM, USER, plain_message("system", "Be loud."))

        prepared = await prepare_turn(prompt, headers, Caller(), server.state)

        assert [(notice.code, notice.path) for notice in prepared.notices] == [
            ("system_message_ignored", "messages[2]")
        ]


async def test_a_key_for_anthropic_is_not_used_for_another_provider(server):
    headers = RequestHeaders(callers_key=ANTHROPIC_KEY)

    prepared = await prepare_turn(make_prompt(USER), headers, Caller(), server.state)

    assert prepared.callers_key is None
    assert [notice.code for notice in prepared.notices] == ["key_not_used"]


def test_the_first_message_becomes_the_system_prompt():
    base = TurnInput(messages=(SYSTEM, USER), prefix="Prefix.")

    changed = set_system_prompt(base, split_messages(make_prompt(SYSTEM, USER)))

    assert (changed.system.text, changed.system.source) == ("Be brief.", "messages[0]")
    assert (changed.messages, changed.prefix) == ((USER,), "Prefix.")


def test_a_later_system_message_stays_and_gets_the_prefix():
    base = TurnInput(messages=(USER, SYSTEM), prefix="Prefix.")

    changed = set_system_prompt(base, split_messages(make_prompt(USER, SYSTEM)))

    assert changed.system == GivenPrompt()
    assert changed.messages[0] == USER
    assert changed.messages[1].text.startswith("Prefix.")
    assert changed.messages[1].text.endswith("Be brief.")
    assert changed.prefix is None

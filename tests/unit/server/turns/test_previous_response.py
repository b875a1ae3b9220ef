"""Where the next turn continues a response."""

from pathlib import Path

import pytest
from tests.server_app import ServerApp, open_server_app

from cllm.core.message import plain_message
from cllm.core.ports import Changes, TurnStart
from cllm.server.http.errors import ApiError
from cllm.server.turns.headers import DELETED_RESPONSES, ContinueResponse
from cllm.server.turns.previous_response import (
    ResponseHistory,
    find_history,
    list_deleted,
    load_response,
)
from cllm.wire.responses.ids import ResponseKey


@pytest.fixture
async def server(tmp_path: Path):
    async with open_server_app(tmp_path) as running:
        yield running


async def find(server: ServerApp, conversation: str, turn: str, **mode) -> ResponseHistory:
    key = ResponseKey(conversation=conversation, turn=turn)
    after = ContinueResponse(response=key, **mode)
    return await find_history(after, owner="local", state=server.state)


async def texts(server: ServerApp, conversation: str) -> list[str]:
    return [message.text for message in (await server.load(conversation)).messages]


async def test_the_last_turn_is_appended_to(server: ServerApp):
    conversation = await server.create_conversation()
    await server.add_turn(conversation, "a", "b")
    last = await server.add_turn(conversation, "c", "d")

    assert await find(server, conversation, last.id) == ResponseHistory(
        ref=conversation, message_count=4
    )


async def test_a_failed_turn_after_it_makes_no_difference(server: ServerApp):
    conversation = await server.create_conversation()
    last = await server.add_turn(conversation, "a", "b")
    await server.add_turn(conversation, "c", state="failed")

    assert (await find(server, conversation, last.id)).ref == conversation


async def test_an_older_turn_gets_a_branch(server: ServerApp):
    conversation = await server.create_conversation()
    first = await server.add_turn(conversation, "a", "b")
    await server.add_turn(conversation, "c", "d")

    history = await find(server, conversation, first.id)

    assert history.ref != conversation
    assert await texts(server, history.ref) == ["a", "b"]


async def test_a_turn_before_a_running_one_gets_a_branch(server: ServerApp):
    conversation = await server.create_conversation()
    first = await server.add_turn(conversation, "a", "b")
    start = TurnStart(id=server.state.new_id(), messages=(plain_message("user", "c"),))
    lease = await server.state.store.begin_turn(conversation, start)

    history = await find(server, conversation, first.id)

    assert history.ref != conversation
    await server.state.store.drop_turn(lease)


async def test_a_variant_of_the_last_turn_becomes_the_default(server: ServerApp):
    conversation = await server.create_conversation()
    first = await server.add_turn(conversation, "a", "b")
    await server.add_turn(conversation, "a", "other", place=first.place)

    history = await find(server, conversation, first.id)

    assert history == ResponseHistory(ref=conversation, message_count=2)
    assert await texts(server, conversation) == ["a", "b"]


async def test_an_older_variant_gets_a_branch_with_its_own_path(server: ServerApp):
    conversation = await server.create_conversation()
    first = await server.add_turn(conversation, "a", "b")
    await server.add_turn(conversation, "a", "other", place=first.place)
    await server.add_turn(conversation, "c", "d")

    history = await find(server, conversation, first.id)

    assert await texts(server, history.ref) == ["a", "b"]


async def test_a_turn_that_is_not_saved_reads_the_path(server: ServerApp):
    conversation = await server.create_conversation()
    first = await server.add_turn(conversation, "a", "b")
    await server.add_turn(conversation, "c", "d")

    history = await find(server, conversation, first.id, saves=False)

    assert history.ref == conversation
    assert history.conversation is not None
    assert [message.text for message in history.conversation.messages] == ["a", "b"]


async def test_a_turn_without_a_reply_cannot_be_continued(server: ServerApp):
    conversation = await server.create_conversation()
    failed = await server.add_turn(conversation, "a", state="failed")

    with pytest.raises(ApiError, match="its turn is failed") as error:
        await find(server, conversation, failed.id)
    assert error.value.param == "previous_response_id"


@pytest.mark.parametrize("change", [{"archived": True}, {"metadata": {}}])
async def test_responses_that_are_not_visible(server: ServerApp, change):
    conversation = await server.create_conversation()
    turn = await server.add_turn(conversation, "a", "b")
    if "metadata" in change:
        change = {"metadata": {DELETED_RESPONSES: [turn.id]}}
    key = ResponseKey(conversation=conversation, turn=turn.id)
    assert await load_response(server.state.store, key, owner="local", tail=1) is not None

    await server.state.store.update(conversation, Changes(**change))

    assert await load_response(server.state.store, key, owner="local", tail=1) is None
    with pytest.raises(ApiError) as error:
        await find(server, conversation, turn.id)
    assert error.value.code == "previous_response_not_found"


async def test_another_owner_does_not_see_it(server: ServerApp):
    conversation = await server.create_conversation()
    turn = await server.add_turn(conversation, "a", "b")
    key = ResponseKey(conversation=conversation, turn=turn.id)

    assert await load_response(server.state.store, key, owner="other") is None


async def test_an_invalid_list_of_deleted_responses_is_empty(server: ServerApp):
    conversation = await server.create_conversation()
    changes = Changes(metadata={DELETED_RESPONSES: "all"})
    await server.state.store.update(conversation, changes)

    assert list_deleted(await server.load(conversation)) == ()

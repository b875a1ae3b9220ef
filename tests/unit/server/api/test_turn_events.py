"""The event stream of a turn: saved events, Last-Event-ID, and turns without events."""

import asyncio

import msgspec
import pytest
from tests.server_app import ServerApp, open_server_app

from cllm.core.conversation import LOCAL_OWNER
from cllm.core.message import plain_message
from cllm.core.ports import Lease, NewConversation, StreamEvent, TurnStart

LIST = "/v1/conversations"


@pytest.fixture
async def server(tmp_path):
    async with open_server_app(tmp_path) as server:
        yield server


@pytest.fixture
async def lease(server: ServerApp) -> Lease:
    """A running turn with two saved events."""
    conversation = await server.create_conversation()
    start = TurnStart(id=server.state.new_id(), messages=(plain_message("user", "Hello."),))
    lease = await server.state.store.begin_turn(conversation, start)
    events = [StreamEvent(number=number, data=b"id: %d\n\n" % number) for number in (1, 2)]
    await server.state.store.add_events(lease, events)
    return lease


def events_path(lease: Lease) -> str:
    return f"{LIST}/{lease.conversation.id}/turns/{lease.turn.id}/events"


async def finish(server: ServerApp, lease: Lease) -> None:
    turn = msgspec.structs.replace(lease.turn, state="complete", ended_at=server.state.clock())
    await server.state.store.finish_turn(lease, turn)


@pytest.mark.parametrize(
    ("headers", "events"),
    [
        ({}, b"id: 1\n\nid: 2\n\n"),
        ({"Last-Event-ID": "1"}, b"id: 2\n\n"),
        ({"Last-Event-ID": "9"}, b""),
    ],
)
async def test_saved_events_are_sent_after_the_last_event_id(server, lease, headers, events):
    await finish(server, lease)

    response = await server("GET", events_path(lease), headers=headers)

    assert response.content == events
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"


async def test_a_running_turn_is_followed_to_its_end(server, lease):
    server.state.turns.add(lease)
    response = asyncio.create_task(server("GET", events_path(lease)))
    await asyncio.sleep(0.05)

    await server.state.store.add_events(lease, [StreamEvent(number=3, data=b"id: 3\n\n")])
    server.state.turns.notify(lease)
    await finish(server, lease)
    server.state.turns.remove(lease)

    assert (await response).content == b"id: 1\n\nid: 2\n\nid: 3\n\n"


@pytest.mark.parametrize("value", ["x", "-1", "1.5", str(2**31)])
async def test_an_invalid_last_event_id_is_rejected(server, lease, value):
    response = await server("GET", events_path(lease), headers={"Last-Event-ID": value})

    assert (response.status_code, response.json()["error"]["param"]) == (400, "Last-Event-ID")


async def test_a_turn_without_saved_events_is_an_error(server):
    conversation = await server.create_conversation()
    turn = await server.add_turn(conversation, "Hello.", "Hi.")

    response = await server("GET", f"{LIST}/{conversation}/turns/{turn.id}/events")

    assert (response.status_code, response.json()["error"]["code"]) == (404, "events_not_kept")


async def test_conversation_files_have_no_events(server):
    await server.state.files.create(NewConversation(id="demo"), owner=LOCAL_OWNER)

    response = await server("GET", f"{LIST}/files:demo/turns/t1/events")

    assert response.json()["error"]["code"] == "events_not_kept"

"""The conversations endpoints: pages of messages, changes, deletion, branches and search."""

import pytest
from tests.server_app import open_server_app

LIST = "/v1/conversations"


@pytest.fixture
async def server(tmp_path):
    async with open_server_app(tmp_path) as server:
        yield server


@pytest.fixture
async def conversation(server):
    """A conversation with four messages."""
    conversation = await server.create_conversation()
    await server.add_turn(conversation, "one", "two")
    await server.add_turn(conversation, "three", "four")
    return conversation


@pytest.mark.parametrize(
    ("query", "contents", "next_after"),
    [
        ("", ["one", "two", "three", "four"], None),
        ("?limit=3", ["one", "two", "three"], 3),
        ("?after=1&limit=2", ["two", "three"], 3),
        ("?after=3", ["four"], None),
        ("?after=9", [], None),
    ],
)
async def test_messages_are_read_in_pages(server, conversation, query, contents, next_after):
    page = await server.get(f"{LIST}/{conversation}{query}")

    assert [message["content"] for message in page["messages"]] == contents
    assert page["next_after"] == next_after


async def test_a_change_of_nothing_returns_the_conversation(server, conversation):
    response = await server("PATCH", f"{LIST}/{conversation}", json={})

    assert (response.status_code, response.json()["id"]) == (200, conversation)


async def test_a_deletion_archives_unless_it_is_permanent(server, conversation):
    await server("DELETE", f"{LIST}/{conversation}")
    assert (await server.get(f"{LIST}/{conversation}"))["archived_at"] is not None

    await server("DELETE", f"{LIST}/{conversation}?permanent=true")
    assert (await server("GET", f"{LIST}/{conversation}")).status_code == 404


async def test_a_branch_shows_its_parent_only_while_that_exists(server, conversation):
    response = await server("POST", f"{LIST}/{conversation}/branch", json={"branch_at_sequence": 2})
    branch = response.json()
    assert branch["parent"] == {"conversation_id": conversation, "sequence_number": 2}
    assert [message["content"] for message in branch["messages"]] == ["one", "two"]

    await server("DELETE", f"{LIST}/{conversation}?permanent=true")

    assert (await server.get(f"{LIST}/{branch['id']}"))["parent"] is None


async def test_a_message_is_found_by_number_or_by_id(server, conversation):
    path = f"{LIST}/{conversation}/messages"
    by_number = await server.get(f"{path}/2")

    assert by_number["content"] == "two"
    assert await server.get(f"{path}/{by_number['id']}") == by_number


@pytest.mark.parametrize(
    ("message", "status", "code"),
    [
        ("9", 404, "sequence_not_found"),
        ("0", 422, "invalid_sequence_number"),
        ("unknown", 404, "message_not_found"),
    ],
)
async def test_an_unknown_message_is_an_error(server, conversation, message, status, code):
    response = await server("GET", f"{LIST}/{conversation}/messages/{message}")

    assert (response.status_code, response.json()["error"]["code"]) == (status, code)


async def test_a_search_returns_matches_with_their_position(server, conversation):
    results = await server.get(f"{LIST}/search?q=three")

    (match,) = results["results"]
    assert (match["conversation_id"], match["sequence_number"]) == (conversation, 3)
    assert (results["total"], results["more"]) == (1, False)


@pytest.mark.parametrize("policy", ["dynamic", "captured"])
async def test_a_new_conversation_has_the_requested_policy(server, policy):
    response = await server("POST", LIST, json={"system_policy": policy})

    assert response.status_code == 201
    detail = await server.get(f"{LIST}/{response.json()['id']}")
    assert detail["system"]["policy"] == policy

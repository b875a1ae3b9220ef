"""The conversations endpoints: pages of messages, changes, deletion, branches and search."""

import json

import pytest
from tests.server_app import open_server_app

from cllm.core.conversation import Branch
from cllm.core.ports import NewConversation

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
    assert branch["parent"] == {
        "conversation_id": conversation,
        "sequence_number": 2,
        "kind": "branch",
    }
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


LONG_TITLE = "t" * 201
LARGE_METADATA = {"text": "m" * 16_384}


@pytest.mark.parametrize(("title", "shown"), [("  Cats ", "Cats"), (" \n", None), (None, None)])
async def test_a_title_is_trimmed_and_a_blank_one_is_none(server, conversation, title, shown):
    created = await server("POST", LIST, json={"title": title})
    changed = await server("PATCH", f"{LIST}/{conversation}", json={"title": title})

    assert (created.status_code, created.json()["title"]) == (201, shown)
    assert (changed.status_code, changed.json()["title"]) == (200, shown)


@pytest.mark.parametrize(
    ("fields", "param"),
    [({"title": LONG_TITLE}, "title"), ({"metadata": LARGE_METADATA}, "metadata")],
)
async def test_titles_and_metadata_have_a_limit(server, conversation, fields, param):
    imported = {"messages": [], "metadata": {"cllm": {"version": 1, **fields}}}
    if param == "metadata":
        imported = {"messages": [], "metadata": LARGE_METADATA}
    responses = [
        await server("POST", LIST, json=fields),
        await server("PATCH", f"{LIST}/{conversation}", json=fields),
        await server("POST", f"{LIST}/import", json=imported),
    ]

    assert [response.status_code for response in responses] == [422] * 3
    assert {response.json()["error"]["code"] for response in responses} == {"validation_error"}
    assert {response.json()["error"]["param"] for response in responses} == {param}
    assert (await server.get(LIST))["total"] == 1


async def test_an_imported_model_name_has_a_limit(server):
    body = {"messages": [], "model": "m" * 2049}

    response = await server("POST", f"{LIST}/import", json=body)

    assert (response.status_code, response.json()["error"]["param"]) == (422, "model")


async def test_a_list_of_conversations_has_a_bounded_size(server):
    for number in range(20):
        new = NewConversation(
            id=f"c{number}",
            title="t" * 1_000_000,
            model="m" * 1_000_000,
            metadata={"text": "m" * 1_000_000},
            source="s" * 1_000_000,
            parent=Branch(conversation="p" * 1_000_000, sequence=1),
        )
        await server.state.store.create(new)

    response = await server("GET", LIST)

    assert len(response.content) < 20 * 20_000
    shown = response.json()["conversations"]
    assert [len(one["title"]) for one in shown] == [200] * 20
    assert {len(one["model"]) for one in shown} == {2048}
    assert {len(one["source"]) for one in shown} == {2048}
    assert {len(one["parent"]["conversation_id"]) for one in shown} == {200}
    assert [one["metadata"] for one in shown] == [{}] * 20
    notices = json.loads(response.headers["X-CLLM-Notice"])
    assert (notices[0]["code"], notices[0]["path"]) == ("summary_shortened", shown[0]["id"])
    whole = await server.get(f"{LIST}/{shown[0]['id']}")
    assert len(whole["title"]) == len(whole["metadata"]["text"]) == 1_000_000


@pytest.mark.parametrize("query", ["", "?q=", "?q=%20", "?q=?!"])
async def test_a_search_without_words_names_its_parameter(server, query):
    response = await server("GET", f"{LIST}/search{query}")

    assert (response.status_code, response.json()["error"]["param"]) == (422, "q")

"""Lists and searches of the server's store and the conversation files together."""

import json
from datetime import UTC, datetime

import pytest
from tests.server_app import KEYS, open_server_app

from cllm.core.conversation import LOCAL_OWNER, Branch
from cllm.core.ports import NewConversation
from cllm.server.api.conversation_lists import localize_cursor
from cllm.stores.pagination import decode_cursor, format_cursor
from cllm.testing.store_contract import answered, start

LIST = "/v1/conversations"
SEARCH = "/v1/conversations/search"
MEMORY = "server: {store: 'memory:'}"
NOW = datetime(2026, 11, 16, tzinfo=UTC)


@pytest.fixture
async def server(tmp_path):
    async with open_server_app(tmp_path, MEMORY, store=None) as server:
        yield server


async def add(store, key: str, text: str = "Hello") -> None:
    lease = await store.begin_turn(key, start(f"turn {key}", text), create=NewConversation(id=key))
    await store.finish_turn(lease, answered(lease))


async def add_both(server) -> list[str]:
    """Add conversations alternately; return their public IDs, newest first."""
    for number in range(5):
        await add(server.state.files if number % 2 else server.state.store, f"c{number}")
    return ["c4", "files:c3", "c2", "files:c1", "c0"]


async def test_the_list_contains_both(server):
    expected = await add_both(server)

    listed = await server.get(LIST)

    assert [one["id"] for one in listed["conversations"]] == expected
    assert (listed["total"], listed["next_cursor"]) == (5, None)


async def test_a_named_store_is_listed_alone(server):
    await add_both(server)

    listed = await server.get(f"{LIST}?store=files&limit=1&offset=1")

    assert [one["id"] for one in listed["conversations"]] == ["files:c1"]
    assert listed["total"] == 2


@pytest.mark.parametrize("limit", [1, 2, 3])
async def test_cursors_reach_every_conversation_once(server, limit):
    expected = await add_both(server)
    ids: list[str] = []
    cursor = None
    for _ in range(9):
        parameters = {"limit": limit} | ({} if cursor is None else {"cursor": cursor})
        listed = await server.get(LIST, params=parameters)
        ids += [one["id"] for one in listed["conversations"]]
        cursor = listed["next_cursor"]
        if cursor is None:
            break

    assert ids == expected


async def test_an_offset_skips_conversations_of_both(server):
    expected = await add_both(server)

    listed = await server.get(f"{LIST}?limit=2&offset=2")

    assert [one["id"] for one in listed["conversations"]] == expected[2:4]


async def test_a_parent_in_a_file_has_the_prefix(server):
    await add(server.state.files, "cats")
    parent = Branch(conversation="cats", sequence=1)
    await server.state.files.create(NewConversation(id="kittens", parent=parent))

    listed = await server.get(LIST)

    assert listed["conversations"][0]["parent"]["conversation_id"] == "files:cats"


async def test_a_search_finds_messages_of_both(server):
    await add(server.state.store, "cats", "a tabby")
    await add(server.state.files, "dogs", "a tabby")

    found = await server.get(f"{SEARCH}?q=tabby")

    assert {one["conversation_id"] for one in found["results"]} == {"cats", "files:dogs"}
    assert found["total"] == 2
    rest = await server.get(f"{SEARCH}?q=tabby&limit=1&offset=1")
    assert rest["results"] == found["results"][1:]
    alone = await server.get(f"{SEARCH}?q=tabby&store=files")
    assert [one["conversation_id"] for one in alone["results"]] == ["files:dogs"]


@pytest.mark.parametrize("path", [LIST, f"{SEARCH}?q=tabby"])
async def test_an_unreadable_folder_of_files_is_a_notice_without_its_path(server, tmp_path, path):
    await add(server.state.store, "cats", "a tabby")
    folder = tmp_path / "home/.cllm/conversations"
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.write_text("not a folder", encoding="utf-8")

    response = await server("GET", path)

    assert response.status_code == 200
    (notice,) = json.loads(response.headers["X-CLLM-Notice"])
    assert notice["code"] == "store_unavailable"
    assert str(tmp_path) not in response.headers["X-CLLM-Notice"]
    assert response.json()["total"] == 1


@pytest.mark.parametrize(
    ("settings", "headers"),
    [
        ("store: 'memory:'", {}),
        (
            "server: {store: 'memory:', keys: [{name: a, owner: local, key: '${KEY_OF_ALICE}'}]}",
            {"Authorization": f"Bearer {KEYS['alice']}"},
        ),
    ],
    ids=["single-store", "keys"],
)
async def test_the_files_are_not_listed_with_keys_or_a_single_store(tmp_path, settings, headers):
    folder = tmp_path / "home/.cllm/conversations"
    folder.mkdir(parents=True)
    (folder / "cats.json").write_text('{"id": "cats", "messages": []}', encoding="utf-8")
    async with open_server_app(tmp_path, settings, store=None) as server:
        assert (await server.get(LIST, headers=headers))["conversations"] == []


async def test_a_name_of_a_file_is_an_id(server):
    await add(server.state.files, "cats")

    assert (await server.get(f"{LIST}/cats"))["id"] == "files:cats"

    await server.state.store.create(NewConversation(id="1", name="cats"), owner=LOCAL_OWNER)
    assert (await server.get(f"{LIST}/cats"))["name"] == "cats"


@pytest.mark.parametrize(
    ("last_id", "own", "files"),
    [
        ("0e", "0e", ""),
        ("files:cats", "files:cats", "cats"),
        ("zebra", "zebra", "\U0010ffff"),
    ],
)
def test_a_cursor_is_translated_for_each_store(last_id, own, files):
    cursor = format_cursor(NOW, last_id)

    assert decode_cursor(localize_cursor(cursor, "")) == (NOW, own)
    assert decode_cursor(localize_cursor(cursor, "files:")) == (NOW, files)

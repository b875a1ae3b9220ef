"""References to stored items."""

from pathlib import Path
from typing import Any

import pytest
from tests.server_app import open_server_app

from cllm.wire.responses.ids import make_item_id, make_response_id

TURNS = 5


async def test_the_items_of_one_conversation_are_loaded_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads: list[Any] = []
    async with open_server_app(tmp_path) as server:
        conversation = await server.create_conversation()
        turns = [await server.add_turn(conversation, f"q{n}", f"a{n}") for n in range(TURNS)]
        responses = [make_response_id(conversation, turn.id) or "" for turn in turns]
        store, load = server.state.store, server.state.store.load

        async def count(ref: str, **options: Any) -> Any:
            loads.append(options)
            return await load(ref, **options)

        monkeypatch.setattr(store, "load", count)
        items = [{"type": "item_reference", "id": make_item_id("msg", one, 0)} for one in responses]
        body = {"items": items}

        created = await server("POST", "/v1/conversations", json=body)

        assert created.status_code == 200
        assert len(loads) == 1
        monkeypatch.undo()
        path = f"/v1/conversations/{created.json()['id']}/items"
        listed = (await server("GET", path, params={"order": "asc"})).json()["data"]
        assert [item["content"][0]["text"] for item in listed] == [f"a{n}" for n in range(TURNS)]

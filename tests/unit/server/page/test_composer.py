"""The composer: the model of the next turn, the system prompt per turn, archived conversations."""

import pytest
from tests.server_app import ServerApp, open_server_app

from cllm.core.conversation import SystemRecord
from cllm.core.message import plain_message
from cllm.core.ports import Changes, NewConversation, Opening


@pytest.fixture
async def server(tmp_path):
    async with open_server_app(tmp_path, "model: openai/gpt-default") as server:
        yield server


async def read_main(server: ServerApp, path: str) -> str:
    return (await server("GET", f"{path}?part=main")).text


async def test_a_new_conversation_uses_the_default_model(server):
    main = await read_main(server, "/")

    assert 'data-conversation=""' in main
    assert 'data-model="openai/gpt-default"' in main
    assert 'name="system"' in main


async def test_a_conversation_continues_with_the_model_of_its_last_turn(server):
    conversation = await server.create_conversation()
    await server.add_turn(conversation, "Hello.", "Hi.", model="openai/<gpt>")

    main = await read_main(server, f"/c/{conversation}")

    assert f'<form id="composer" data-conversation="{conversation}"' in main
    assert 'data-model="openai/&lt;gpt&gt;"' in main


async def test_a_captured_conversation_takes_no_system_prompt_per_turn(server):
    new = NewConversation(id="11111111-2222-4333-8444-555555555555", model="openai/gpt-own")
    opening = Opening(
        system=plain_message("system", "Be brief."), system_record=SystemRecord(policy="captured")
    )
    await server.state.store.create(new, opening=opening)

    main = await read_main(server, f"/c/{new.id}")

    assert 'data-model="openai/gpt-own"' in main
    assert 'name="system"' not in main


async def test_an_archived_conversation_cannot_be_continued(server):
    conversation = await server.create_conversation()
    await server.state.store.update(conversation, Changes(archived=True))

    main = await read_main(server, f"/c/{conversation}")

    assert 'class="archived"' in main
    assert "<form" not in main

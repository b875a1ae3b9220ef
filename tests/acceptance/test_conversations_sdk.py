"""OpenAI's Python and Node SDKs, unmodified, with OpenAI's Conversations API of `cllm serve`."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from tests.fake_provider import FakeProvider
from tests.node_programs import NodePrograms
from tests.server_process import Server, list_messages

MODEL = "openai/gpt-test"
CAT: Any = {"type": "message", "role": "user", "content": "My cat is called Luna."}
REPLY: Any = {"type": "message", "role": "assistant", "content": "Luna, I see."}
SYSTEM: Any = {"type": "message", "role": "system", "content": "Speak like a pirate."}
UNKNOWN = f"conv_{'0' * 32}"


@pytest.fixture
def client(server: Server) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.address}/v1", api_key="any", max_retries=0) as made:
        yield made


@pytest.fixture
def node(server: Server, tmp_path: Path) -> Iterator[NodePrograms]:
    programs = NodePrograms(tmp_path, server.address)
    yield programs
    programs.close()


def make_uuid(conversation: str) -> str:
    digits = conversation.removeprefix("conv_")
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def list_texts(client: openai.OpenAI, conversation: str, **options: Any) -> list[str]:
    items: Any = client.conversations.items.list(conversation, order="asc", **options)
    return [item.content[0].text for item in items]


def test_a_conversation(client: openai.OpenAI, server: Server):
    created = client.conversations.create(metadata={"topic": "cats"})

    assert (created.object, created.metadata) == ("conversation", {"topic": "cats"})
    assert client.conversations.retrieve(created.id) == created
    updated = client.conversations.update(created.id, metadata={"topic": "dogs"})
    assert (updated.id, updated.metadata) == (created.id, {"topic": "dogs"})
    assert server("GET", f"/v1/conversations/{make_uuid(created.id)}").json["metadata"] == {
        "topic": "dogs"
    }
    deleted = client.conversations.delete(created.id)
    assert (deleted.id, deleted.deleted) == (created.id, True)
    assert deleted.object == "conversation.deleted"
    for use in (client.conversations.retrieve, client.conversations.delete):
        with pytest.raises(openai.NotFoundError) as caught:
            use(created.id)
        assert caught.value.code == "conversation_not_found"


def test_items(client: openai.OpenAI, server: Server):
    items = client.conversations.items
    conversation = client.conversations.create(items=[SYSTEM, CAT]).id
    added: Any = items.create(
        conversation, items=[REPLY, CAT], include=["message.output_text.logprobs"]
    )

    assert [item.role for item in added.data] == ["assistant", "user"]
    texts = [CAT["content"], REPLY["content"], CAT["content"]]
    assert list_texts(client, conversation) == texts
    # The SDK reads all pages.
    assert list_texts(client, conversation, limit=1) == texts
    item: Any = items.retrieve(added.last_id, conversation_id=conversation)
    assert item == added.data[-1]
    assert items.list(conversation, limit=1).data == [item]
    assert items.delete(item.id, conversation_id=conversation).id == conversation
    with pytest.raises(openai.NotFoundError):
        items.retrieve(item.id, conversation_id=conversation)
    first: Any = items.list(conversation, order="asc", limit=1).data[0]
    with pytest.raises(openai.BadRequestError, match="Only the last item"):
        items.delete(first.id, conversation_id=conversation)
    stored = list_messages(server, make_uuid(conversation))
    assert [role for role, _ in stored] == ["user", "assistant"]


def test_a_conversation_of_responses(client: openai.OpenAI, upstream: FakeProvider):
    conversation = client.conversations.create(items=[CAT, REPLY]).id
    response = client.responses.create(
        model=MODEL, input="What is my cat called?", conversation=conversation
    )
    client.responses.create(model=MODEL, input="And my dog?", conversation={"id": conversation})

    assert upstream.requests[-1].message_pairs[0] == ("user", CAT["content"])
    listed: Any = client.conversations.items.list(conversation, order="asc")
    assert [item.role for item in listed.data] == ["user", "assistant"] * 3
    assert [item.id for item in response.output] == [listed.data[3].id]
    (asked,) = client.responses.input_items.list(response.id)
    assert asked.id == listed.data[2].id


def test_an_unknown_conversation(client: openai.OpenAI):
    items = client.conversations.items
    for use in (
        lambda: items.list(UNKNOWN),
        lambda: items.create(UNKNOWN, items=[CAT]),
        lambda: items.retrieve("msg_1", conversation_id=UNKNOWN),
        lambda: items.delete("msg_1", conversation_id=UNKNOWN),
        lambda: client.conversations.update(UNKNOWN, metadata={}),
        lambda: client.responses.create(model=MODEL, input="Hi.", conversation=UNKNOWN),
    ):
        with pytest.raises(openai.NotFoundError) as caught:
            use()
        assert caught.value.code == "conversation_not_found"


def test_the_same_conversation_in_both_formats(client: openai.OpenAI, server: Server):
    made = server("POST", "/v1/conversations", {"title": "Cats"})
    uuid = made.json["id"]
    conversation = f"conv_{uuid.replace('-', '')}"
    server.complete(("user", "Hello."), conversation=uuid)

    assert made.status == 201
    assert client.conversations.retrieve(conversation).id == conversation
    assert list_texts(client, conversation) == ["Hello.", "echo: Hello."]
    assert server("DELETE", f"/v1/conversations/{uuid}").status == 204
    assert client.conversations.retrieve(conversation).id == conversation
    with pytest.raises(openai.NotFoundError):
        client.conversations.items.create(conversation, items=[CAT])


def test_node(node: NodePrograms):
    found = node("conversations")

    assert found == {
        "created": {"topic": "cats"},
        "updated": {"topic": "dogs"},
        "added": ["assistant", "user"],
        "listed": [CAT["content"], REPLY["content"], "Thanks."],
        "retrieved": "Thanks.",
        "refused": [400, "invalid_request"],
        "rest": 2,
        "deleted": True,
        "missing": [404, "conversation_not_found"],
    }, json.dumps(found)

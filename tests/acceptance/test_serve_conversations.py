"""`cllm serve`: stateless requests, new and continued conversations, regenerated replies.

The tests check the requests to the provider and the stored conversations.
"""

import json
import uuid

import pytest
from tests.fake_provider import FakeProvider, ToolCall
from tests.server_process import Server, list_messages

SYSTEM = ("system", "You are a pirate.")
OTHER = ("system", "You are a poet.")
HELLO = ("user", "Hello.")
ECHO = ("assistant", "echo: Hello.")


def test_a_stateless_request_and_its_response_pass_through_unchanged(
    server: Server, upstream: FakeProvider
):
    response = server.complete(SYSTEM, HELLO, temperature=0, seed=7, unknown_field={"a": [1]})

    sent = upstream.requests[-1].json
    assert response.status == 200
    assert response.text == "echo: Hello."
    assert sent == {
        "model": "gpt-test",
        "messages": [
            {"role": "system", "content": "You are a pirate."},
            {"role": "user", "content": "Hello."},
        ],
        "temperature": 0,
        "seed": 7,
        "unknown_field": {"a": [1]},
    }
    assert "x-conversation-id" not in response.headers
    assert "x-turn-id" not in response.headers


def test_a_stateless_request_stores_nothing(server: Server):
    before = server("GET", "/v1/conversations").json["total"]

    server.complete(SYSTEM, HELLO)
    server.complete(HELLO, stream=True)

    assert server("GET", "/v1/conversations").json["total"] == before


@pytest.mark.parametrize("header", ["", "null"])
def test_an_empty_conversation_header_starts_a_conversation(server: Server, header: str):
    response = server.complete(HELLO, conversation=header)

    assert response.status == 200
    assert str(uuid.UUID(response.conversation)) == response.conversation
    assert list(list_messages(server, response.conversation)) == [HELLO, ECHO]


def test_a_new_conversation_uses_its_system_message_and_does_not_store_it(
    server: Server, upstream: FakeProvider
):
    response = server.complete(SYSTEM, HELLO, conversation="")

    assert upstream.requests[-1].message_pairs == [SYSTEM, HELLO]
    assert list(list_messages(server, response.conversation)) == [HELLO, ECHO]


def test_a_new_conversation_without_a_system_message_sends_none(
    server: Server, upstream: FakeProvider
):
    server.complete(HELLO, conversation="")

    assert upstream.requests[-1].message_pairs == [HELLO]


def test_a_continued_conversation_sends_its_history(server: Server, upstream: FakeProvider):
    first_response = server.complete(HELLO, conversation="")

    response = server.complete(("user", "Again."), conversation=first_response.conversation)

    assert response.conversation == first_response.conversation
    assert upstream.requests[-1].message_pairs == [HELLO, ECHO, ("user", "Again.")]
    assert len(list(list_messages(server, first_response.conversation))) == 4


def test_the_system_message_of_a_continued_conversation_is_sent_first_and_not_stored(
    server: Server, upstream: FakeProvider
):
    first_response = server.complete(SYSTEM, HELLO, conversation="")

    server.complete(OTHER, ("user", "Again."), conversation=first_response.conversation)

    assert upstream.requests[-1].message_pairs == [OTHER, HELLO, ECHO, ("user", "Again.")]
    shown = server("GET", f"/v1/conversations/{first_response.conversation}").body
    assert b"pirate" not in shown
    assert b"poet" not in shown


def test_a_continued_conversation_without_a_system_message_sends_none(
    server: Server, upstream: FakeProvider
):
    first_response = server.complete(SYSTEM, HELLO, conversation="")

    server.complete(("user", "Again."), conversation=first_response.conversation)

    assert upstream.requests[-1].message_pairs == [HELLO, ECHO, ("user", "Again.")]


def test_each_request_uses_its_own_system_message(server: Server, upstream: FakeProvider):
    first_response = server.complete(SYSTEM, HELLO, conversation="")

    for system in (OTHER, ("system", "Third."), ("developer", "Fourth.")):
        server.complete(system, ("user", "Again."), conversation=first_response.conversation)
        roles = [role for role, _ in upstream.requests[-1].message_pairs]
        assert upstream.requests[-1].message_pairs[0][1] == system[1]
        assert roles.count("system") + roles.count("developer") == 1


def test_only_the_first_of_several_system_messages_is_used(server: Server, upstream: FakeProvider):
    first_response = server.complete(HELLO, conversation="")

    response = server.complete(
        ("user", "Again."), SYSTEM, OTHER, conversation=first_response.conversation
    )

    assert upstream.requests[-1].message_pairs == [SYSTEM, HELLO, ECHO, ("user", "Again.")]
    assert [(notice["code"], notice["path"]) for notice in response.notices] == [
        ("system_message_ignored", "messages[2]")
    ]


def test_a_new_conversation_with_two_system_messages_is_sent_unchanged(
    server: Server, upstream: FakeProvider
):
    response = server.complete(SYSTEM, HELLO, OTHER, conversation="")

    assert upstream.requests[-1].message_pairs == [SYSTEM, HELLO, OTHER]
    assert list(list_messages(server, response.conversation)) == [
        HELLO,
        ("assistant", "echo: Hello."),
    ]


@pytest.mark.parametrize("system", [None, OTHER])
def test_a_request_without_messages_regenerates_the_last_reply(
    server: Server, upstream: FakeProvider, system: tuple[str, str] | None
):
    first_response = server.complete(SYSTEM, HELLO, conversation="")
    upstream.queue_reply("Another answer.")

    response = server.complete(
        *([system] if system else []), conversation=first_response.conversation
    )

    assert response.text == "Another answer."
    assert upstream.requests[-1].message_pairs == [*([system] if system else []), HELLO]
    assert list(list_messages(server, first_response.conversation)) == [
        HELLO,
        ("assistant", "Another answer."),
    ]
    everything = server(
        "GET", f"/v1/conversations/{first_response.conversation}?variants=true"
    ).body
    assert b"echo: Hello." in everything


def test_a_failed_turn_can_be_regenerated(server: Server, upstream: FakeProvider):
    first_response = server.complete(HELLO, conversation="")
    upstream.queue_error(500, "Broken.")
    failed = server.complete(("user", "Again."), conversation=first_response.conversation)

    response = server.complete(conversation=first_response.conversation)

    assert failed.status == 500
    assert response.text == "echo: Again."
    assert upstream.requests[-1].message_pairs == [HELLO, ECHO, ("user", "Again.")]
    assert list(list_messages(server, first_response.conversation))[2:] == [
        ("user", "Again."),
        ("assistant", "echo: Again."),
    ]


def test_a_failed_turn_is_stored_and_not_sent_as_history(server: Server, upstream: FakeProvider):
    first_response = server.complete(HELLO, conversation="")
    upstream.queue_error(500, "Broken.")
    server.complete(("user", "Lost."), conversation=first_response.conversation)

    server.complete(("user", "Again."), conversation=first_response.conversation)

    assert upstream.requests[-1].message_pairs == [HELLO, ECHO, ("user", "Again.")]


def test_tool_calls_and_results_are_stored_and_sent_again(server: Server, upstream: FakeProvider):
    tools = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
    upstream.queue_reply(
        tool_calls=(ToolCall(id="call_1", name="look", arguments='{"at":"sky"}'),),
        finish="tool_calls",
    )
    first_response = server.complete(("user", "Look."), conversation="", tools=tools)
    call = first_response.json["choices"][0]["message"]["tool_calls"][0]

    body = {
        "model": "openai/gpt-test",
        "tools": tools,
        "messages": [{"role": "tool", "tool_call_id": call["id"], "content": "Blue."}],
    }
    response = server(
        "POST", "/v1/chat/completions", body, {"X-Conversation-ID": first_response.conversation}
    )

    sent = upstream.requests[-1].messages
    assert response.status == 200
    assert [message["role"] for message in sent] == ["user", "assistant", "tool"]
    assert sent[1]["tool_calls"][0]["function"] == {"name": "look", "arguments": '{"at":"sky"}'}
    assert sent[2] == body["messages"][0]
    assert upstream.requests[-1].json["tools"] == tools


def test_a_regenerated_reply_replaces_its_tool_results(server: Server, upstream: FakeProvider):
    call = ToolCall(id="call_1", name="look", arguments="{}")
    upstream.queue_reply(tool_calls=(call,), finish="tool_calls")
    first_response = server.complete(("user", "Look."), conversation="")
    result = {"role": "tool", "tool_call_id": "call_1", "content": "Blue."}
    body = {"model": "openai/gpt-test", "messages": [result]}
    headers = {"X-Conversation-ID": first_response.conversation}
    server("POST", "/v1/chat/completions", body, headers)
    upstream.queue_reply("It is blue.")

    response = server.complete(conversation=first_response.conversation)

    assert response.text == "It is blue."
    assert upstream.requests[-1].message_pairs == [("user", "Look.")]
    assert len(list(list_messages(server, first_response.conversation))) == 2
    detail = server("GET", f"/v1/conversations/{first_response.conversation}?variants=true").json
    off_path = [[message["role"] for message in turn["messages"]] for turn in detail["variants"]]
    assert off_path == [["user", "assistant"], ["tool", "assistant"]]


def test_a_conversation_can_change_its_model_at_every_turn(server: Server, upstream: FakeProvider):
    first_response = server.complete(HELLO, conversation="")

    server.complete(
        ("user", "Again."), conversation=first_response.conversation, model="openai/gpt-other"
    )

    assert upstream.requests[-1].json["model"] == "gpt-other"


def test_the_title_is_the_first_user_message(server: Server):
    response = server.complete(("user", f"What   is\n{'long ' * 40}?"), conversation="")

    title = server("GET", f"/v1/conversations/{response.conversation}").json["title"]
    assert title.startswith("What is long long")
    assert len(title) == 100
    assert title.endswith("...")


@pytest.mark.parametrize("header", ["de mo", "search", "{}", "../x", "x" * 500])
def test_an_invalid_conversation_header_is_rejected(server: Server, header: str):
    response = server.complete(HELLO, conversation=header)

    assert response.status == 400
    assert response.error["code"] == "invalid_conversation_id"


def test_an_unknown_conversation_is_not_found(server: Server, upstream: FakeProvider):
    before = len(upstream.requests)

    response = server.complete(HELLO, conversation=str(uuid.uuid4()))

    assert response.status == 404
    assert response.error["code"] == "conversation_not_found"
    assert len(upstream.requests) == before


def test_an_archived_conversation_is_not_found_until_it_is_unarchived(server: Server):
    first_response = server.complete(HELLO, conversation="")
    path = f"/v1/conversations/{first_response.conversation}"
    server("DELETE", path)

    assert server.complete(HELLO, conversation=first_response.conversation).status == 404

    server("PATCH", path, {"archived": False})
    assert server.complete(HELLO, conversation=first_response.conversation).status == 200


@pytest.mark.parametrize("conversation", [None, ""])
def test_a_request_without_messages_is_rejected_if_nothing_can_be_regenerated(
    server: Server, conversation: str | None
):
    response = server.complete(conversation=conversation)

    assert response.status == 422
    assert response.error["code"] == "empty_messages_array"


def test_an_empty_conversation_has_nothing_to_regenerate(server: Server):
    created = server("POST", "/v1/conversations", {}).json

    response = server.complete(conversation=created["id"])

    assert response.status == 422
    assert response.error["code"] == "empty_messages_array"


def test_a_captured_conversation_ignores_another_system_prompt_with_a_notice(
    server: Server, upstream: FakeProvider
):
    created = server("POST", "/v1/conversations", {"system_policy": "captured"}).json
    server.complete(SYSTEM, HELLO, conversation=created["id"])

    response = server.complete(OTHER, ("user", "Again."), conversation=created["id"])

    assert upstream.requests[-1].message_pairs[0] == SYSTEM
    assert OTHER not in upstream.requests[-1].message_pairs
    assert [notice["code"] for notice in response.notices] == ["system_prompt_ignored"]


def test_an_invalid_body_names_the_field(server: Server):
    for body, param in (
        (b"{", None),
        (b"[]", None),
        (json.dumps({"messages": []}).encode(), "model"),
        (json.dumps({"model": "m"}).encode(), "messages"),
        (json.dumps({"model": "m", "messages": [{"role": "x"}]}).encode(), "messages[0].role"),
    ):
        response = server("POST", "/v1/chat/completions", body)
        assert response.status == 422, body
        assert response.error["code"] == "validation_error"
        assert response.error["param"] == param


def test_an_unknown_model_is_not_found(server: Server):
    response = server.complete(HELLO, model="nobody/knows-it")

    assert response.status == 404
    assert response.error["code"] == "model_not_found"

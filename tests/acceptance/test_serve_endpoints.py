"""The conversations endpoints of a real `cllm serve`: keys, resumed streams, files, shutdown."""

from collections.abc import Callable
from typing import Any

from tests.command import Cllm
from tests.fake_provider import FakeProvider
from tests.server_process import Server

KEYS = {"alice": "key-of-alice-0123456789", "bob": "key-of-bob-0123456789ab"}
HELLO = ("user", "Hello.")


def events(body: bytes) -> list[str]:
    """Return the events of a stream that have an ID."""
    return [event for event in body.decode().split("\n\n") if event.startswith("id: ")]


def question(text: str) -> dict[str, Any]:
    return {
        "model": "openai/gpt-test",
        "stream": True,
        "messages": [{"role": "user", "content": text}],
    }


def test_a_stream_is_resumed_after_its_last_event_and_followed_to_its_end(
    serve: Callable[..., Server], provider: FakeProvider, until: Callable[..., bool]
):
    server = serve()
    gate = provider.queue_held_reply("One ", "two ", "three.", at=2)
    stream = server.open(
        "POST", "/v1/chat/completions", question("Count"), {"X-Conversation-ID": ""}
    )
    first = stream.event().decode()
    conversation, turn = stream.headers["x-conversation-id"], stream.headers["x-turn-id"]
    stream.leave()
    last = first.partition("\n")[0].removeprefix("id: ")
    path = f"/v1/conversations/{conversation}/turns/{turn}/events"

    again = server.open("GET", path, None, {"Last-Event-ID": last})
    gate.open()
    rest = again.rest()

    whole = server("GET", path)
    assert whole.headers["content-type"].startswith("text/event-stream")
    assert [f"{first.strip()}", *events(rest)] == events(whole.body)
    assert whole.streamed_text == "One two three."
    assert whole.events[-1] == "[DONE]"


def test_the_stream_of_another_owner_is_not_found(
    serve: Callable[..., Server], provider: FakeProvider
):
    server = serve(server={"keys": [{"name": n, "owner": n, "key": k} for n, k in KEYS.items()]})
    alice, bob = ({"x-api-key": KEYS[name]} for name in ("alice", "bob"))
    response = server.complete(HELLO, conversation="", headers=alice, stream=True)
    turn = response.headers["x-turn-id"]

    theirs = server(
        "GET", f"/v1/conversations/{response.conversation}/turns/{turn}/events", None, bob
    )
    mine = server(
        "GET", f"/v1/conversations/{response.conversation}/turns/{turn}/events", None, alice
    )

    assert theirs.error["code"] == "conversation_not_found"
    assert mine.body == response.body


def test_a_conversation_of_the_terminal_can_be_read_and_continued_over_http(
    serve: Callable[..., Server], provider: FakeProvider, cllm: Cllm
):
    server = serve(default_system_message="Be brief.")
    assert cllm("Hello from the terminal", "--conversation", "demo").code == 0

    listed = server("GET", "/v1/conversations?store=files").json
    assert [one["id"] for one in listed["conversations"]] == ["files:demo"]
    detail = server("GET", "/v1/conversations/files:demo").json
    assert detail["system"]["prompt"] == "Be brief."
    assert [message["role"] for message in detail["messages"]] == ["user", "assistant"]

    response = server.complete(
        ("system", "Another one."), ("user", "Hello from the browser"), conversation="files:demo"
    )
    assert response.status == 200
    assert provider.requests[-1].message_pairs[0] == ("system", "Be brief.")
    assert [notice["code"] for notice in response.notices] == ["system_prompt_ignored"]
    assert len(server("GET", "/v1/conversations/files:demo").json["messages"]) == 4
    assert cllm("And again", "--conversation", "demo").code == 0
    assert len(provider.requests[-1].messages) == 6


def test_an_export_can_be_imported_on_another_server(
    serve: Callable[..., Server], provider: FakeProvider
):
    server = serve()
    response = server.complete(HELLO, conversation="")
    server.complete(("user", "More."), conversation=response.conversation)
    server.complete(conversation=response.conversation)
    exported = server("GET", f"/v1/conversations/{response.conversation}/export").body

    imported = server("POST", "/v1/conversations/import", exported)

    assert imported.status == 201
    copied = imported.json["id"]
    before, after = (
        server("GET", f"/v1/conversations/{one}?variants=true").json
        for one in (response.conversation, copied)
    )
    assert after["messages"] == before["messages"]
    assert after["variants"] == before["variants"]
    assert len(after["variants"]) == 1
    going_on = server.complete(("user", "Still there?"), conversation=copied)
    assert going_on.status == 200
    assert provider.requests[-1].message_pairs[0] == HELLO


def test_the_prompt_of_a_turn_can_be_read(serve: Callable[..., Server]):
    server = serve()
    response = server.complete(("system", "secret"), HELLO, conversation="")
    again = server.complete(("user", "More."), conversation=response.conversation)
    turn = again.headers["x-turn-id"]

    shown = server("GET", f"/v1/conversations/{response.conversation}/turns/{turn}/prompt").json

    assert shown["exact"]
    assert [(one["role"], one["content"]) for one in shown["sent"]] == [
        ("system", "not kept"),
        HELLO,
        ("assistant", "echo: Hello."),
        ("user", "More."),
    ]
    assert shown["counted_tokens"] == 11


def test_another_origin_and_another_host_are_rejected(serve: Callable[..., Server]):
    server = serve()

    for headers, code in (
        ({"Origin": "https://evil.example"}, "origin_not_allowed"),
        ({"Host": "evil.example"}, "host_not_allowed"),
    ):
        response = server("GET", "/v1/conversations", None, headers)
        assert (response.status, response.error["code"]) == (403, code)
    same = server("GET", "/v1/conversations", None, {"Origin": server.address})
    assert same.status == 200


def test_usage_counts_saved_and_stateless_calls(serve: Callable[..., Server]):
    server = serve()
    server.complete(HELLO)
    server.complete(HELLO, conversation="")

    def total() -> dict[str, Any]:
        found: dict[str, Any] = server("GET", "/v1/usage?by=model").json["total"]
        return found

    assert total()["calls"] == 2
    assert total()["input_tokens"] == 22

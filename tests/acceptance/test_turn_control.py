"""A client stops a running turn, and changes the model of a conversation."""

from collections.abc import Callable

import pytest
from tests.fake_provider import FakeProvider
from tests.server_process import COMPLETIONS, Server, completion_body, list_messages

MODEL, OTHER = "openai/gpt-test", "openai/gpt-other"


@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_a_streamed_turn_is_stopped_with_its_text(
    serve: Callable[..., Server], provider: FakeProvider, *, is_elsewhere: bool
):
    one = serve()
    other = serve() if is_elsewhere else one
    gate = provider.queue_held_reply("Half of ", "a reply", " and more", at=1)
    body = completion_body(("user", "Count."), stream=True)
    opened = one.open("POST", COMPLETIONS, body, {"X-Conversation-ID": ""})
    opened.event()
    conversation, turn = opened.headers["x-conversation-id"], opened.headers["x-turn-id"]
    path = f"/v1/conversations/{conversation}/turns/{turn}"
    # The other server reads the stored events, which are saved a moment later.
    while not one("GET", f"/v1/conversations/{conversation}/turns/{turn}").json["messages"]:
        pass
    if is_elsewhere:
        follower = other.open("GET", f"{path}/events")
        follower.event()
        follower.leave()

    stopped = other("POST", f"{path}/cancel")
    if is_elsewhere:
        gate.open()

    assert (stopped.status, stopped.json["state"]) == (200, "incomplete")
    assert stopped.json["failure"]["code"] == "cancelled"
    assert b"response_cancelled" in opened.rest()
    if not is_elsewhere:
        provider.requests[-1].wait_disconnected()
    assert list(list_messages(one, conversation)) == [
        ("user", "Count."), ("assistant", "Half of ")
    ]  # fmt: skip
    again = one("POST", f"{path}/cancel").json
    assert again == stopped.json
    assert one.complete(("user", "More."), conversation=conversation).status == 200


def test_an_unknown_turn_cannot_be_stopped(serve: Callable[..., Server]):
    server = serve()
    conversation = server.complete(("user", "Hello"), conversation="").conversation

    unknown = server("POST", f"/v1/conversations/{conversation}/turns/x/cancel")

    assert (unknown.status, unknown.error["code"]) == (404, "turn_not_found")


def test_a_request_uses_its_own_model_and_can_change_that_of_the_conversation(
    serve: Callable[..., Server], provider: FakeProvider
):
    server = serve()
    file = {"model": MODEL, "messages": [{"role": "user", "content": "One"}]}
    conversation = server("POST", "/v1/conversations/import", file).json["id"]
    path = f"/v1/conversations/{conversation}"
    switch, keep = {"X-CLLM-Switch-Model": "true"}, {"X-CLLM-Switch-Model": "false"}

    own = server.complete(("user", "Two"), conversation=conversation, model=OTHER)
    assert server("GET", path).json["model"] == MODEL
    fixed = server.complete(("user", "Three"), conversation=conversation, model=OTHER, headers=keep)
    switched = server.complete(
        ("user", "Four"), conversation=conversation, model=OTHER, headers=switch
    )
    assert server("GET", path).json["model"] == OTHER
    regenerated = server.complete(conversation=conversation, model=MODEL)

    assert own.notices == switched.notices == regenerated.notices == []
    assert [notice["code"] for notice in fixed.notices] == ["model_fixed"]
    models = [request.json["model"] for request in provider.requests]
    assert models == ["gpt-other", "gpt-test", "gpt-other", "gpt-test"]
    replies = [m for m in server("GET", path).json["messages"] if m["role"] == "assistant"]
    assert [reply["model"] for reply in replies] == [OTHER, MODEL, MODEL]
    wrong = server.complete(
        ("user", "x"), conversation=conversation, headers={"X-CLLM-Switch-Model": "maybe"}
    )
    assert (wrong.status, wrong.error["param"]) == (400, "X-CLLM-Switch-Model")


def test_a_conversation_that_a_client_starts_is_listed_with_its_model(
    serve: Callable[..., Server],
):
    server = serve(server={"record": "auto"})
    user = ("user", "Hello")
    created = server("POST", "/v1/conversations", {"title": "Created"}).json["id"]

    refs = {
        server.complete(user, conversation="", model=MODEL).conversation,
        server.complete(("user", "Named"), conversation="named", model=MODEL).conversation,
        server.complete(("user", "Recorded"), model=MODEL).conversation,
        server.complete(user, conversation=created, model=MODEL).conversation,
        server("POST", "/v1/responses", {"model": MODEL, "input": "Hi"}).conversation,
    }
    server.complete(user, conversation="", model=OTHER)

    listed = server("GET", "/v1/conversations?model=gpt-test").json
    assert {one["id"] for one in listed["conversations"]} == refs
    assert {one["model"] for one in listed["conversations"]} == {MODEL}
    assert listed["total"] == len(refs) == 5

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


def test_a_request_can_change_the_model_of_a_conversation(
    serve: Callable[..., Server], provider: FakeProvider
):
    server = serve()
    file = {"model": MODEL, "messages": [{"role": "user", "content": "One"}]}
    conversation = server("POST", "/v1/conversations/import", file).json["id"]
    switch = {"X-CLLM-Switch-Model": "true"}

    fixed = server.complete(("user", "Two"), conversation=conversation, model=OTHER)
    switched = server.complete(
        ("user", "Three"), conversation=conversation, model=OTHER, headers=switch
    )
    following = server.complete(("user", "Four"), conversation=conversation, model=OTHER)
    regenerated = server.complete(conversation=conversation, model=MODEL, headers=switch)

    assert [notice["code"] for notice in fixed.notices] == ["model_fixed"]
    assert switched.notices == following.notices == regenerated.notices == []
    models = [request.json["model"] for request in provider.requests]
    assert models == ["gpt-test", "gpt-other", "gpt-other", "gpt-test"]
    assert server("GET", f"/v1/conversations/{conversation}").json["model"] == MODEL
    wrong = server.complete(
        ("user", "x"), conversation=conversation, headers={"X-CLLM-Switch-Model": "maybe"}
    )
    assert (wrong.status, wrong.error["param"]) == (400, "X-CLLM-Switch-Model")

"""The log and the database of `cllm serve` contain no secrets: both files are searched."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.fake_provider import FakeProvider
from tests.home import SECRET, Home
from tests.server_process import Server, read_stored_bytes

KEY = "key-of-the-caller-0123456789"
KEYED = {"keys": [{"name": "ci", "owner": "team", "key": KEY}]}
AUTHORISED = {"Authorization": f"Bearer {KEY}"}
PLANTED = ("planted-system", "planted-prefix", "planted-user", "planted-reply", "planted-model")


def lines(server: Server) -> Iterator[dict[str, Any]]:
    """Return the request lines of a server's log."""
    for line in server.log.splitlines():
        if line.startswith("{"):
            record = json.loads(line)
            if record["message"] == "request":
                yield record


def bytes_on_disk(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in folder.glob("*.db*"))


def test_a_line_has_ids_counts_and_costs_and_no_message(
    serve: Callable[..., Server], provider: FakeProvider
):
    server = serve(server={**KEYED, "system_prefix": "planted-prefix"})
    provider.queue_reply("planted-", "reply")

    response = server.complete(
        ("system", "planted-system"),
        ("user", "planted-user"),
        conversation="",
        headers=AUTHORISED,
        stream=True,
    )
    server.terminate()
    server.wait()

    assert response.streamed_text == "planted-reply"
    (line,) = lines(server)
    assert line["request"] == response.headers["x-request-id"]
    assert line["conversation"] == response.conversation
    assert line["turn"] == response.headers["x-turn-id"]
    assert (line["route"], line["status"], line["outcome"]) == ("/v1/chat/completions", 200, "ok")
    assert (line["owner"], line["key"]) == ("team", "ci")
    assert line["model"] == "openai/gpt-test"
    assert line["stream"] is True
    assert line["system_prompt"] is True
    assert line["messages"] >= 1
    assert (line["input_tokens"], line["output_tokens"]) == (11, 7)
    assert 0 <= line["first_byte_ms"] <= line["ms"]
    for planted in (*PLANTED, KEY, SECRET):
        assert planted not in server.log


def test_no_error_logs_a_message_or_a_key(serve: Callable[..., Server], provider: FakeProvider):
    server = serve(server=KEYED)
    planted_messages = (("system", "planted-system"), ("user", "planted-user"))
    for status in (400, 401, 429, 500):
        provider.queue_error(status, f"No capacity for {SECRET}.")
        server.complete(*planted_messages, conversation="", headers=AUTHORISED)
    provider.queue_reply("planted-", "reply", stop_after=1)
    server.complete(*planted_messages, conversation="", headers=AUTHORISED, stream=True)
    server.complete(*planted_messages, conversation="planted-user", headers=AUTHORISED)
    server.complete(*planted_messages, headers={"Authorization": "Bearer planted-user-0123456789"})
    server.complete(*planted_messages, headers=AUTHORISED, model="nobody/planted-model")
    server("POST", "/v1/chat/completions", b'{"planted-user', AUTHORISED)
    server("GET", "/v1/conversations/search?q=planted-user", None, AUTHORISED)
    server.terminate()
    server.wait()

    assert len(list(lines(server))) == 10
    assert [line["provider_message"] for line in lines(server) if "provider_message" in line] == [
        "No capacity for ***."
    ] * 4
    for planted in (*PLANTED, KEY, SECRET):
        assert planted not in server.log


def test_no_system_prompt_is_in_the_database_file(
    serve: Callable[..., Server], home: Home, provider: FakeProvider, store_url: str
):
    server = serve(server={"system_prefix": "planted-prefix"})
    for _ in range(2):
        response = server.complete(
            ("system", "planted-system"), ("user", "kept-user"), conversation="", stream=True
        )
    again = server.complete(("developer", "planted-system"), conversation=response.conversation)
    provider.queue_error(500, "planted-reply")
    server.complete(
        ("system", "planted-system"), ("user", "more"), conversation=response.conversation
    )
    exported = server("GET", f"/v1/conversations/{response.conversation}/export")
    server.terminate()
    server.wait()

    assert again.status == 200
    stored = bytes_on_disk(home.path) + read_stored_bytes(store_url, home.path)
    assert (b"kept-user" in stored) == (store_url != "memory:")
    for planted in (b"planted-system", b"planted-prefix"):
        assert planted not in stored
        assert planted not in exported.body


def test_a_disconnect_is_logged(
    serve: Callable[..., Server], provider: FakeProvider, until: Callable[..., bool]
):
    server = serve(server={"on_disconnect": "cancel"})
    provider.queue_held_reply("Half ", "an answer.")
    stream = server.open(
        "POST",
        "/v1/chat/completions",
        {
            "model": "openai/gpt-test",
            "stream": True,
            "messages": [{"role": "user", "content": "Hello"}],
        },
        {"X-Conversation-ID": ""},
    )
    stream.event()
    conversation = stream.headers["x-conversation-id"]
    stream.leave()

    def state() -> str:
        detail = server("GET", f"/v1/conversations/{conversation}").json
        return str(detail["messages"][-1]["state"])

    assert until(lambda: state() == "incomplete")
    server.terminate()
    server.wait()
    (line,) = (line for line in lines(server) if line["method"] == "POST")
    assert line["outcome"] == "disconnected"


def test_the_metrics_count_turns(serve: Callable[..., Server]):
    server = serve()
    server.complete(("user", "Hello"))

    text = server("GET", "/metrics").body.decode()

    assert 'route="/v1/chat/completions",method="POST",status="200"} 1' in text
    assert 'cllm_tokens_total{model="openai/gpt-test",kind="input"} 11' in text

"""The log and the database of `cllm serve` contain no secrets: both files are searched."""

import http.client
import json
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
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

    labels = 'method="POST",outcome="ok",route="/v1/chat/completions",status="200"'
    assert f"cllm_requests_total{{{labels}}} 1.0" in text
    labels = 'model="openai/gpt-test",provider="openai"'
    assert f'cllm_tokens_total{{kind="input",{labels}}} 11.0' in text


def test_the_metrics_of_all_workers_are_added_up(
    serve: Callable[..., Server], provider: FakeProvider, until: Callable[..., bool]
):
    server = serve("--workers", "2")
    for _ in range(8):
        server.complete(("user", "Hello"))
    provider.queue_reply("Broken ", "off.", stop_after=1)
    server.complete(("user", "Hello"), stream=True)

    def is_one_running() -> bool:
        # The end of the previous request can still be counted by the other worker.
        return "cllm_requests_running 1.0" in server("GET", "/metrics").body.decode()

    def are_added_up() -> bool:
        text = server("GET", "/metrics").body.decode()
        labels = 'model="openai/gpt-test",outcome="ok",provider="openai"'
        return f"cllm_turns_total{{{labels}}} 8.0" in text

    assert until(is_one_running)
    assert until(are_added_up)
    for _ in range(8):
        assert are_added_up()
    text = server("GET", "/metrics").body.decode()
    assert 'outcome="upstream_broken_stream",route="/v1/chat/completions",status="200"} 1.0' in text
    labels = 'model="openai/gpt-test",provider="openai"'
    assert f"cllm_first_byte_seconds_count{{{labels}}}" in text


def test_the_gauge_of_a_killed_worker_is_removed(
    serve: Callable[..., Server], provider: FakeProvider, until: Callable[..., bool]
):
    server = serve("--workers", "2")
    provider.queue_held_reply("First ", "second.", at=1)
    stream = server.open(
        "POST",
        "/v1/chat/completions",
        {
            "model": "openai/gpt-test",
            "stream": True,
            "messages": [{"role": "user", "content": "x"}],
        },
    )
    stream.event()
    children = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children")
    for child in children.read_text(encoding="ascii").split():
        os.kill(int(child), signal.SIGKILL)
    stream.leave()

    def is_removed() -> bool:
        try:
            text = server("GET", "/metrics", timeout=5).body.decode()
        except (OSError, http.client.HTTPException):
            return False
        return "cllm_requests_running 1.0" in text

    assert until(is_removed)


def test_a_line_has_path_client_user_agent_and_provider(serve: Callable[..., Server]):
    server = serve()
    server.complete(("user", "Hello"), headers={"User-Agent": "curl/8.0 " + "x" * 1000})
    server("GET", "/nowhere/planted-path?q=planted-query", None, {"User-Agent": "planted-agent"})
    server.terminate()
    server.wait()

    turn, unknown = lines(server)
    assert (turn["route"], "path" in turn) == ("/v1/chat/completions", False)
    assert turn["client"] == "127.0.0.1"
    assert turn["user_agent"].startswith("curl/8.0 xxx")
    assert len(turn["user_agent"]) == 200
    assert (turn["provider"], turn["model"]) == ("openai", "openai/gpt-test")
    assert (unknown["path"], unknown["status"]) == ("/nowhere/planted-path", 404)
    assert (unknown["user_agent"], unknown["route"]) == ("planted-agent", None)
    assert "planted-query" not in server.log


def test_a_turn_in_a_branch_is_logged_as_ok(serve: Callable[..., Server], provider: FakeProvider):
    server = serve()
    gate = provider.queue_held_reply("First ", "second.", at=1)
    body = {"model": "openai/gpt-test", "messages": [{"role": "user", "content": "Hello"}]}
    stream = server.open(
        "POST", "/v1/chat/completions", {**body, "stream": True}, {"X-Conversation-ID": ""}
    )
    stream.event()
    conversation = stream.headers["x-conversation-id"]

    branch = server.complete(
        ("user", "More"), conversation=conversation, headers={"X-On-Conflict": "branch"}
    )
    gate.open()
    stream.rest()
    server.terminate()
    server.wait()

    assert branch.conversation != conversation
    assert [line["outcome"] for line in lines(server)] == ["ok", "ok"]


@pytest.mark.parametrize("headers", [{}, {"X-Conversation-ID": ""}])
def test_a_client_that_gives_up_is_logged_as_disconnected(
    serve: Callable[..., Server],
    provider: FakeProvider,
    headers: dict[str, str],
    until: Callable[..., bool],
):
    server = serve()
    gate = provider.queue_held_reply("Late.", at=0)
    body = {"model": "openai/gpt-test", "messages": [{"role": "user", "content": "Hello"}]}

    connection = http.client.HTTPConnection(server.host, server.port)
    connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
    provider.wait_for(1)
    connection.close()
    if headers:
        # A saved turn continues, so its line is written at its end.
        time.sleep(1)
        gate.open()

    assert until(lambda: list(lines(server)))
    (line,) = lines(server)
    assert (line["status"], line["outcome"]) == (499, "disconnected")


def test_a_body_that_the_client_does_not_finish_is_logged_as_disconnected(
    serve: Callable[..., Server], until: Callable[..., bool]
):
    server = serve()
    with socket.create_connection((server.host, server.port)) as connection:
        connection.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"
        )

    assert until(lambda: list(lines(server)))
    (line,) = lines(server)
    assert (line["status"], line["outcome"]) == (499, "disconnected")


def test_control_characters_of_a_client_are_escaped(serve: Callable[..., Server]):
    server = serve()
    server("GET", "/%C2%9B%C2%85%E2%80%A8", None, {"User-Agent": "agent\x9b\x85"})
    server.terminate()
    server.wait()

    (line,) = lines(server)
    assert (line["path"], line["user_agent"]) == ("/\x9b\x85\u2028", "agent\x9b\x85")
    assert not set(server.log) & set("\x9b\x85\u2028")

"""The log line of a request: its fields, and nothing else."""

import json
import logging
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.server_app import KEYS, SETTINGS_WITH_KEYS, open_server_app

from cllm import logs
from cllm.server.http.request_log import log_in_thread

PLANTED = ("planted-text", "planted-title", "planted-query", "planted-id", "planted-path")
KNOWN_FIELDS = {
    "time", "level", "logger", "message", "request", "method", "route", "status", "outcome", "ms",
    "first_byte_ms", "owner", "key", "conversation", "turn", "model", "stream",
    "messages", "system_prompt", "input_tokens", "output_tokens", "cache_read_tokens",
    "cache_write_tokens", "cost", "provider_message", "provider_request", "fault", "path", "client",
    "user_agent", "provider", "reason",
}  # fmt: skip


@pytest.fixture
def log_file(tmp_path):
    file = tmp_path / "server.log"
    logs.configure(as_json=True, file=file)
    yield file
    logger = logging.getLogger(logs.ROOT_LOGGER)
    for handler in logger.handlers:
        if type(handler) is logging.StreamHandler:
            handler.stream.close()
    logger.handlers.clear()


def read_lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


async def test_a_line_has_the_request_and_its_outcome(tmp_path, log_file):
    async with open_server_app(
        tmp_path, SETTINGS_WITH_KEYS, headers={"x-api-key": KEYS["alice"]}
    ) as server:
        conversation = await server.create_conversation(owner="alice")
        response = await server("GET", f"/v1/conversations/{conversation}")

    (line,) = read_lines(log_file)
    assert line["request"] == response.headers["x-request-id"]
    assert line["route"] == "/v1/conversations/{conversation_id}"
    assert (line["method"], line["status"], line["outcome"]) == ("GET", 200, "ok")
    assert line["conversation"] == conversation
    assert (line["owner"], line["key"]) == ("alice", "alice")
    assert line["ms"] >= line["first_byte_ms"] >= 0


@pytest.mark.parametrize("settings", ["", SETTINGS_WITH_KEYS], ids=["local", "keyed"])
async def test_a_line_of_a_route_without_authentication_has_no_owner(tmp_path, log_file, settings):
    async with open_server_app(tmp_path, settings) as server:
        await server("GET", "/ready")

    (line,) = read_lines(log_file)
    assert line["route"] == "/ready"
    assert not {"owner", "key"} & line.keys()


async def test_a_line_says_why_the_store_is_not_available(tmp_path, log_file):
    database = tmp_path / "cats.db"
    async with open_server_app(tmp_path, store=f"sqlite:{database}") as server:
        await server.create_conversation()
        with closing(sqlite3.connect(database)) as connection:
            connection.execute("ALTER TABLE conversations RENAME TO others")
        response = await server("GET", "/v1/conversations")

    (line,) = read_lines(log_file)
    assert response.status_code == 503
    assert line["outcome"] == "conversation_storage_unavailable"
    assert str(database) in line["reason"]
    assert "no such table" in line["reason"]
    assert str(database) not in response.text


async def test_no_client_text_and_no_key_is_logged(tmp_path, log_file):
    wrong = "planted-key-0123456789"
    async with open_server_app(tmp_path, SETTINGS_WITH_KEYS) as server:
        good = {"x-api-key": KEYS["alice"]}
        title = {"title": "planted-title", "metadata": {"x": "planted-text"}}
        completion = {
            "model": "nobody/planted-text",
            "messages": [{"role": "system", "content": "planted-text"}],
        }
        calls: list[tuple[str, str, dict[str, Any]]] = [
            ("POST", "/v1/conversations", {"json": title, "headers": good}),
            ("POST", "/v1/conversations", {"json": title, "headers": {"x-api-key": wrong}}),
            ("POST", "/v1/conversations", {"content": b"{planted-text", "headers": good}),
            ("GET", "/v1/conversations/search?q=planted-query", {"headers": good}),
            ("GET", "/v1/conversations/planted-id", {"headers": good}),
            ("GET", "/v1/conversations/a/messages/planted-id", {"headers": good}),
            ("GET", "/nowhere", {"headers": {"Authorization": f"Bearer {wrong}"}}),
            ("GET", "/health", {"headers": {"Host": "planted-text.example"}}),
            ("GET", "/health", {"headers": {"Origin": "https://planted-text.example"}}),
            ("POST", "/v1/chat/completions", {"json": completion, "headers": good}),
            (
                "POST",
                "/v1/chat/completions",
                {"json": completion, "headers": {**good, "X-Conversation-ID": "planted-id"}},
            ),
        ]
        for method, path, options in calls:
            await server(method, path, **options)

    log = log_file.read_text(encoding="utf-8")
    assert len(read_lines(log_file)) == len(calls)
    for text in (*PLANTED, wrong, *KEYS.values()):
        assert text not in log
    assert {name for line in read_lines(log_file) for name in line} <= KNOWN_FIELDS


async def test_a_bug_is_a_response_without_its_message_and_a_line_with_its_location(
    tmp_path, log_file, monkeypatch
):
    async with open_server_app(tmp_path) as server:

        async def fail(*_args, **_options):
            raise RuntimeError("planted-text at /home/somebody")

        monkeypatch.setattr(server.state.store, "list_conversations", fail)
        response = await server("GET", "/v1/conversations")

    assert response.status_code == 500
    assert response.json()["error"]["code"] == "internal_error"
    assert "planted" not in response.text
    assert "/home" not in response.text
    (line,) = read_lines(log_file)
    assert line["level"] == "error"
    assert re.fullmatch(r"RuntimeError( < cllm\.server\.[\w.]+:\d+)+", line["fault"])
    assert "planted" not in log_file.read_text(encoding="utf-8")


async def test_errors_are_logged_by_their_code(tmp_path, log_file):
    async with open_server_app(tmp_path) as server:
        await server("GET", "/v1/conversations/nobody")
        await server("GET", "/nowhere")
        await server("GET", "/health", headers={"Host": "evil.example"})

    assert [line["outcome"] for line in read_lines(log_file)] == [
        "invalid_conversation_id",
        "not_found",
        "host_not_allowed",
    ]


class TestLogThread:
    def test_all_lines_are_written_in_order_when_the_block_ends(self, log_file):
        with log_in_thread():
            for number in range(5_000):
                logs.log("server", logging.INFO, "request", number=number)

        assert [line["number"] for line in read_lines(log_file)] == list(range(5_000))

    def test_an_error_and_all_earlier_lines_are_written_immediately(self, log_file):
        with log_in_thread():
            for number in range(100):
                logs.log("server", logging.INFO, "request", number=number)
            logs.log("server", logging.ERROR, "request", number=100)

            assert [line["number"] for line in read_lines(log_file)] == list(range(101))

    def test_a_full_queue_loses_no_line(self, log_file, monkeypatch):
        monkeypatch.setattr("cllm.server.http.request_log.MAX_QUEUED", 1)
        with log_in_thread():
            for number in range(500):
                logs.log("server", logging.INFO, "request", number=number)

        assert len(read_lines(log_file)) == 500

    def test_a_traceback_is_not_written(self, log_file):
        with log_in_thread():
            error = RuntimeError("planted-text")
            logging.getLogger(logs.ROOT_LOGGER).error("failed: %s", "x", exc_info=error)

        (line,) = read_lines(log_file)
        assert line["message"] == "failed: x"
        assert "planted-text" not in log_file.read_text(encoding="utf-8")

    def test_lines_before_and_after_the_block_are_written_directly(self, log_file):
        logs.log("server", logging.INFO, "before")
        with log_in_thread():
            logs.log("server", logging.INFO, "within")
        logs.log("server", logging.INFO, "after")

        assert [line["message"] for line in read_lines(log_file)] == ["before", "within", "after"]

"""One line for every request, with what it lists and nothing else; counters and spans beside it."""

import json
import logging
import re
from pathlib import Path
from typing import Any

import pytest
from tests.server_app import KEYS, SETTINGS_WITH_KEYS, open_server_app

from cllm import logs
from cllm.core.reply import Usage
from cllm.server.http.metrics import MAX_MODELS, Metrics
from cllm.server.http.request_log import RequestRecord, log_in_thread

PLANTED = ("planted-text", "planted-title", "planted-query", "planted-id", "planted-path")
KNOWN_FIELDS = {
    "time", "level", "logger", "message", "request", "method", "route", "status", "outcome", "ms",
    "first_byte_ms", "owner", "key", "conversation", "turn", "model", "stream",
    "messages", "system_prompt", "input_tokens", "output_tokens", "cache_read_tokens",
    "cache_write_tokens", "cost", "fault",
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


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


async def test_a_line_says_what_was_asked_for_and_what_became_of_it(tmp_path, log_file):
    async with open_server_app(
        tmp_path, SETTINGS_WITH_KEYS, headers={"x-api-key": KEYS["alice"]}
    ) as server:
        conversation = await server.create_conversation(owner="alice")
        answer = await server("GET", f"/v1/conversations/{conversation}")

    (line,) = lines(log_file)
    assert line["request"] == answer.headers["x-request-id"]
    assert line["route"] == "/v1/conversations/{conversation_id}"
    assert (line["method"], line["status"], line["outcome"]) == ("GET", 200, "ok")
    assert line["conversation"] == conversation
    assert (line["owner"], line["key"]) == ("alice", "alice")
    assert line["ms"] >= line["first_byte_ms"] >= 0


async def test_nothing_that_was_said_and_no_key_is_in_the_log_whatever_happens(tmp_path, log_file):
    wrong = "planted-key-0123456789"
    async with open_server_app(tmp_path, SETTINGS_WITH_KEYS) as server:
        good = {"x-api-key": KEYS["alice"]}
        title = {"title": "planted-title", "metadata": {"x": "planted-text"}}
        said = {
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
            ("GET", "/planted-path", {"headers": {"Authorization": f"Bearer {wrong}"}}),
            ("GET", "/health", {"headers": {"Host": "planted-text.example"}}),
            ("GET", "/health", {"headers": {"Origin": "https://planted-text.example"}}),
            ("POST", "/v1/chat/completions", {"json": said, "headers": good}),
            (
                "POST",
                "/v1/chat/completions",
                {"json": said, "headers": {**good, "X-Conversation-ID": "planted-id"}},
            ),
        ]
        for method, path, options in calls:
            await server(method, path, **options)

    text = log_file.read_text(encoding="utf-8")
    assert len(lines(log_file)) == len(calls)
    for planted in (*PLANTED, wrong, *KEYS.values()):
        assert planted not in text
    assert {name for line in lines(log_file) for name in line} <= KNOWN_FIELDS


async def test_a_mistake_of_ours_is_an_answer_without_its_words_and_a_line_with_its_place(
    tmp_path, log_file, monkeypatch
):
    async with open_server_app(tmp_path) as server:

        async def fail(*_args, **_options):
            raise RuntimeError("planted-text at /home/somebody")

        monkeypatch.setattr(server.state.store, "list_conversations", fail)
        answer = await server("GET", "/v1/conversations")

    assert answer.status_code == 500
    assert answer.json()["error"]["code"] == "internal_error"
    assert "planted" not in answer.text
    assert "/home" not in answer.text
    (line,) = lines(log_file)
    assert line["level"] == "error"
    assert re.fullmatch(r"RuntimeError( < cllm\.server\.[\w.]+:\d+)+", line["fault"])
    assert "planted" not in log_file.read_text(encoding="utf-8")


async def test_errors_are_logged_by_their_code(tmp_path, log_file):
    async with open_server_app(tmp_path) as server:
        await server("GET", "/v1/conversations/nobody")
        await server("GET", "/nowhere")
        await server("GET", "/health", headers={"Host": "evil.example"})

    assert [line["outcome"] for line in lines(log_file)] == [
        "invalid_conversation_id",
        "not_found",
        "host_not_allowed",
    ]


class TestLogThread:
    def test_every_line_is_written_in_order_when_the_block_ends(self, log_file):
        with log_in_thread():
            for number in range(5_000):
                logs.log("server", logging.INFO, "request", number=number)

        assert [line["number"] for line in lines(log_file)] == list(range(5_000))

    def test_an_error_and_all_before_it_are_written_at_once(self, log_file):
        with log_in_thread():
            for number in range(100):
                logs.log("server", logging.INFO, "request", number=number)
            logs.log("server", logging.ERROR, "request", number=100)

            assert [line["number"] for line in lines(log_file)] == list(range(101))

    def test_a_full_queue_loses_no_line(self, log_file, monkeypatch):
        monkeypatch.setattr("cllm.server.http.request_log.MAX_QUEUED", 1)
        with log_in_thread():
            for number in range(500):
                logs.log("server", logging.INFO, "request", number=number)

        assert len(lines(log_file)) == 500

    def test_a_traceback_is_not_written(self, log_file):
        with log_in_thread():
            error = RuntimeError("planted-text")
            logging.getLogger(logs.ROOT_LOGGER).error("failed: %s", "x", exc_info=error)

        (line,) = lines(log_file)
        assert line["message"] == "failed: x"
        assert "planted-text" not in log_file.read_text(encoding="utf-8")

    def test_lines_before_and_after_the_block_are_written_directly(self, log_file):
        logs.log("server", logging.INFO, "before")
        with log_in_thread():
            logs.log("server", logging.INFO, "within")
        logs.log("server", logging.INFO, "after")

        assert [line["message"] for line in lines(log_file)] == ["before", "within", "after"]


class TestMetrics:
    async def test_requests_are_counted_by_route_and_status(self, tmp_path):
        async with open_server_app(tmp_path) as server:
            for path in ("/health", "/health", "/v1/conversations/nobody", "/nowhere"):
                await server("GET", path)
            text = (await server("GET", "/metrics")).text

        assert 'cllm_requests_total{route="/health",method="GET",status="200"} 2' in text
        assert (
            'cllm_requests_total{route="/v1/conversations/{conversation_id}",method="GET",'
            'status="400"} 1'
        ) in text
        assert 'route="none",method="GET",status="404"} 1' in text
        assert "cllm_requests_running 1" in text

    async def test_every_line_is_one_that_prometheus_reads(self, tmp_path):
        async with open_server_app(tmp_path) as server:
            await server("GET", "/health")
            answer = await server("GET", "/metrics")

        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        label = r'[a-z]+="(?:[^"\\\n]|\\.)*"'
        sample = re.compile(rf"[a-z_]+(?:\{{{label}(?:,{label})*\}})? -?[0-9.e+-]+")
        for line in answer.text.splitlines():
            assert line.startswith(("# HELP ", "# TYPE ")) or sample.fullmatch(line), line

    def test_a_histogram_adds_up(self):
        metrics = Metrics()
        for seconds in (0.001, 0.2, 1000.0):
            record = RequestRecord(request="r", method="GET", started=0.0, route="/x")
            record.seconds = seconds
            metrics.observe(record)

        text = metrics.render()
        assert 'cllm_request_seconds_bucket{route="/x",le="0.005"} 1' in text
        assert 'cllm_request_seconds_bucket{route="/x",le="0.25"} 2' in text
        assert 'cllm_request_seconds_bucket{route="/x",le="+Inf"} 3' in text
        assert 'cllm_request_seconds_count{route="/x"} 3' in text

    def test_tokens_and_costs_are_counted_by_model(self):
        metrics = Metrics()
        for cost in (0.5, None):
            record = RequestRecord(request="r", method="POST", started=0.0, model='m"1')
            record.usage, record.cost = Usage(input=3, output=2, cache_read=7), cost
            metrics.observe(record)

        text = metrics.render()
        assert r'cllm_tokens_total{model="m\"1",kind="cache_read"} 14' in text
        assert r'cllm_cost_dollars_total{model="m\"1"} 0.5' in text

    def test_a_provider_that_answers_to_any_name_does_not_make_a_series_for_each(self):
        metrics = Metrics()
        for number in range(2 * MAX_MODELS):
            record = RequestRecord(request="r", method="POST", started=0.0)
            record.model, record.usage = f"openai/{number}", Usage(input=1, output=1)
            metrics.observe(record)

        models = {line for line in metrics.render().splitlines() if 'kind="input"' in line}
        assert len(models) == MAX_MODELS + 1
        assert f'cllm_tokens_total{{model="others",kind="input"}} {MAX_MODELS}' in models

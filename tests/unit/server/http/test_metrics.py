"""Metrics in the format of Prometheus."""

import fcntl
import os
import re
from typing import Any

import pytest
from tests.server_app import KEYS, open_server_app

from cllm.core.reply import Usage
from cllm.server.http.metrics import (
    FOLDER_PREFIX,
    FOLDER_VARIABLE,
    MAX_MODELS,
    MAX_OUTCOMES,
    Metrics,
    share_metrics,
)
from cllm.server.http.request_log import RequestRecord

SEVERAL_OWNERS = """
server:
  keys:
    - {name: alice, owner: alice, key: "${KEY_OF_ALICE}"}
    - {name: operator, owner: operations, key: operator-0123456789, admin: true}
"""
ONE_OWNER = """
server:
  keys:
    - {name: alice, owner: alice, key: "${KEY_OF_ALICE}"}
    - {name: phone, owner: alice, key: phone-0123456789}
"""


def render(*records: RequestRecord) -> str:
    metrics = Metrics()
    for record in records:
        metrics.start_request()
        metrics.end_request(record)
    return metrics.render().decode()


def record_turn(**fields: Any) -> RequestRecord:
    values = {"provider": "openai", "model": "openai/gpt-test", "status": 200, **fields}
    return RequestRecord(request="r", method="POST", started=0.0, **values)


async def test_requests_are_counted_by_route_and_status(tmp_path):
    async with open_server_app(tmp_path) as server:
        for path in ("/health", "/health", "/v1/conversations/nobody", "/nowhere"):
            await server("GET", path)
        text = (await server("GET", "/metrics")).text

    assert 'cllm_requests_total{method="GET",outcome="ok",route="/health",status="200"} 2.0' in text
    assert (
        'cllm_requests_total{method="GET",outcome="invalid_conversation_id",'
        'route="/v1/conversations/{conversation_id}",status="400"} 1.0'
    ) in text
    assert 'outcome="not_found",route="none",status="404"} 1.0' in text
    assert "cllm_requests_running 1.0" in text


async def test_every_line_is_valid_for_prometheus(tmp_path):
    async with open_server_app(tmp_path) as server:
        await server("GET", "/health")
        response = await server("GET", "/metrics")

    assert response.headers["content-type"].startswith("text/plain; version=0.0.4")
    label = r'[a-z]+="(?:[^"\\\n]|\\.)*"'
    sample = re.compile(rf"[a-z_]+(?:\{{{label}(?:,{label})*\}})? -?[0-9.e+-]+")
    for line in response.text.splitlines():
        assert line.startswith(("# HELP ", "# TYPE ")) or sample.fullmatch(line), line


def test_histogram_buckets_are_cumulative():
    records = [
        RequestRecord(request="r", method="GET", started=0.0, route="/x", seconds=seconds)
        for seconds in (0.001, 0.2, 1000.0)
    ]

    text = render(*records)

    assert 'cllm_request_seconds_bucket{le="0.005",route="/x"} 1.0' in text
    assert 'cllm_request_seconds_bucket{le="0.25",route="/x"} 2.0' in text
    assert 'cllm_request_seconds_bucket{le="+Inf",route="/x"} 3.0' in text
    assert 'cllm_request_seconds_count{route="/x"} 3.0' in text


def test_tokens_and_costs_are_counted_by_provider_and_model():
    usage = Usage(input=3, output=2, cache_read=7)
    text = render(*(record_turn(model='m"1', usage=usage, cost=cost) for cost in (0.5, None)))

    labels = r'model="m\"1",provider="openai"'
    assert rf'cllm_tokens_total{{kind="cache_read",{labels}}} 14.0' in text
    assert rf"cllm_cost_dollars_total{{{labels}}} 0.5" in text
    assert r'cllm_turns_total{model="m\"1",outcome="ok",provider="openai"} 2.0' in text


def test_a_broken_stream_is_counted_by_its_outcome_with_its_time_to_first_byte():
    usage = Usage(input=1, output=1)
    text = render(
        record_turn(usage=usage, first_byte=0.3),
        record_turn(outcome="upstream_error", first_byte=0.3),
        record_turn(outcome="rate_limited", status=429, first_byte=0.3),
    )

    for outcome in ("ok", "upstream_error", "rate_limited"):
        labels = f'model="openai/gpt-test",outcome="{outcome}",provider="openai"'
        assert f"cllm_turns_total{{{labels}}} 1.0" in text
    assert 'cllm_first_byte_seconds_count{model="openai/gpt-test",provider="openai"} 2.0' in text


def test_a_model_that_never_replied_is_no_label():
    text = render(record_turn(model="openai/client-text", outcome="model_not_found", status=404))

    assert "client-text" not in text
    assert 'cllm_turns_total{model="others",outcome="model_not_found",provider="openai"}' in text


def test_the_number_of_models_is_limited():
    usage = Usage(input=1, output=1)
    text = render(
        *(record_turn(model=f"openai/{number}", usage=usage) for number in range(2 * MAX_MODELS))
    )

    models = {line for line in text.splitlines() if 'kind="input"' in line}
    assert len(models) == MAX_MODELS + 1
    others = f'cllm_tokens_total{{kind="input",model="others",provider="openai"}} {MAX_MODELS}.0'
    assert others in models


def test_the_number_of_outcomes_is_limited():
    outcomes = [f"provider_code_{number}" for number in range(2 * MAX_OUTCOMES)]
    text = render(*(record_turn(outcome=outcome, status=400) for outcome in outcomes))

    assert len(set(re.findall('outcome="([^"]*)"', text))) == MAX_OUTCOMES + 1


def test_negative_counts_of_a_provider_are_ignored():
    text = render(record_turn(usage=Usage(input=-5, output=2), cost=-1.0))

    assert 'kind="input",model="openai/gpt-test",provider="openai"} 0.0' in text


def test_the_folder_of_shared_metrics_is_deleted():
    with share_metrics():
        folder = os.environ[FOLDER_VARIABLE]
        assert os.path.isdir(folder)  # noqa: PTH112

    assert not os.path.exists(folder)  # noqa: PTH110
    assert FOLDER_VARIABLE not in os.environ


def test_the_folders_of_killed_servers_are_deleted(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    killed, running, young = (
        tmp_path / f"{FOLDER_PREFIX}{name}" for name in ("killed", "running", "young")
    )
    other = tmp_path / "other"
    for folder in (killed, running, young, other):
        folder.mkdir()
        (folder / "counter_7.db").write_bytes(b"x")
        if folder != young:
            os.utime(folder, (0, 0))
    (tmp_path / f"{FOLDER_PREFIX}link").symlink_to(other)
    lock = os.open(running, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)

    with share_metrics():
        left = {file.parent for file in tmp_path.glob("*/counter_7.db")}
    os.close(lock)

    assert left == {running, young, other, tmp_path / f"{FOLDER_PREFIX}link"}


def test_the_folder_of_shared_metrics_is_locked(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with share_metrics():
        os.utime(os.environ[FOLDER_VARIABLE], (0, 0))
        lock = os.open(os.environ[FOLDER_VARIABLE], os.O_RDONLY)
        with pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(lock)


@pytest.mark.parametrize(
    ("settings", "key", "status"),
    [
        (SEVERAL_OWNERS, KEYS["alice"], 403),
        (SEVERAL_OWNERS, "operator-0123456789", 200),
        (ONE_OWNER, KEYS["alice"], 200),
    ],
)
async def test_metrics_of_several_owners_need_an_admin_key(tmp_path, settings, key, status):
    async with open_server_app(tmp_path, settings, headers={"x-api-key": key}) as server:
        response = await server("GET", "/metrics")

    assert response.status_code == status
    if status == 403:
        assert response.json()["error"]["code"] == "admin_key_required"

"""Metrics in the format of Prometheus."""

import re

from tests.server_app import open_server_app

from cllm.core.reply import Usage
from cllm.server.http.metrics import MAX_MODELS, Metrics
from cllm.server.http.request_log import RequestRecord


async def test_requests_are_counted_by_route_and_status(tmp_path):
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


def test_tokens_and_costs_are_counted_by_model():
    metrics = Metrics()
    for cost in (0.5, None):
        record = RequestRecord(request="r", method="POST", started=0.0, model='m"1')
        record.usage, record.cost = Usage(input=3, output=2, cache_read=7), cost
        metrics.observe(record)

    text = metrics.render()
    assert r'cllm_tokens_total{model="m\"1",kind="cache_read"} 14' in text
    assert r'cllm_cost_dollars_total{model="m\"1"} 0.5' in text


def test_the_number_of_models_is_limited():
    metrics = Metrics()
    for number in range(2 * MAX_MODELS):
        record = RequestRecord(request="r", method="POST", started=0.0)
        record.model, record.usage = f"openai/{number}", Usage(input=1, output=1)
        metrics.observe(record)

    models = {line for line in metrics.render().splitlines() if 'kind="input"' in line}
    assert len(models) == MAX_MODELS + 1
    assert f'cllm_tokens_total{{model="others",kind="input"}} {MAX_MODELS}' in models

"""Spans have the fields of the log line and belong to the client's trace."""

import httpx
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from starlette.responses import PlainTextResponse

from cllm.server.http.metrics import Metrics
from cllm.server.http.middleware import HostRules, RequestMiddleware
from cllm.server.http.request_log import SCOPE_KEY
from cllm.server.http.tracing import find_span_starter, make_span_starter

TRACE = "0af7651916cd43dd8448eb211c80319c"


async def application(scope, receive, send):
    record = scope[SCOPE_KEY]
    record.route, record.model, record.cost = "/x", "openai/gpt-test", 0.5
    status = 500 if scope["path"] == "/broken" else 200
    await PlainTextResponse("planted-text", status)(scope, receive, send)


@pytest.fixture
def spans():
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return exporter, provider


async def call(provider, path: str) -> None:
    middleware = RequestMiddleware(
        application,
        rules=HostRules(names=None),
        metrics=Metrics(),
        new_id=lambda: "r1",
        start_span=make_span_starter(provider),
    )
    transport = httpx.ASGITransport(app=middleware)
    headers = {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"}
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        await client.get(path, headers=headers)


async def test_a_span_has_the_log_fields_and_belongs_to_the_clients_trace(spans):
    exporter, provider = spans

    await call(provider, "/planted-path")

    (span,) = exporter.get_finished_spans()
    assert span.name == "GET /x"
    assert format(span.context.trace_id, "032x") == TRACE
    assert span.attributes["cllm.request"] == "r1"
    assert span.attributes["cllm.model"] == "openai/gpt-test"
    assert span.attributes["http.response.status_code"] == 200
    assert "planted" not in span.to_json()


async def test_a_server_error_is_an_error_of_the_span(spans):
    exporter, provider = spans

    await call(provider, "/broken")

    (span,) = exporter.get_finished_spans()
    assert not span.status.is_ok


def test_without_configuration_there_are_no_spans():
    assert find_span_starter() is None

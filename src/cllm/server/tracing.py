"""Spans of requests, where OpenTelemetry's SDK is installed and configured; nothing otherwise.

A span has the fields of the request's line in the log and no others. Where it is sent is the
business of whoever configured OpenTelemetry.
"""

import sys
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, cast

from cllm.server.request_log import RequestRecord, fields_of

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider
    from opentelemetry.util.types import AttributeValue

EndSpan = Callable[[RequestRecord], None]
BeginSpan = Callable[[Mapping[str, str]], EndSpan]

API, SDK = "opentelemetry", "opentelemetry.sdk"
SPANS = f"{SDK}.trace"
FAILED = 500


def find_tracing() -> BeginSpan | None:
    """What begins a span for a request's headers; None where nobody would get it."""
    if find_spec(API) is None or find_spec(SDK) is None:
        return None
    from opentelemetry import trace  # noqa: PLC0415 - optional packages

    provider = trace.get_tracer_provider()
    if SPANS not in sys.modules:
        # Whoever configured it has imported it; loading it to learn that nobody did takes long.
        return None
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415

    return tracing_with(provider) if isinstance(provider, TracerProvider) else None


def tracing_with(provider: "TracerProvider") -> BeginSpan:
    """What begins spans of this provider's."""
    from opentelemetry import trace  # noqa: PLC0415 - optional packages
    from opentelemetry.trace.propagation.tracecontext import (  # noqa: PLC0415
        TraceContextTextMapPropagator,
    )

    tracer = provider.get_tracer("cllm")
    propagator = TraceContextTextMapPropagator()

    def begin(headers: Mapping[str, str]) -> EndSpan:
        parent = propagator.extract(headers)
        span = tracer.start_span("request", context=parent, kind=trace.SpanKind.SERVER)

        def end(record: RequestRecord) -> None:
            span.update_name(f"{record.method} {record.route or 'unknown route'}")
            for name, value in fields_of(record).items():
                if value is None:
                    continue
                span.set_attribute(f"cllm.{name}", cast("AttributeValue", value))
            span.set_attribute("http.response.status_code", record.status)
            if record.status >= FAILED:
                span.set_status(trace.StatusCode.ERROR, record.outcome)
            span.end()

        return end

    return begin

"""OpenTelemetry spans with the fields of the log line."""

import sys
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, cast

from cllm.server.http.request_log import RequestRecord, log_fields

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider
    from opentelemetry.util.types import AttributeValue

EndSpan = Callable[[RequestRecord], None]
StartSpan = Callable[[Mapping[str, str]], EndSpan]

API, SDK = "opentelemetry", "opentelemetry.sdk"
SERVER_ERROR = 500


def find_span_starter() -> StartSpan | None:
    """Return None if OpenTelemetry is not configured."""
    if find_spec(API) is None or find_spec(SDK) is None:
        return None
    from opentelemetry import trace  # noqa: PLC0415 - optional packages

    provider = trace.get_tracer_provider()
    if f"{SDK}.trace" not in sys.modules:
        # Configuring imports this module, which is slow.
        return None
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415

    return make_span_starter(provider) if isinstance(provider, TracerProvider) else None


def make_span_starter(provider: "TracerProvider") -> StartSpan:
    from opentelemetry import trace  # noqa: PLC0415 - optional packages
    from opentelemetry.trace.propagation.tracecontext import (  # noqa: PLC0415
        TraceContextTextMapPropagator,
    )

    tracer = provider.get_tracer("cllm")
    propagator = TraceContextTextMapPropagator()

    def start(headers: Mapping[str, str]) -> EndSpan:
        parent = propagator.extract(headers)
        span = tracer.start_span("request", context=parent, kind=trace.SpanKind.SERVER)

        def end(record: RequestRecord) -> None:
            span.update_name(f"{record.method} {record.route or 'unknown route'}")
            for name, value in log_fields(record).items():
                if value is not None:
                    span.set_attribute(f"cllm.{name}", cast("AttributeValue", value))
            span.set_attribute("http.response.status_code", record.status)
            if record.status >= SERVER_ERROR:
                span.set_status(trace.StatusCode.ERROR, record.outcome)
            span.end()

        return end

    return start

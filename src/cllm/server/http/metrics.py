"""Metrics in the text format of Prometheus: GET /metrics.

Labels are routes and models that replied, never client text: the number of series must stay small.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator

from starlette.requests import Request
from starlette.responses import Response

from cllm.core.reply import Usage
from cllm.server.http.request_log import RequestRecord

BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
NO_ROUTE = "none"
OTHER_MODELS = "others"
MAX_MODELS = 200
KINDS = ("input", "output", "cache_read", "cache_write", "reasoning")


class Metrics:
    def __init__(self) -> None:
        self.running = 0
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._durations: defaultdict[str, list[int]] = defaultdict(lambda: [0] * (len(BUCKETS) + 1))
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._usage: defaultdict[str, Usage] = defaultdict(Usage)
        self._cost: defaultdict[str, float] = defaultdict(float)

    def observe(self, record: RequestRecord) -> None:
        route = record.route or NO_ROUTE
        self._requests[route, record.method, record.status] += 1
        self._durations[route][bisect_left(BUCKETS, record.seconds)] += 1
        self._seconds[route] += record.seconds
        if record.model is not None and record.usage is not None:
            # A provider may accept any model name.
            is_known = record.model in self._usage or len(self._usage) < MAX_MODELS
            model = record.model if is_known else OTHER_MODELS
            self._usage[model] += record.usage
            if record.cost is not None:
                self._cost[model] += record.cost

    def render(self) -> str:
        return "".join(f"{line}\n" for line in self._lines())

    def _lines(self) -> Iterator[str]:
        yield from _header("cllm_requests_running", "gauge", "Requests in progress.")
        yield f"cllm_requests_running {self.running}"
        yield from _header("cllm_requests_total", "counter", "Completed requests.")
        for (route, method, status), count in self._requests.items():
            labels = _encode_labels(route=route, method=method, status=str(status))
            yield f"cllm_requests_total{labels} {count}"
        yield from _header("cllm_request_seconds", "histogram", "Duration of requests in seconds.")
        for route, buckets in self._durations.items():
            yield from _histogram(route, buckets, self._seconds[route])
        yield from _header("cllm_tokens_total", "counter", "Tokens by model and kind.")
        for model, usage in self._usage.items():
            for kind in KINDS:
                labels = _encode_labels(model=model, kind=kind)
                yield f"cllm_tokens_total{labels} {getattr(usage, kind)}"
        yield from _header(
            "cllm_cost_dollars_total", "counter", "Cost in US dollars of calls with a known price."
        )
        for model, cost in self._cost.items():
            yield f"cllm_cost_dollars_total{_encode_labels(model=model)} {cost}"


def _header(name: str, kind: str, help_text: str) -> Iterator[str]:
    yield f"# HELP {name} {help_text}"
    yield f"# TYPE {name} {kind}"


def _histogram(route: str, buckets: list[int], seconds: float) -> Iterator[str]:
    total = 0
    for limit, count in zip((*map(str, BUCKETS), "+Inf"), buckets, strict=True):
        total += count
        yield f"cllm_request_seconds_bucket{_encode_labels(route=route, le=limit)} {total}"
    yield f"cllm_request_seconds_sum{_encode_labels(route=route)} {seconds}"
    yield f"cllm_request_seconds_count{_encode_labels(route=route)} {total}"


def _encode_labels(**labels: str) -> str:
    pairs = (f'{name}="{_escape(value)}"' for name, value in labels.items())
    return "{" + ",".join(pairs) + "}"


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


async def get_metrics(request: Request) -> Response:
    """GET /metrics."""
    metrics: Metrics = request.app.state.metrics
    return Response(metrics.render(), media_type=CONTENT_TYPE)

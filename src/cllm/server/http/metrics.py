"""Metrics in the text format of Prometheus: GET /metrics.

Labels are routes, error codes, providers, and models that replied, never other client text: the
number of series must stay small. With several workers each writes its values to files, and
prometheus_client adds them up.
"""

import asyncio
import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from cllm.server.http.request_log import RequestRecord

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

FOLDER_PREFIX = "cllm-metrics-"
UNLOCKED_SECONDS = 60
"""A younger folder can be of a server that is about to lock it."""
FOLDER_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
NO_ROUTE = "none"
OTHERS = "others"
MAX_MODELS = 200
MAX_PROVIDERS = 50
MAX_OUTCOMES = 100
KINDS = ("input", "output", "cache_read", "cache_write", "reasoning")
SUCCESS = 200


@contextmanager
def share_metrics() -> Iterator[None]:
    """Let the processes that are forked inside the block share their metrics.

    Deletes the folders of servers that were killed. A folder is locked until the last process ends.
    """
    with TemporaryDirectory(prefix=FOLDER_PREFIX) as folder, _lock_folder(Path(folder)):
        _delete_unlocked_folders(Path(folder).parent)
        os.environ[FOLDER_VARIABLE] = folder
        try:
            yield
        finally:
            del os.environ[FOLDER_VARIABLE]


@contextmanager
def _lock_folder(folder: Path) -> Iterator[None]:
    """Lock a folder, not a link to one. Raises OSError if another process has the lock."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def _delete_unlocked_folders(parent: Path) -> None:
    """Delete the metrics of this user that no process has locked."""
    for folder in parent.glob(f"{FOLDER_PREFIX}*"):
        with suppress(OSError):
            found = folder.lstat()
            is_old = time.time() - found.st_mtime > UNLOCKED_SECONDS
            if is_old and found.st_uid == os.geteuid():
                with _lock_folder(folder):
                    shutil.rmtree(folder)


def remove_process(pid: int) -> None:
    """Remove the gauges of a process that has ended."""
    from prometheus_client.multiprocess import mark_process_dead  # noqa: PLC0415 - as in Metrics

    mark_process_dead(pid)  # type: ignore[no-untyped-call]


class Metrics:
    """The metrics of this process. Inside `share_metrics`, `render` has those of all processes."""

    def __init__(self) -> None:
        # Reads FOLDER_VARIABLE when it is imported.
        import prometheus_client as client  # noqa: PLC0415

        client.disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = registry = client.CollectorRegistry()
        self._running = client.Gauge(
            "cllm_requests_running",
            "Requests in progress.",
            multiprocess_mode="livesum",
            registry=registry,
        )
        self._requests = client.Counter(
            "cllm_requests",
            "Completed requests.",
            ("route", "method", "status", "outcome"),
            registry=registry,
        )
        self._seconds = client.Histogram(
            "cllm_request_seconds",
            "Duration of requests in seconds.",
            ("route",),
            buckets=BUCKETS,
            registry=registry,
        )
        self._turns = client.Counter(
            "cllm_turns",
            "Requests to a model.",
            ("provider", "model", "outcome"),
            registry=registry,
        )
        self._first_byte = client.Histogram(
            "cllm_first_byte_seconds",
            "Seconds until the first byte of a reply.",
            ("provider", "model"),
            buckets=BUCKETS,
            registry=registry,
        )
        self._tokens = client.Counter(
            "cllm_tokens",
            "Tokens by model and kind.",
            ("provider", "model", "kind"),
            registry=registry,
        )
        self._cost = client.Counter(
            "cllm_cost_dollars",
            "Cost in US dollars of calls with a known price.",
            ("provider", "model"),
            registry=registry,
        )
        self._not_recorded = client.Counter(
            "cllm_turns_not_recorded",
            "Turns of recorded clients that could not be saved.",
            ("reason",),
            registry=registry,
        )
        self._models: set[str] = set()
        self._providers: set[str] = set()
        self._outcomes: set[str] = set()

    def start_request(self) -> None:
        self._running.inc()

    def end_request(self, record: RequestRecord) -> None:
        self._running.dec()
        route = record.route or NO_ROUTE
        # A provider's own error code can be an outcome.
        outcome = _bound_label(record.outcome, self._outcomes, MAX_OUTCOMES)
        self._requests.labels(route, record.method, record.status, outcome).inc()
        self._seconds.labels(route).observe(record.seconds)
        if record.not_recorded is not None:
            self._not_recorded.labels(record.not_recorded).inc()
        if record.provider is not None and record.model is not None:
            self._count_turn(record, record.provider, outcome)

    def _count_turn(self, record: RequestRecord, provider: str, outcome: str) -> None:
        provider = _bound_label(provider, self._providers, MAX_PROVIDERS)
        model = self._model_label(record)
        self._turns.labels(provider, model, outcome).inc()
        if record.first_byte is not None and record.status == SUCCESS:
            self._first_byte.labels(provider, model).observe(record.first_byte)
        if record.usage is not None:
            for kind in KINDS:
                # Counters refuse negative numbers, and providers send what they like.
                count = max(getattr(record.usage, kind), 0)
                self._tokens.labels(provider, model, kind).inc(count)
        if record.cost is not None:
            self._cost.labels(provider, model).inc(max(record.cost, 0))

    def _model_label(self, record: RequestRecord) -> str:
        """A client may send any model name: only one that has replied is a label."""
        max_models = 0 if record.usage is None else MAX_MODELS
        return _bound_label(record.model or OTHERS, self._models, max_models)

    def render(self) -> bytes:
        from prometheus_client import generate_latest  # noqa: PLC0415 - as in __init__

        return generate_latest(self._open_registry())

    def _open_registry(self) -> "CollectorRegistry":
        if FOLDER_VARIABLE not in os.environ:
            return self._registry
        from prometheus_client import CollectorRegistry  # noqa: PLC0415
        from prometheus_client.multiprocess import MultiProcessCollector  # noqa: PLC0415

        registry = CollectorRegistry()
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return registry


def _bound_label(value: str, values: set[str], limit: int) -> str:
    """Return the value if it is one of the values, or the set has room for it; else `others`."""
    if len(values) < limit:
        values.add(value)
    return value if value in values else OTHERS


async def get_metrics(request: Request) -> Response:
    """GET /metrics."""
    metrics: Metrics = request.app.state.metrics
    return Response(await asyncio.to_thread(metrics.render), media_type=CONTENT_TYPE)

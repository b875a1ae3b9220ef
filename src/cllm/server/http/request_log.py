"""One line for every request: what was asked for and what became of it.

The record lists what it holds: ids, names, numbers and yes or no. What was said, a system prompt or
a key has no field in it, so none can be logged. While the server runs, a thread writes the lines.
"""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from logging.handlers import QueueHandler, QueueListener
from queue import SimpleQueue
from threading import Event

import msgspec
from starlette.requests import Request

from cllm.core.reply import Usage
from cllm.logs import ROOT, log

SCOPE_KEY = "cllm.record"
NAMED = (
    "owner",
    "key",
    "conversation",
    "turn",
    "model",
    "stream",
    "messages",
    "system_prompt",
    "cost",
    "fault",
)
MAX_QUEUED = 10_000
FLUSH_SECONDS = 1.0
BATCH_SECONDS = 0.1

_RecordQueue = SimpleQueue["logging.LogRecord | Event | None"]


class RequestRecord(msgspec.Struct, kw_only=True):
    """What is known of a request; filled in by whoever learns it, and logged at its end.

    `conversation`, `turn` and `model` are names that were looked up and found, never what a client
    wrote. `system_prompt` says whether the request had one. `outcome` is `ok`, the code of an
    error, or `disconnected`.
    """

    request: str
    method: str
    started: float
    route: str | None = None
    status: int = 0
    outcome: str = "ok"
    owner: str | None = None
    key: str | None = None
    conversation: str | None = None
    turn: str | None = None
    model: str | None = None
    stream: bool | None = None
    messages: int | None = None
    system_prompt: bool | None = None
    usage: Usage | None = None
    cost: float | None = None
    first_byte: float | None = None
    seconds: float = 0.0
    fault: str | None = None


def record_of(request: Request) -> RequestRecord:
    """The record of a request; one that nobody logs where the server's edge is not in front."""
    record: RequestRecord | None = request.scope.get(SCOPE_KEY)
    if record is None:
        record = RequestRecord(request="", method=request.method, started=time.monotonic())
        request.scope[SCOPE_KEY] = record
    return record


def log_request(record: RequestRecord) -> None:
    """Write the line."""
    level = logging.ERROR if record.fault is not None else logging.INFO
    log("server", level, "request", **fields_of(record))


def fields_of(record: RequestRecord) -> dict[str, object]:
    """The fields of the line, without those that say nothing."""
    fields: dict[str, object] = {
        "request": record.request,
        "method": record.method,
        "route": record.route,
        "status": record.status,
        "outcome": record.outcome,
        "ms": round(record.seconds * 1000, 1),
    }
    if record.first_byte is not None:
        fields["first_byte_ms"] = round(record.first_byte * 1000, 1)
    for name in NAMED:
        value = getattr(record, name)
        if value is not None:
            fields[name] = value
    usage = record.usage
    if usage is not None:
        fields["input_tokens"] = usage.prompt
        fields["output_tokens"] = usage.output + usage.reasoning
        fields["cache_read_tokens"] = usage.cache_read
        fields["cache_write_tokens"] = usage.cache_write
    return fields


class _QueueHandler(QueueHandler):
    """Queues records. Returns from a record of level ERROR, or with a full queue, after writing."""

    queue: _RecordQueue

    def __init__(self, queue: _RecordQueue, is_urgent: Event) -> None:
        super().__init__(queue)
        self._is_urgent = is_urgent

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        """Leave the record as it is: the default adds a traceback, which can hold client text."""
        return record

    def emit(self, record: logging.LogRecord) -> None:
        super().emit(record)
        if record.levelno >= logging.ERROR or self.queue.qsize() > MAX_QUEUED:
            written = Event()
            self.queue.put(written)
            self._is_urgent.set()
            written.wait(FLUSH_SECONDS)


class _QueueListener(QueueListener):
    """Writes records in batches: waking the thread for each record costs more than writing it."""

    queue: _RecordQueue

    def __init__(self, queue: _RecordQueue, is_urgent: Event, *handlers: logging.Handler) -> None:
        super().__init__(queue, *handlers, respect_handler_level=True)
        self._is_urgent = is_urgent

    def dequeue(self, block: bool) -> logging.LogRecord | Event | None:  # type: ignore[override]  # noqa: FBT001
        if not self.queue.empty():
            return self.queue.get(block)
        self._is_urgent.clear()
        record = self.queue.get(block)
        self._is_urgent.wait(BATCH_SECONDS)
        return record

    def handle(self, record: logging.LogRecord | Event) -> None:
        if isinstance(record, Event):
            record.set()
        else:
            super().handle(record)


@contextmanager
def log_in_thread() -> Iterator[None]:
    """Within the block a thread writes the log; every line is written when the block ends."""
    logger = logging.getLogger(ROOT)
    handlers = logger.handlers
    if not handlers:
        yield
        return
    queue: _RecordQueue = SimpleQueue()
    is_urgent = Event()
    listener = _QueueListener(queue, is_urgent, *handlers)
    logger.handlers = [_QueueHandler(queue, is_urgent)]
    listener.start()
    try:
        yield
    finally:
        logger.handlers = handlers
        is_urgent.set()
        listener.stop()

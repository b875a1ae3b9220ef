"""The log line of a request, written by a thread.

A line has no message of a conversation, system prompt or key: only IDs, names, numbers, the error
message of a provider or a store, and the client's address and user agent. It has the path, without
its query, only if no route has it.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from logging.handlers import QueueHandler, QueueListener
from queue import SimpleQueue
from threading import Event

import msgspec

from cllm.core.errors import CllmError, LocalModelError, ProviderError, StoreUnavailableError
from cllm.core.prompt import Prompt
from cllm.core.reply import Usage
from cllm.logs import ROOT_LOGGER, log

SCOPE_KEY = "cllm.record"
OK, DISCONNECTED = "ok", "disconnected"
MAX_TEXT_LENGTH = 200
"""Characters of a path or user agent."""
OPTIONAL_FIELDS = (
    "client",
    "user_agent",
    "owner",
    "key",
    "conversation",
    "turn",
    "provider",
    "model",
    "stream",
    "messages",
    "system_prompt",
    "cost",
    "provider_message",
    "provider_request",
    "reason",
    "not_recorded",
    "fault",
)
MAX_QUEUED = 10_000
FLUSH_SECONDS = 1.0
BATCH_SECONDS = 0.1

_RecordQueue = SimpleQueue["logging.LogRecord | Event | None"]


class RequestRecord(msgspec.Struct, kw_only=True):
    """The log fields of a request; each step adds some.

    Only `path` and `user_agent` are client text. `outcome` is `ok`, an error code or
    `disconnected`. `provider_request` is the provider's ID of a failed call. `reason` is the error
    of a store or a local model that is not available. `not_recorded` is the kind of error that kept
    the turn of a recorded client from being saved.
    """

    request: str
    method: str
    started: float
    path: str = ""
    client: str | None = None
    user_agent: str | None = None
    route: str | None = None
    status: int = 0
    outcome: str = OK
    owner: str | None = None
    key: str | None = None
    conversation: str | None = None
    turn: str | None = None
    provider: str | None = None
    model: str | None = None
    stream: bool | None = None
    messages: int | None = None
    system_prompt: bool | None = None
    usage: Usage | None = None
    cost: float | None = None
    first_byte: float | None = None
    seconds: float = 0.0
    provider_message: str | None = None
    provider_request: str | None = None
    reason: str | None = None
    not_recorded: str | None = None
    fault: str | None = None

    def record_error(self, error: Exception) -> None:
        """Record what the operator needs and the client does not see."""
        if isinstance(error, ProviderError):
            self.provider_message = error.provider_message
            self.provider_request = error.request_id
        elif isinstance(error, StoreUnavailableError | LocalModelError):
            self.reason = str(error)

    def record_unrecorded(self, error: CllmError) -> None:
        self.not_recorded = type(error).__name__
        self.record_error(error)

    def record_prompt(self, prompt: Prompt) -> None:
        roles = [message.role for message in prompt.messages]
        self.messages = len(roles)
        self.system_prompt = prompt.system is not None or "system" in roles


def log_request(record: RequestRecord) -> None:
    level = logging.ERROR if record.fault is not None else logging.INFO
    log("server", level, "request", **log_fields(record))


def log_fields(record: RequestRecord) -> dict[str, object]:
    fields: dict[str, object] = {
        "request": record.request,
        "method": record.method,
        "route": record.route,
        "status": record.status,
        "outcome": record.outcome,
        "ms": round(record.seconds * 1000, 1),
    }
    if record.route is None:
        fields["path"] = record.path
    if record.first_byte is not None:
        fields["first_byte_ms"] = round(record.first_byte * 1000, 1)
    values = msgspec.structs.asdict(record)
    fields |= {name: values[name] for name in OPTIONAL_FIELDS if values[name] is not None}
    usage = record.usage
    if usage is not None:
        fields["input_tokens"] = usage.prompt
        fields["output_tokens"] = usage.output + usage.reasoning
        fields["cache_read_tokens"] = usage.cache_read
        fields["cache_write_tokens"] = usage.cache_write
    return fields


class _QueueHandler(QueueHandler):
    """Queues records; waits for the thread after an ERROR or if the queue is full."""

    queue: _RecordQueue

    def __init__(self, queue: _RecordQueue, is_urgent: Event) -> None:
        super().__init__(queue)
        self._is_urgent = is_urgent

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        """Return the record unchanged: the default adds a traceback with client text."""
        return record

    def emit(self, record: logging.LogRecord) -> None:
        super().emit(record)
        if record.levelno >= logging.ERROR or self.queue.qsize() > MAX_QUEUED:
            written = Event()
            self.queue.put(written)
            self._is_urgent.set()
            written.wait(FLUSH_SECONDS)


class _QueueListener(QueueListener):
    """Writes in batches, because waking the thread for each record is slow."""

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
    """Let a thread write the log inside the block."""
    logger = logging.getLogger(ROOT_LOGGER)
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

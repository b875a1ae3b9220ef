"""Log records with a message and named fields, as text or JSON, without known secrets."""

import logging
import os
import re
import stat
import sys
import traceback
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, TextIO

import msgspec

from cllm.core.errors import CllmError, ProviderError, SettingsError
from cllm.core.secret import redact_secrets
from cllm.terminal import make_visible

ROOT_LOGGER = "cllm"
TRACE = 5
SAFE_MODULES = frozenset(("sqlite3", "asyncpg", "sqlalchemy", "aiohttp"))
"""Libraries whose error messages contain no text of a client."""
# JSON allows them raw, but terminals obey C1 controls, and many programs split lines at separators.
_RAW_CONTROLS = re.compile("[\x7f-\x9f\u2028\u2029]")
LEVELS = (logging.WARNING, logging.INFO, logging.DEBUG, TRACE)


def log(name: str, level: int, message: str, **fields: Any) -> None:
    """Log a message with fields; cheap if there is no handler."""
    logger = _logger(f"{ROOT_LOGGER}.{name}")
    if _logger(ROOT_LOGGER).handlers and logger.isEnabledFor(level):
        # Logger.log would find the caller's frame, which is slow and never printed.
        record = logging.LogRecord(logger.name, level, "", 0, message, None, None)
        record.fields = fields
        logger.handle(record)


def log_error(name: str, error: CllmError) -> None:
    """Log an error, with the provider's ID of a failed call."""
    fields = {"kind": type(error).__name__}
    if isinstance(error, ProviderError) and error.request_id is not None:
        fields["provider_request"] = error.request_id
    log(name, logging.ERROR, str(error), **fields)


@cache
def _logger(name: str) -> logging.Logger:
    return logging.getLogger(name)


def configure(
    *,
    verbosity: int = 0,
    as_json: bool = False,
    file: Path | None = None,
    secrets: Iterable[str] = (),
) -> None:
    """Log to stderr if `verbosity` is at least 1, and to the file at INFO or lower levels."""
    logger = logging.getLogger(ROOT_LOGGER)
    logger.propagate = False
    # If the log cannot be written, no traceback may appear in a reply.
    logging.raiseExceptions = False
    # No line contains the thread, process or task, so logging need not find them.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logger.handlers.clear()
    level = LEVELS[min(max(verbosity, 0), len(LEVELS) - 1)]
    targets = [(sys.stderr, level)] if verbosity > 0 else []
    if file is not None:
        targets.append((_open_file(file), min(level, logging.INFO)))
    formatter = _Formatter(as_json=as_json, secrets=tuple(secrets))
    for stream, minimum in targets:
        handler = logging.StreamHandler(stream)
        handler.setLevel(minimum)
        handler.setFormatter(formatter)
        logger.addHandler(handler)
    if not targets:
        logger.addHandler(logging.NullHandler())
    logger.setLevel(min((minimum for _, minimum in targets), default=logging.CRITICAL + 1))


def describe_exception(error: BaseException) -> str:
    """Return the types of an exception and its causes, with their frames in cllm, innermost first.

    Messages can contain a client's text: only those of SAFE_MODULES and the system are included.
    """
    return "; caused by ".join(map(_describe, _causes(error)))


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _describe(error: BaseException) -> str:
    kind = type(error)
    modules = {one.__module__.partition(".")[0] for one in kind.__mro__}
    has_safe_text = isinstance(error, OSError) or bool(modules & SAFE_MODULES)
    text = f": {error}" if has_safe_text else ""
    frames = [
        f"{frame.f_globals['__name__']}:{line}"
        for frame, line in traceback.walk_tb(error.__traceback__)
        if frame.f_globals.get("__name__", "").partition(".")[0] == ROOT_LOGGER
    ]
    return f"{kind.__name__}{text}" + "".join(f" < {frame}" for frame in reversed(frames))


def include_library(name: str) -> None:
    """Write the warnings of a library to cllm's log."""
    logger = logging.getLogger(name)
    logger.handlers = list(logging.getLogger(ROOT_LOGGER).handlers)
    logger.setLevel(logging.WARNING)
    logger.propagate = False


def _open_file(path: Path) -> TextIO:
    """Open a regular file for appending; only its owner can read it."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
        flags |= os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(path, flags, 0o600)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise SettingsError(f"the log file {path} is not a regular file; choose another path.")
        os.fchmod(descriptor, 0o600)
    except OSError as error:
        reason = os.strerror(error.errno or 0).lower()
        raise SettingsError(
            f"the log file {path} cannot be written ({reason}); choose another path."
        ) from error
    return os.fdopen(descriptor, "a", encoding="utf-8", errors="replace")


class _Formatter(logging.Formatter):
    def __init__(self, *, as_json: bool, secrets: tuple[str, ...]) -> None:
        super().__init__()
        self._as_json = as_json
        self._secrets = secrets
        # Each secret as plain text and as JSON.
        self._encoded_secrets = frozenset(
            text for secret in secrets for text in (secret, _encode(secret)[1:-1]) if text
        )

    def format(self, record: logging.LogRecord) -> str:
        message, fields = record.getMessage(), getattr(record, "fields", {})
        line = self._line(record, message, fields)
        if any(secret in line for secret in self._encoded_secrets):
            line = self._line(record, self._redact(message), self._redact(fields))
        return line if self._as_json else make_visible(line)

    def _line(self, record: logging.LogRecord, message: str, fields: dict[str, Any]) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        if self._as_json:
            head = {"time": at, "level": record.levelname.lower(), "logger": record.name}
            return _encode({**head, "message": message, **fields})
        pairs = "".join(
            f" {name}={value if isinstance(value, str) else _encode(value)}"
            for name, value in fields.items()
        )
        return f"{at} {record.levelname} {record.name}: {message}{pairs}"

    def _redact(self, value: Any) -> Any:
        if isinstance(value, str):
            return redact_secrets(value, self._secrets)
        if isinstance(value, dict):
            return {name: self._redact(item) for name, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._redact(item) for item in value]
        return value


def _encode(value: Any) -> str:
    text = msgspec.json.encode(value, enc_hook=str).decode()
    return _RAW_CONTROLS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


logging.addLevelName(TRACE, "TRACE")

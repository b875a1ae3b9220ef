"""Logs: what cllm did, for whoever asks to see it. Never a key, and nothing at all by default.

A record is a sentence and named fields. What a field holds is chosen where it is logged; on top of
that every known secret is blotted out of every line.
"""

import logging
import os
import stat
import sys
import traceback
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from cllm.core.errors import SettingsError
from cllm.core.secret import without_secrets
from cllm.terminal import make_visible

ROOT = "cllm"
EVERYTHING = 5
SAFE_MODULES = frozenset(("sqlite3", "asyncpg", "sqlalchemy", "aiohttp"))
"""Libraries whose errors hold no words of a client."""
LEVELS = (logging.WARNING, logging.INFO, logging.DEBUG, EVERYTHING)


class LogSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How much is logged, in which form, and where to beside standard error."""

    verbosity: int = 0
    as_json: bool = False
    file: Path | None = None


def log(name: str, level: int, message: str, **fields: Any) -> None:
    """Log a sentence with its fields; costs next to nothing where nobody listens."""
    logger = _logger(f"{ROOT}.{name}")
    if _logger(ROOT).handlers and logger.isEnabledFor(level):
        # Made here, as where it was logged is nowhere told and costly to find out.
        record = logging.LogRecord(logger.name, level, "", 0, message, None, None)
        record.fields = fields
        logger.handle(record)


@cache
def _logger(name: str) -> logging.Logger:
    return logging.getLogger(name)


def configure(settings: LogSettings, *, secrets: Iterable[str]) -> None:
    """Begin to log as the settings say; without any wish, log nothing."""
    logger = logging.getLogger(ROOT)
    logger.propagate = False
    # A log that cannot be written is no reason to show a traceback in the middle of an answer.
    logging.raiseExceptions = False
    # No line says which thread, process or task it is of, so none has to be found out.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logger.handlers.clear()
    formatter = _Formatter(
        as_json=settings.as_json,
        secrets=tuple(secrets),
    )
    wished = LEVELS[min(max(settings.verbosity, 0), len(LEVELS) - 1)]
    if settings.verbosity > 0:
        _add(logger, logging.StreamHandler(sys.stderr), wished, formatter)
    if settings.file is not None:
        level = min(wished, logging.INFO)
        _add(logger, logging.StreamHandler(_opened(settings.file)), level, formatter)
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())
        logger.setLevel(logging.CRITICAL + 1)


def describe_exception(error: BaseException) -> str:
    """Return the types of an exception and of its causes, each with the frames of ours.

    A frame is `module:line`, the innermost first. The text of an exception can hold the words of a
    client, so it is left out; that of errors of the system, a database or aiohttp is not.
    """
    return "; caused by ".join(_described(one) for one in _causes(error))


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _described(error: BaseException) -> str:
    kind = type(error)
    modules = {one.__module__.partition(".")[0] for one in kind.__mro__}
    has_safe_text = isinstance(error, OSError) or bool(modules & SAFE_MODULES)
    text = f": {error}" if has_safe_text else ""
    frames = [
        f"{frame.f_globals['__name__']}:{line}"
        for frame, line in traceback.walk_tb(error.__traceback__)
        if frame.f_globals.get("__name__", "").partition(".")[0] == ROOT
    ]
    return f"{kind.__name__}{text}" + "".join(f" < {frame}" for frame in reversed(frames))


def include(name: str) -> None:
    """Let warnings of a library be lines of our log, in its form and without secrets."""
    logger = logging.getLogger(name)
    logger.handlers = list(logging.getLogger(ROOT).handlers)
    logger.setLevel(logging.WARNING)
    logger.propagate = False


def _add(
    logger: logging.Logger, handler: logging.Handler, level: int, formatter: logging.Formatter
) -> None:
    handler.setLevel(level)
    handler.setFormatter(formatter)
    logger.addHandler(handler)
    logger.setLevel(min(handler.level for handler in logger.handlers))


def _opened(path: Path) -> Any:
    """The log file, for its owner's eyes only; an ordinary file, at whose end is written."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
        flags |= os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(path, flags, 0o600)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise SettingsError(f"the log file {path} is not an ordinary file.")
        os.fchmod(descriptor, 0o600)
    except OSError as error:
        reason = os.strerror(error.errno or 0).lower()
        raise SettingsError(f"the log file {path} cannot be written ({reason}).") from error
    return os.fdopen(descriptor, "a", encoding="utf-8", errors="replace")


class _Formatter(logging.Formatter):
    """One line for a record, as text or as JSON, without secrets and without control characters."""

    def __init__(self, *, as_json: bool, secrets: tuple[str, ...]) -> None:
        super().__init__()
        self._as_json = as_json
        self._secrets = secrets
        # Each as it stands, and as it stands in JSON.
        self._written_secrets = frozenset(
            written for secret in secrets for written in (secret, _encoded(secret)[1:-1]) if written
        )

    def format(self, record: logging.LogRecord) -> str:
        message, fields = record.getMessage(), getattr(record, "fields", {})
        line = self._line(record, message, fields)
        if any(secret in line for secret in self._written_secrets):
            line = self._line(record, self._blotted(message), self._blotted(fields))
        return line if self._as_json else make_visible(line)

    def _line(self, record: logging.LogRecord, message: str, fields: dict[str, Any]) -> str:
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        if self._as_json:
            head = {"time": at, "level": record.levelname.lower(), "logger": record.name}
            return _encoded({**head, "message": message, **fields})
        named = "".join(f" {name}={_shown(value)}" for name, value in fields.items())
        return f"{at} {record.levelname} {record.name}: {message}{named}"

    def _blotted(self, value: Any) -> Any:
        """A value without the secrets in it, before it is written in a form that escapes them."""
        if isinstance(value, str):
            return without_secrets(value, self._secrets)
        if isinstance(value, dict):
            return {name: self._blotted(item) for name, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._blotted(item) for item in value]
        return value


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else _encoded(value)


def _encoded(value: Any) -> str:
    return msgspec.json.encode(value, enc_hook=str).decode()


logging.addLevelName(EVERYTHING, "TRACE")

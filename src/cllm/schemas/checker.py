"""Adds a schema to the request; checks it and each reply in a child process (`checker_process`)."""

import contextlib
import os
import re
import subprocess
import sys
import threading
from collections.abc import Mapping
from typing import Any, Self

import msgspec

from cllm.core.errors import CllmError, ReplySchemaError, SchemaError
from cllm.core.reply import ReplyFinished
from cllm.schemas.loader import Schema

SCHEMA_CHECK_SECONDS = 10.0
REPLY_CHECK_SECONDS = 5.0
PASSED_VARIABLES = (
    "LANG",
    "LC_ALL",
    "LD_LIBRARY_PATH",
    "PATH",
    "PYTHONHOME",
    "PYTHONPATH",
    "VIRTUAL_ENV",
)
DEFAULT_NAME = "reply"
MAX_NAME_LENGTH = 64
INVALID_IN_NAME = re.compile(r"[^a-zA-Z0-9_-]+")
# Keywords that OpenAI's strict mode accepts; it refuses a request with any other keyword.
STRICT_KEYWORDS = frozenset(
    (
        *("$defs", "$ref", "$schema", "additionalProperties", "anyOf", "const", "definitions"),
        *("description", "enum", "exclusiveMaximum", "exclusiveMinimum", "format", "items"),
        *("maxItems", "maximum", "minItems", "minimum", "multipleOf", "pattern", "properties"),
        *("required", "title", "type"),
    )
)
MAPPINGS = ("properties", "$defs", "definitions")


class SchemaOutline(msgspec.Struct, frozen=True, kw_only=True):
    draft: str
    type: str | list[str] | None = None
    properties: list[str] = []
    required: list[str] = []


class _Finding(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    problem: str
    of_schema: bool = False


class _Answer(msgspec.Struct, frozen=True, kw_only=True):
    finding: _Finding | None = None
    about: SchemaOutline | None = None


class SchemaChecker:
    def __init__(
        self,
        schema: Schema,
        environment: Mapping[str, str],
        *,
        seconds: float = REPLY_CHECK_SECONDS,
    ) -> None:
        self.schema = schema
        self._seconds = seconds
        self._child = _start_process(environment)
        try:
            self.about = self._check_schema()
        except BaseException:
            self.close()
            raise

    def accept(self, reply: ReplyFinished) -> None:
        """Raise ReplySchemaError unless the reply's text is JSON that matches the schema."""
        text = reply.message.text
        answer = self._request(text, self._seconds, "checking the reply against it")
        if answer.finding is None:
            return
        if answer.finding.of_schema:
            raise self._schema_error(answer.finding)
        problem = answer.finding.problem
        if reply.stop_reason == "length":
            problem += " (the reply reached its token limit; increase --max-tokens)"
        elif reply.stop_reason == "context_window":
            problem += " (the reply filled the context window)"
        raise ReplySchemaError(problem, place=answer.finding.path)

    def close(self) -> None:
        self._child.kill()
        self._child.wait()
        for pipe in (self._child.stdin, self._child.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _check_schema(self) -> SchemaOutline:
        limit = SCHEMA_CHECK_SECONDS + self._seconds
        answer = self._request(self.schema.content, limit, "checking it")
        if answer.finding is not None:
            raise self._schema_error(answer.finding)
        return answer.about or SchemaOutline(draft="unknown")

    def _schema_error(self, finding: _Finding) -> SchemaError:
        return SchemaError(
            f"{finding.problem}; correct the schema.", source=self.schema.source, place=finding.path
        )

    def _request(self, value: Any, seconds: float, action: str) -> _Answer:
        """Send the child process a line, return its answer. Raises SchemaError after `seconds`."""
        pipes: Any = self._child
        expired = threading.Event()

        def stop() -> None:
            expired.set()
            self._child.kill()

        timer = threading.Timer(seconds, stop)
        timer.start()
        try:
            pipes.stdin.write(msgspec.json.encode(value) + b"\n")
            pipes.stdin.flush()
            return msgspec.json.decode(pipes.stdout.readline(), type=_Answer)
        except (OSError, msgspec.DecodeError) as error:
            problem = f"{action} failed, perhaps because memory ran out; make it simpler."
            if expired.is_set():
                problem = (
                    f"{action} took more than {seconds:g} s and was stopped; make its patterns and "
                    "references simpler."
                )
            raise SchemaError(problem, source=self.schema.source) from error
        finally:
            timer.cancel()


def _start_process(environment: Mapping[str, str]) -> "subprocess.Popen[bytes]":
    try:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "cllm.schemas.checker_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={name: environment[name] for name in PASSED_VARIABLES if name in environment},
            start_new_session=True,
        )
    except OSError as error:
        reason = os.strerror(error.errno or 0).lower()
        raise CllmError(f"The process that checks replies cannot be started ({reason}).") from error


def response_format(schema: dict[str, Any]) -> dict[str, Any]:
    json_schema: dict[str, Any] = {"name": _schema_name(schema), "schema": schema}
    if _is_type(schema, "object") and fits_strict_mode(schema):
        json_schema["strict"] = True
    return {"type": "json_schema", "json_schema": json_schema}


def fits_strict_mode(schema: Any) -> bool:
    """Whether strict mode accepts the schema: objects require all properties and no others."""
    if not isinstance(schema, dict) or not schema.keys() <= STRICT_KEYWORDS:
        return False
    if "properties" in schema or _is_type(schema, "object"):
        required = schema.get("required", [])
        if schema.get("additionalProperties") is not False or not isinstance(required, list):
            return False
        if sorted(map(str, required)) != sorted(_mapping(schema, "properties")):
            return False
    inner = [item for key in MAPPINGS for item in _mapping(schema, key).values()]
    if isinstance(schema.get("anyOf"), list):
        inner += schema["anyOf"]
    if "items" in schema:
        inner.append(schema["items"])
    return all(map(fits_strict_mode, inner))


def _mapping(schema: dict[str, Any], key: str) -> dict[str, Any]:
    value = schema.get(key)
    return value if isinstance(value, dict) else {}


def _is_type(schema: dict[str, Any], name: str) -> bool:
    kind = schema.get("type")
    return kind == name or (isinstance(kind, list) and name in kind)


def _schema_name(schema: dict[str, Any]) -> str:
    title = schema.get("title")
    name = INVALID_IN_NAME.sub("_", title).strip("_") if isinstance(title, str) else ""
    return name[:MAX_NAME_LENGTH] or DEFAULT_NAME

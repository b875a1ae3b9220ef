"""The process that checks replies against a schema: `python -m cllm.schemas.checker_process`.

A pattern or a reference can run for ever, so the parent must be able to kill the check. The first
line of standard input is the schema, every further line a reply; each is answered with one line.
References resolve in the schema and the drafts only.
"""

import contextlib
import json
import re
import resource
import sys
from collections.abc import Iterable
from itertools import islice
from typing import Any, NamedTuple

from jsonschema import Draft202012Validator
from jsonschema.exceptions import UndefinedTypeCheck, UnknownType, ValidationError, best_match
from jsonschema.validators import validator_for
from jsonschema_specifications import REGISTRY as SPECIFICATIONS
from referencing.exceptions import Unresolvable
from referencing.jsonschema import UnknownDialect, specification_with

from cllm.schemas.strict_json import NotJsonError, decode

MEMORY_BYTES = 2 * 1024 * 1024 * 1024
CPU_SECONDS = 60
MAX_ERRORS = 50
MAX_NAMES = 8
MAX_PATTERN_LENGTH = 1000
MAX_QUOTE_LENGTH = 60
PLAIN_KEY = re.compile(r"[A-Za-z_$][A-Za-z0-9_-]*")
JSON_TYPES: dict[type, str] = {
    bool: "boolean",
    dict: "object",
    float: "number",
    int: "integer",
    list: "array",
    str: "string",
    type(None): "null",
}


# Errors of jsonschema for parts that a draft's meta-schema does not check.
MALFORMED = (
    AttributeError,
    LookupError,
    TypeError,
    UndefinedTypeCheck,
    UnknownDialect,
    UnknownType,
    ValueError,
    re.error,
)


class SchemaViolation(NamedTuple):
    """`of_schema`: the schema is wrong, not the reply."""

    path: str
    problem: str
    of_schema: bool = False


def check_schema(schema: dict[str, Any]) -> SchemaViolation | None:
    draft = _draft(schema)
    if draft is None:
        return SchemaViolation("$.$schema", "it names an unknown draft")
    try:
        errors = draft(draft.META_SCHEMA, registry=SPECIFICATIONS).iter_errors(schema)
        error = best_match(islice(errors, MAX_ERRORS))
        if error is not None:
            return SchemaViolation(json_path(error.absolute_path), _schema_problem(error))
        return _find_in_parts(schema, draft.META_SCHEMA["$schema"])
    except (RecursionError, MemoryError):
        return SchemaViolation("$", "it is too large to check")
    except MALFORMED:
        return SchemaViolation("$", "a part of it is not a schema")


def check_reply(schema: dict[str, Any], text: str) -> SchemaViolation | None:
    draft = _draft(schema) or Draft202012Validator
    try:
        errors = draft(schema, registry=SPECIFICATIONS).iter_errors(decode(text))
        error = best_match(islice(errors, MAX_ERRORS))
    except NotJsonError as problem:
        return SchemaViolation("$", str(problem))
    except Unresolvable as reference:
        return _unresolved_reference(str(reference.ref))
    except MALFORMED:
        return SchemaViolation("$", "a reference in it does not point to a schema", of_schema=True)
    except (RecursionError, MemoryError):
        return SchemaViolation(
            "$", "it refers to itself without end, or is too large", of_schema=True
        )
    return (
        None
        if error is None
        else SchemaViolation(json_path(error.absolute_path), describe_error(error))
    )


def outline(schema: dict[str, Any]) -> dict[str, Any]:
    draft = _draft(schema) or Draft202012Validator
    dialect = draft.META_SCHEMA["$schema"]  # such as https://json-schema.org/draft/2020-12/schema
    required = schema.get("required")
    return {
        "draft": dialect.rstrip("#").split("/")[-2].removeprefix("draft-"),
        "type": schema.get("type"),
        "properties": list(schema.get("properties") or {}),
        "required": required if isinstance(required, list) else [],
    }


def json_path(path: Iterable[str | int]) -> str:
    """Return a path as JSONPath: `$.items[0].name`."""
    result = "$"
    for step in path:
        if isinstance(step, int):
            result += f"[{step}]"
        else:
            result += f".{step}" if PLAIN_KEY.fullmatch(step) else f"[{_quote(step)}]"
    return result


def describe_error(error: ValidationError) -> str:
    expected, instance = error.validator_value, error.instance
    match error.validator:
        case None:
            problem = "no value is allowed here"
        case "additionalProperties":
            properties = error.schema.get("properties", {})
            is_named = expected is False and not error.schema.get("patternProperties")
            names = _join_names(name for name in instance if name not in properties)
            problem = f"{names if is_named else 'a property of it'} is not allowed"
        case "anyOf" | "oneOf":
            quantity = "any" if error.validator == "anyOf" else "exactly one"
            problem = (
                f"{_quote(instance)} does not match {quantity} of the {len(expected)} alternatives"
            )
        case "const":
            problem = f"must be {_quote(expected)}, but is {_quote(instance)}"
        case "enum":
            problem = f"must be one of {_shorten(_join_names(expected))}, but is {_quote(instance)}"
        case "pattern":
            problem = f"{_quote(instance)} does not match the pattern {_quote(expected)}"
        case "required" if isinstance(expected, list):
            problem = f"{_join_names(name for name in expected if name not in instance)} is missing"
        case "required":
            problem = "it is missing"
        case "type":
            types = [expected] if isinstance(expected, str) else expected
            name = JSON_TYPES.get(type(instance), "something else")
            problem = f"must be {' or '.join(map(str, types))}, but is {name}"
        case keyword:
            rule = f"{keyword}: {_shorten(_json(expected))}"
            problem = f"{_quote(instance)} does not satisfy `{rule}`"
    return problem


def _schema_problem(error: ValidationError) -> str:
    if list(error.absolute_path)[-1:] == ["type"]:
        return f"{_quote(error.instance)} is not a JSON type"
    return describe_error(error)


def _find_in_parts(schema: dict[str, Any], dialect: str) -> SchemaViolation | None:
    """Find references out of the schema and invalid patterns."""
    root = specification_with(dialect).create_resource(schema)
    resolver = SPECIFICATIONS.resolver_with_root(root)
    pending, seen = [(root, resolver)], set[int]()
    while pending:
        part, resolver = pending.pop()
        contents = part.contents
        if id(contents) in seen or not isinstance(contents, dict):
            continue
        seen.add(id(contents))
        finding = _pattern_finding(contents)
        if finding is not None:
            return finding
        for keyword in ("$ref", "$dynamicRef", "$recursiveRef"):
            reference = contents.get(keyword)
            if not isinstance(reference, str):
                continue
            try:
                target = resolver.lookup(reference)
            except (Unresolvable, UnknownDialect, ValueError, TypeError):
                return _unresolved_reference(reference)
            # The target has the draft of the part that refers to it.
            referenced = part._specification.create_resource(target.contents)  # noqa: SLF001
            pending.append((referenced, target.resolver))
        try:
            pending += [(inner, resolver.in_subresource(inner)) for inner in part.subresources()]
        except UnknownDialect:
            return SchemaViolation("$", "a part of it names an unknown draft")
    return None


def _pattern_finding(part: dict[str, Any]) -> SchemaViolation | None:
    properties = part.get("patternProperties")
    patterns = [part.get("pattern"), *(properties if isinstance(properties, dict) else ())]
    for pattern in patterns:
        if not isinstance(pattern, str):
            continue
        if len(pattern) > MAX_PATTERN_LENGTH:
            return SchemaViolation("pattern", f"it is longer than {MAX_PATTERN_LENGTH} characters")
        try:
            re.compile(pattern)
        except (re.error, OverflowError, RecursionError):
            return SchemaViolation(
                "pattern", f"{_quote(pattern)} is not a valid regular expression"
            )
    return None


def _unresolved_reference(reference: str) -> SchemaViolation:
    return SchemaViolation(
        "$ref",
        f"{_quote(reference)} is not in the schema; define it there, because "
        "references are never fetched",
        of_schema=True,
    )


def _draft(schema: dict[str, Any]) -> Any:
    if "$schema" not in schema:
        return Draft202012Validator
    name = schema["$schema"]
    return validator_for(schema, default=None) if isinstance(name, str) else None


def _join_names(names: Iterable[Any]) -> str:
    quoted = [_quote(name) for name in names]
    more = [f"{len(quoted) - MAX_NAMES} more"] if len(quoted) > MAX_NAMES else []
    return ", ".join([*quoted[:MAX_NAMES], *more])


def _quote(value: Any) -> str:
    return f"'{_shorten(value)}'" if isinstance(value, str) else _shorten(_json(value))


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _shorten(text: str) -> str:
    return text if len(text) <= MAX_QUOTE_LENGTH else f"{text[:MAX_QUOTE_LENGTH]}…"


def main() -> None:
    _limit_resources()
    schema = json.loads(sys.stdin.buffer.readline())
    finding = check_schema(schema)
    _answer(finding, outline(schema) if finding is None else None)
    if finding is not None:
        return
    for line in sys.stdin.buffer:
        _answer(check_reply(schema, json.loads(line)), None)


def _limit_resources() -> None:
    """Bound memory and time, even after the parent has ended."""
    for kind, limit in (
        (resource.RLIMIT_AS, MEMORY_BYTES),
        (resource.RLIMIT_CPU, CPU_SECONDS),
        (resource.RLIMIT_CORE, 0),
    ):
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(kind, (limit, limit))


def _answer(finding: SchemaViolation | None, about: dict[str, Any] | None) -> None:
    answer = {"finding": None if finding is None else finding._asdict(), "about": about}
    sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()

"""The process that checks replies against a schema: `python -m cllm.schemas.checker_process`.

A pattern or a reference can run for ever, so the parent must be able to kill it. The first line of
standard input is the schema, every further one a reply; each is answered with one line. References
resolve in the schema and the drafts only.
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


# What jsonschema raises over parts that no draft's own schema looks at.
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
    """`of_schema`: the reply is not at fault."""

    place: str
    problem: str
    of_schema: bool = False


def check_schema(schema: dict[str, Any]) -> SchemaViolation | None:
    draft = _draft(schema)
    if draft is None:
        return SchemaViolation("$.$schema", "it names a draft that is not known here")
    try:
        errors = draft(draft.META_SCHEMA, registry=SPECIFICATIONS).iter_errors(schema)
        error = best_match(islice(errors, MAX_ERRORS))
        if error is not None:
            return SchemaViolation(json_path(error.absolute_path), _schema_problem(error))
        return _find_in_parts(schema, draft.META_SCHEMA["$schema"])
    except (RecursionError, MemoryError):
        return SchemaViolation("$", "it is too large to be checked")
    except MALFORMED:
        return SchemaViolation("$", "a part of it is no schema")


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
        return SchemaViolation("$", "a reference in it leads to what is no schema", of_schema=True)
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
    """A path into JSON as it is usually written: `$.items[0].name`."""
    place = "$"
    for step in path:
        if isinstance(step, int):
            place += f"[{step}]"
        else:
            place += f".{step}" if PLAIN_KEY.fullmatch(step) else f"[{_quote(step)}]"
    return place


def describe_error(error: ValidationError) -> str:
    wanted, found = error.validator_value, error.instance
    match error.validator:
        case None:
            problem = "nothing is allowed there"
        case "additionalProperties":
            known = error.schema.get("properties", {})
            is_named = wanted is False and not error.schema.get("patternProperties")
            names = _join_names(name for name in found if name not in known)
            problem = f"{names if is_named else 'a property of it'} is not allowed"
        case "anyOf" | "oneOf":
            which = "any" if error.validator == "anyOf" else "exactly one"
            problem = f"{_quote(found)} does not fit {which} of the {len(wanted)} forms allowed"
        case "const":
            problem = f"must be {_quote(wanted)}, and is {_quote(found)}"
        case "enum":
            problem = f"must be one of {_shorten(_join_names(wanted))}, and is {_quote(found)}"
        case "pattern":
            problem = f"{_quote(found)} does not match the pattern {_quote(wanted)}"
        case "required" if isinstance(wanted, list):
            problem = f"{_join_names(name for name in wanted if name not in found)} is missing"
        case "required":
            problem = "it is missing"
        case "type":
            types = [wanted] if isinstance(wanted, str) else wanted
            name = JSON_TYPES.get(type(found), "something else")
            problem = f"must be {' or '.join(map(str, types))}, and is {name}"
        case keyword:
            rule = f"{keyword}: {_shorten(_json(wanted))}"
            problem = f"{_quote(found)} does not fit `{rule}`"
    return problem


def _schema_problem(error: ValidationError) -> str:
    if list(error.absolute_path)[-1:] == ["type"]:
        return f"{_quote(error.instance)} is not a type that JSON has"
    return describe_error(error)


def _find_in_parts(schema: dict[str, Any], dialect: str) -> SchemaViolation | None:
    """Find references that leave the schema and unusable patterns."""
    root = specification_with(dialect).create_resource(schema)
    resolver = SPECIFICATIONS.resolver_with_root(root)
    waiting, seen = [(root, resolver)], set[int]()
    while waiting:
        part, resolver = waiting.pop()
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
            found = part._specification.create_resource(target.contents)  # noqa: SLF001
            waiting.append((found, target.resolver))
        try:
            waiting += [(inner, resolver.in_subresource(inner)) for inner in part.subresources()]
        except UnknownDialect:
            return SchemaViolation("$", "a part of it names a draft that is not known here")
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
                "pattern", f"{_quote(pattern)} is no pattern that can be used here"
            )
    return None


def _unresolved_reference(reference: str) -> SchemaViolation:
    return SchemaViolation(
        "$ref",
        f"{_quote(reference)} is not in the schema, and references are never fetched",
        of_schema=True,
    )


def _draft(schema: dict[str, Any]) -> Any:
    if "$schema" not in schema:
        return Draft202012Validator
    named = schema["$schema"]
    return validator_for(schema, default=None) if isinstance(named, str) else None


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
    for kind, most in (
        (resource.RLIMIT_AS, MEMORY_BYTES),
        (resource.RLIMIT_CPU, CPU_SECONDS),
        (resource.RLIMIT_CORE, 0),
    ):
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(kind, (most, most))


def _answer(finding: SchemaViolation | None, about: dict[str, Any] | None) -> None:
    answer = {"finding": None if finding is None else finding._asdict(), "about": about}
    sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()

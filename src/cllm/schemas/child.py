"""The process that holds replies against a schema: `python -m cllm.schemas.child`.

A pattern can take for ever to match and references can multiply without end, so the work is done
where it can be stopped. The schema comes as the first line of standard input, every further line
is a reply as a JSON text; each is answered with one line. It ends with its input, opens no file
and asks no address: references are looked up in the schema itself and in the drafts' own.
"""

import contextlib
import json
import re
import resource
import sys
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, NamedTuple

from jsonschema import Draft202012Validator
from jsonschema.exceptions import UndefinedTypeCheck, UnknownType, ValidationError, best_match
from jsonschema.validators import validator_for
from jsonschema_specifications import REGISTRY as SPECIFICATIONS
from referencing import Resource
from referencing.exceptions import Unresolvable
from referencing.jsonschema import UnknownDialect, specification_with

from cllm.schemas.strict_json import NotJsonError, decode

MEMORY_BYTES = 2 * 1024 * 1024 * 1024
CPU_SECONDS = 60
MOST_ERRORS = 50
MOST_NAMES = 8
LONGEST_PATTERN = 1000
LONGEST_QUOTE = 60
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


class Finding(NamedTuple):
    """What is wrong, and where; `of_schema` if the reply cannot be blamed for it."""

    place: str
    problem: str
    of_schema: bool = False


def find_in_schema(schema: dict[str, Any]) -> Finding | None:
    """What keeps it from being a schema that replies can be held against."""
    draft = _draft(schema)
    if draft is None:
        return Finding("$.$schema", "it names a draft that is not known here")
    try:
        errors = draft(draft.META_SCHEMA, registry=SPECIFICATIONS).iter_errors(schema)
        error = best_match(islice(errors, MOST_ERRORS))
        if error is not None:
            return Finding(place_of(error.absolute_path), _schema_problem(error))
        return _find_in_parts(schema, draft.META_SCHEMA["$schema"])
    except (RecursionError, MemoryError):
        return Finding("$", "it is too large to be checked")
    except MALFORMED:
        return Finding("$", "a part of it is no schema")


def find_in_reply(schema: dict[str, Any], text: str) -> Finding | None:
    """What of the reply does not fit the schema."""
    draft = _draft(schema) or Draft202012Validator
    try:
        errors = draft(schema, registry=SPECIFICATIONS).iter_errors(decode(text))
        error = best_match(islice(errors, MOST_ERRORS))
    except NotJsonError as problem:
        return Finding("$", str(problem))
    except Unresolvable as reference:
        return _leads_out(str(reference.ref))
    except MALFORMED:
        return Finding("$", "a reference in it leads to what is no schema", of_schema=True)
    except (RecursionError, MemoryError):
        return Finding("$", "it refers to itself without end, or is too large", of_schema=True)
    return None if error is None else Finding(place_of(error.absolute_path), problem_of(error))


def summary(schema: dict[str, Any]) -> dict[str, Any]:
    """What a person recognises a schema by."""
    draft = _draft(schema) or Draft202012Validator
    return {
        "draft": _draft_name(draft.META_SCHEMA["$schema"]),
        "type": schema.get("type"),
        "properties": list(schema.get("properties") or {}),
        "required": list(schema.get("required") or [])
        if isinstance(schema.get("required"), list)
        else [],
    }


def place_of(path: Iterable[str | int]) -> str:
    """A path into JSON as it is usually written: `$.items[0].name`."""
    place = "$"
    for step in path:
        if isinstance(step, int):
            place += f"[{step}]"
        else:
            place += f".{step}" if PLAIN_KEY.fullmatch(step) else f"[{_quoted(step)}]"
    return place


def problem_of(error: ValidationError) -> str:
    """One clause that says what is wrong; long values are cut."""
    if error.validator is None:
        return "nothing is allowed there"
    say = PROBLEMS.get(error.validator)
    if say is not None:
        return say(error, error.validator_value, error.instance)
    rule = f"{error.validator}: {_shortened(_json(error.validator_value))}"
    return f"{_quoted(error.instance)} does not fit `{rule}`"


def _wrong_type(_error: ValidationError, wanted: Any, found: Any) -> str:
    names = [wanted] if isinstance(wanted, str) else wanted
    return f"must be {' or '.join(map(str, names))}, and is {_type_name(found)}"


def _missing(_error: ValidationError, wanted: Any, found: Any) -> str:
    if not isinstance(wanted, list):
        return "it is missing"
    return f"{_listed(name for name in wanted if name not in found)} is missing"


def _not_allowed(error: ValidationError, wanted: Any, found: Any) -> str:
    if wanted is not False or error.schema.get("patternProperties"):
        return "a property of it is not allowed"
    known = error.schema.get("properties", {})
    return f"{_listed(name for name in found if name not in known)} is not allowed"


def _none_of(_error: ValidationError, wanted: Any, found: Any) -> str:
    return f"must be one of {_shortened(_listed(wanted))}, and is {_quoted(found)}"


def _not_this(_error: ValidationError, wanted: Any, found: Any) -> str:
    return f"must be {_quoted(wanted)}, and is {_quoted(found)}"


def _no_match(_error: ValidationError, wanted: Any, found: Any) -> str:
    return f"{_quoted(found)} does not match the pattern {_quoted(wanted)}"


def _no_form(error: ValidationError, wanted: Any, found: Any) -> str:
    which = "any" if error.validator == "anyOf" else "exactly one"
    return f"{_quoted(found)} does not fit {which} of the {len(wanted)} forms allowed"


PROBLEMS: dict[str, Callable[[ValidationError, Any, Any], str]] = {
    "additionalProperties": _not_allowed,
    "anyOf": _no_form,
    "const": _not_this,
    "enum": _none_of,
    "oneOf": _no_form,
    "pattern": _no_match,
    "required": _missing,
    "type": _wrong_type,
}


def _schema_problem(error: ValidationError) -> str:
    """As `problem_of`; the commonest mistake in a schema has a clause of its own."""
    if list(error.absolute_path)[-1:] == ["type"]:
        return f"{_quoted(error.instance)} is not a type that JSON has"
    return problem_of(error)


def _find_in_parts(schema: dict[str, Any], dialect: str) -> Finding | None:
    """Look at each part for references that lead out and patterns that cannot be used."""
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
                return _leads_out(reference)
            waiting.append((_resource(target.contents, part), target.resolver))
        try:
            inner = [(found, resolver.in_subresource(found)) for found in part.subresources()]
        except UnknownDialect:
            return Finding("$", "a part of it names a draft that is not known here")
        waiting.extend(inner)
    return None


def _resource(contents: Any, beside: Resource[Any]) -> Resource[Any]:
    """What a reference leads to, as a part that speaks the same draft."""
    return beside._specification.create_resource(contents)  # noqa: SLF001


def _pattern_finding(part: dict[str, Any]) -> Finding | None:
    properties = part.get("patternProperties")
    patterns = [part.get("pattern"), *(properties if isinstance(properties, dict) else ())]
    for pattern in patterns:
        if not isinstance(pattern, str):
            continue
        if len(pattern) > LONGEST_PATTERN:
            return Finding("pattern", f"it is longer than {LONGEST_PATTERN} characters")
        try:
            re.compile(pattern)
        except (re.error, OverflowError, RecursionError):
            return Finding("pattern", f"{_quoted(pattern)} is no pattern that can be used here")
    return None


def _leads_out(reference: str) -> Finding:
    return Finding(
        "$ref",
        f"{_quoted(reference)} is not in the schema, and references are never fetched",
        of_schema=True,
    )


def _draft(schema: dict[str, Any]) -> Any:
    """The class that knows the schema's draft; None if nobody here does."""
    if "$schema" not in schema:
        return Draft202012Validator
    named = schema["$schema"]
    return validator_for(schema, default=None) if isinstance(named, str) else None


def _draft_name(dialect: str) -> str:
    """`2020-12` of `https://json-schema.org/draft/2020-12/schema`."""
    return dialect.rstrip("#").split("/")[-2].removeprefix("draft-")


def _listed(names: Iterable[Any]) -> str:
    quoted = [_quoted(name) for name in names]
    more = [f"{len(quoted) - MOST_NAMES} more"] if len(quoted) > MOST_NAMES else []
    return ", ".join([*quoted[:MOST_NAMES], *more])


def _type_name(value: Any) -> str:
    return JSON_TYPES.get(type(value), "something else")


def _quoted(value: Any) -> str:
    return f"'{_shortened(value)}'" if isinstance(value, str) else _shortened(_json(value))


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _shortened(text: str) -> str:
    return text if len(text) <= LONGEST_QUOTE else f"{text[:LONGEST_QUOTE]}…"


def main() -> None:
    """Answer until standard input ends."""
    _limit()
    schema = json.loads(sys.stdin.buffer.readline())
    finding = find_in_schema(schema)
    _answer(finding, summary(schema) if finding is None else None)
    if finding is not None:
        return
    for line in sys.stdin.buffer:
        _answer(find_in_reply(schema, json.loads(line)), None)


def _limit() -> None:
    """Bound what a schema can take, also when nobody is left to end this process."""
    for kind, most in (
        (resource.RLIMIT_AS, MEMORY_BYTES),
        (resource.RLIMIT_CPU, CPU_SECONDS),
        (resource.RLIMIT_CORE, 0),
    ):
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(kind, (most, most))


def _answer(finding: Finding | None, about: dict[str, Any] | None) -> None:
    answer = {"finding": None if finding is None else finding._asdict(), "about": about}
    sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()

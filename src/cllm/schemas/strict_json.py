"""Decodes JSON strictly (no NaN), or raises an error with the problem and its position."""

import json
import math
import re
from collections.abc import Iterator
from typing import Any, NoReturn

MAX_DEPTH = 64
FENCE = "```"
LONE_SURROGATE = re.compile(r"[\ud800-\udfff]")


class NotJsonError(ValueError):
    """The message is the reason."""


def decode(text: str) -> Any:
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise NotJsonError(_reason(text, error)) from error
    except RecursionError as error:
        raise NotJsonError("it is nested too deeply") from error
    except ValueError as error:
        raise NotJsonError(
            "it has a number that JSON does not allow, or one that is too long"
        ) from error
    problem = shape_problem(value)
    if problem is not None:
        raise NotJsonError(problem)
    return value


def shape_problem(value: Any) -> str | None:
    pending: list[tuple[Any, int]] = [(value, 0)]
    while pending:
        item, depth = pending.pop()
        if depth > MAX_DEPTH:
            return f"it is nested more than {MAX_DEPTH} deep"
        if isinstance(item, float) and not math.isfinite(item):
            return "it has a number that JSON does not allow"
        if isinstance(item, str) and LONE_SURROGATE.search(item):
            return "it has a lone surrogate, which is not a character"
        pending.extend((inner, depth + 1) for inner in _children(item))
    return None


def _children(item: Any) -> Iterator[Any]:
    if isinstance(item, dict):
        yield from item
        yield from item.values()
    elif isinstance(item, list):
        yield from item


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(constant)


def _reason(text: str, error: json.JSONDecodeError) -> str:
    position = f"line {error.lineno}, column {error.colno}"
    start = text.lstrip()
    if not start:
        return "it is empty"
    if FENCE in start:
        return f"it has {FENCE} fences or other text around the JSON; it must be JSON only"
    if error.msg == "Extra data":
        return f"text follows the JSON document ({position})"
    if start[0] not in '{["' and ("{" in start or "[" in start):
        return f"text precedes the JSON document ({position})"
    return f"it is not JSON ({position})"

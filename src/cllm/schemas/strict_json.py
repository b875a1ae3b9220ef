"""Decodes JSON strictly (no NaN), or says what is wrong with it and where."""

import json
import math
import re
from collections.abc import Iterator
from typing import Any, NoReturn

MAX_DEPTH = 64
FENCE = "```"
LONE_SURROGATE = re.compile(r"[\ud800-\udfff]")


class NotJsonError(ValueError):
    """The text is the reason."""


def decode(text: str) -> Any:
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise NotJsonError(_reason(text, error)) from error
    except RecursionError as error:
        raise NotJsonError("it is nested too deeply") from error
    except ValueError as error:
        raise NotJsonError(
            "it has a number that JSON has no word for, or a very long one"
        ) from error
    problem = shape_problem(value)
    if problem is not None:
        raise NotJsonError(problem)
    return value


def shape_problem(value: Any) -> str | None:
    waiting: list[tuple[Any, int]] = [(value, 0)]
    while waiting:
        item, depth = waiting.pop()
        if depth > MAX_DEPTH:
            return f"it is nested more than {MAX_DEPTH} deep"
        if isinstance(item, float) and not math.isfinite(item):
            return "it has a number that JSON has no word for"
        if isinstance(item, str) and LONE_SURROGATE.search(item):
            return "it has half a character, which no text can hold"
        waiting.extend((inner, depth + 1) for inner in _children(item))
    return None


def _children(item: Any) -> Iterator[Any]:
    if isinstance(item, dict):
        yield from item
        yield from item.values()
    elif isinstance(item, list):
        yield from item


def _refuse_constant(word: str) -> NoReturn:
    raise ValueError(word)


def _reason(text: str, error: json.JSONDecodeError) -> str:
    place = f"line {error.lineno}, column {error.colno}"
    start = text.lstrip()
    if not start:
        return "it is empty"
    if FENCE in start:
        return f"it has {FENCE} fences or text around the JSON, and must be JSON alone"
    if error.msg == "Extra data":
        return f"there is text after the JSON document ({place})"
    if start[0] not in '{["' and ("{" in start or "[" in start):
        return f"there is text before the JSON document ({place})"
    return f"it is not JSON ({place})"

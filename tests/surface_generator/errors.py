"""Errors and notices: codes, and the text and the responses of each error class."""

import inspect
import json
from collections.abc import Iterator
from typing import Any

from tests.notice_codes import collect_notice_codes
from tests.surface_generator import internals
from tests.surface_generator.text import aligned, document, section

from cllm.core import errors

SAMPLES: dict[str, Any] = {
    "available": 10,
    "keys": ("KEY",),
    "line": 3,
    "needed": 20,
    "notices": (internals.notice(),),
    "pinned": 0,
    "sequence": 7,
}

ALSO_GIVEN = ("line", "path", "turn_id")


def surface() -> dict[str, str]:
    return {"errors.txt": _errors(), "notices.txt": _notices()}


def _notices() -> str:
    return document(
        "Codes of notices.", aligned((code,) for code in sorted(collect_notice_codes()))
    )


def _errors() -> str:
    statuses = sorted(internals.error_statuses().items(), key=lambda item: (item[1], item[0]))
    return document(
        "Error codes of the server with their statuses, and every error class with its text and "
        "the responses made of it.",
        section("codes", aligned((str(status), code) for code, status in statuses)),
        *(section(kind.__name__, _class(kind)) for kind in _classes()),
    )


def _classes() -> list[type[errors.CllmError]]:
    found = (kind for _, kind in inspect.getmembers(errors, inspect.isclass))
    return [kind for kind in found if issubclass(kind, errors.CllmError)]


def _class(kind: type[errors.CllmError]) -> Iterator[str]:
    error = _made(kind)
    yield f"  text: {error}"
    yield f"  fields: {', '.join(sorted(vars(error))) or 'none'}"
    for protocol in ("openai", "anthropic"):
        status, headers, body = internals.error_response(error, protocol)
        told = json.loads(body)
        message = told.get("error", {}).pop("message", "(no message)")
        yield f"  {protocol}: {status} {json.dumps(told, sort_keys=True)}"
        yield f"    {message}"
        yield f"    headers: {', '.join(sorted(headers, key=str.lower))}"


def _made(kind: type[errors.CllmError]) -> errors.CllmError:
    """An error of the class, with the names of its arguments as their values."""
    if not inspect.isfunction(kind.__init__):
        return kind("MESSAGE")
    parameters = list(inspect.signature(kind).parameters.values())
    needed = [one for one in parameters if one.default is one.empty or one.name in ALSO_GIVEN]
    return kind(
        *(_sample(one) for one in needed if one.kind is not one.KEYWORD_ONLY),
        **{one.name: _sample(one) for one in needed if one.kind is one.KEYWORD_ONLY},
    )


def _sample(parameter: inspect.Parameter) -> Any:
    return SAMPLES.get(parameter.name, parameter.name.upper())

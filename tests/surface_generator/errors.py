"""Describes errors and notices: codes, and the text and responses of each error class."""

import inspect
import json
from collections.abc import Iterator
from typing import Any

from tests.notice_codes import collect_notice_codes
from tests.surface_generator import internals
from tests.surface_generator.text import document, join_rows, section

from cllm.core import errors
from cllm.core.installation import install_command

SAMPLES: dict[str, Any] = {
    "available": 10,
    "keys": ("KEY",),
    "line": 3,
    "needed": 20,
    "notices": (internals.notice(),),
    "pinned": 0,
    "sequence": 7,
}

OPTIONAL_ARGUMENTS = ("line", "path", "turn_id")


def surface() -> dict[str, str]:
    return {"errors.txt": _errors(), "notices.txt": _notices()}


def _notices() -> str:
    return document(
        "Codes of notices.", join_rows((code,) for code in sorted(collect_notice_codes()))
    )


def _errors() -> str:
    statuses = sorted(internals.error_statuses().items(), key=lambda item: (item[1], item[0]))
    return document(
        "Error codes of the server with their statuses, and every error class with its text and "
        "the responses made of it.",
        section("codes", join_rows((str(status), code) for code, status in statuses)),
        *(section(kind.__name__, _class(kind)) for kind in _classes()),
    )


def _classes() -> list[type[errors.CllmError]]:
    classes = (kind for _, kind in inspect.getmembers(errors, inspect.isclass))
    return [kind for kind in classes if issubclass(kind, errors.CllmError)]


def _class(kind: type[errors.CllmError]) -> Iterator[str]:
    error = _make_error(kind)
    yield f"  text: {str(error).replace(install_command('EXTRA'), 'COMMAND')}"
    yield f"  fields: {', '.join(sorted(vars(error))) or 'none'}"
    for protocol in ("openai", "anthropic"):
        status, headers, body = internals.error_response(error, protocol)
        response = json.loads(body)
        message = response.get("error", {}).pop("message", "(no message)")
        yield f"  {protocol}: {status} {json.dumps(response, sort_keys=True)}"
        yield f"    {message}"
        yield f"    headers: {', '.join(sorted(headers, key=str.lower))}"


def _make_error(kind: type[errors.CllmError]) -> errors.CllmError:
    """Create an error whose arguments are their own names in upper case."""
    if not inspect.isfunction(kind.__init__):
        return kind("MESSAGE")
    parameters = list(inspect.signature(kind).parameters.values())
    arguments = [
        one for one in parameters if one.default is one.empty or one.name in OPTIONAL_ARGUMENTS
    ]
    return kind(
        *(_sample(one) for one in arguments if one.kind is not one.KEYWORD_ONLY),
        **{one.name: _sample(one) for one in arguments if one.kind is one.KEYWORD_ONLY},
    )


def _sample(parameter: inspect.Parameter) -> Any:
    return SAMPLES.get(parameter.name, parameter.name.upper())

"""Errors as answers: one envelope per protocol around what is said of an error.

Raises nothing and logs nothing. What is said is in `told.py`.
"""

import math
from typing import Any

import msgspec

from cllm.core.errors import CllmError
from cllm.server.told import SERVER_ERRORS, TOLD, Told
from cllm.wire.malformed import MalformedError

Answer = tuple[int, dict[str, str], bytes]
Tellable = CllmError | MalformedError

JSON = "application/json"
OVERLOADED = 529
TOO_LONG = "prompt is too long"
OPENAI_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    429: "rate_limit_error",
}
ANTHROPIC_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    OVERLOADED: "overloaded_error",
}


def to_openai(error: Tellable) -> Answer:
    """The answer for OpenAI's clients and for the conversations endpoints."""
    told = tell(error)
    return told.status, _headers(told), encode_openai(told)


def to_anthropic(error: Tellable) -> Answer:
    """The answer for Anthropic's clients."""
    told = _for_anthropic(tell(error))
    return told.status, _headers(told), encode_anthropic(told)


def encode_openai(told: Told) -> bytes:
    """The body of OpenAI's envelope, which is also what a stream says that breaks."""
    fields: dict[str, Any] = {
        "message": told.message,
        "type": _openai_type(told.status),
        "code": told.code,
        "param": told.param,
    }
    if told.turn_id is not None:
        fields["turn_id"] = told.turn_id
    return msgspec.json.encode({"error": fields})


def encode_anthropic(told: Told) -> bytes:
    """The body of Anthropic's envelope, which is also an error event of a stream."""
    fields: dict[str, Any] = {
        "type": _anthropic_type(told.status),
        "message": _anthropic_message(told),
    }
    if told.details is not None:
        fields["details"] = told.details
    if told.turn_id is not None:
        fields["turn_id"] = told.turn_id
    return msgspec.json.encode({"type": "error", "error": fields})


def tell(error: Tellable) -> Told:
    """What is said of an error, by its class or the nearest one above it."""
    for kind in type(error).__mro__:
        if kind in TOLD:
            return TOLD[kind](error)
    return unexpected()


def unexpected() -> Told:
    """What is said of a mistake of ours."""
    return Told(
        status=500,
        code="internal_error",
        message="The server failed; ask its operator to look for the request's id in its log.",
    )


def _for_anthropic(told: Told) -> Told:
    """Anthropic has one status for every request that is not well formed."""
    return msgspec.structs.replace(told, status=400) if told.status == 422 else told  # noqa: PLR2004


def _openai_type(status: int) -> str:
    fallback = "api_error" if status in SERVER_ERRORS else "invalid_request_error"
    return OPENAI_TYPES.get(status, fallback)


def _anthropic_type(status: int) -> str:
    fallback = "api_error" if status in SERVER_ERRORS else "invalid_request_error"
    return ANTHROPIC_TYPES.get(status, fallback)


def _anthropic_message(told: Told) -> str:
    """The text; Anthropic's clients know by these words that they have to send less."""
    if told.code != "context_length_exceeded" or TOO_LONG in told.message.lower():
        return told.message
    return f"{TOO_LONG}: {told.message}"


def _headers(told: Told) -> dict[str, str]:
    headers = {"Content-Type": JSON}
    if told.retry_after is not None:
        headers["Retry-After"] = str(max(math.ceil(told.retry_after), 1))
    if told.turn_id is not None:
        headers["X-Turn-ID"] = told.turn_id
    if told.code in ("missing_token", "invalid_token"):
        headers["WWW-Authenticate"] = "Bearer"
    return headers

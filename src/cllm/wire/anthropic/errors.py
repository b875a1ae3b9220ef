"""What an error says that came in Anthropic's words: in a body, or in the middle of a stream."""

from typing import Any

import msgspec

from cllm.wire.anthropic.parts import UNREADABLE
from cllm.wire.malformed import ErrorDetails, counts_too_many

INVALID_REQUEST = "invalid_request_error"
STATUSES = {
    INVALID_REQUEST: 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}


def decode_error(body: bytes) -> ErrorDetails:
    """What an error body says, whatever shape it has; nothing if it is not JSON."""
    try:
        decoded = msgspec.json.decode(body)
    except UNREADABLE:
        return ErrorDetails()
    return error_details(decoded.get("error", decoded) if isinstance(decoded, dict) else decoded)


def error_details(error: Any) -> ErrorDetails:
    """What is under `error` in a body or an event."""
    if not isinstance(error, dict):
        return ErrorDetails(message=error if isinstance(error, str) else "")
    message, kind = (str(error.get(name) or "") for name in ("message", "type"))
    details = error.get("details")
    code = details.get("error_code") if isinstance(details, dict) else None
    return ErrorDetails(
        message=message,
        type=kind,
        code=code if isinstance(code, str) else "",
        status=STATUSES.get(kind),
        given=details if isinstance(details, dict) else None,
        too_long=kind == INVALID_REQUEST and counts_too_many(message),
    )

"""Errors of the Responses API, as their bodies and events tell them; never by their texts."""

from typing import Any

import msgspec

from cllm.wire.malformed import ErrorDetails
from cllm.wire.openai_errors import decode_error

BAD_REQUEST = 400
STATUSES = {
    "insufficient_quota": 429,
    "rate_limit_exceeded": 429,
    "server_error": 500,
    "server_is_overloaded": 503,
    "vector_store_timeout": 504,
}
BAD_REQUESTS = ("bio_policy", "data_residency", "empty_image", "image", "invalid", "misalignment")


def error_details(error: Any) -> ErrorDetails:
    """What an error says, with the status that its code has when it comes before an answer."""
    details = decode_error(msgspec.json.encode({"error": error}))
    status = STATUSES.get(details.code)
    if status is None and (details.too_long or details.code.startswith(BAD_REQUESTS)):
        status = BAD_REQUEST
    return msgspec.structs.replace(details, status=status)

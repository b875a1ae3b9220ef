"""What the server itself refuses, by its code. Raised by endpoints, told in `errors.py`.

A code stands for one status, everywhere. Errors of the core and of providers are not here.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from cllm.core.errors import CllmError

STATUSES: Mapping[str, int] = MappingProxyType(
    {
        "invalid_conversation_id": 400,
        "invalid_header": 400,
        "invalid_request": 400,
        "thread_unsupported_request": 400,
        "missing_token": 401,
        "invalid_token": 401,
        "host_not_allowed": 403,
        "origin_not_allowed": 403,
        "model_not_allowed": 403,
        "not_found": 404,
        "conversation_not_found": 404,
        "message_not_found": 404,
        "sequence_not_found": 404,
        "turn_not_found": 404,
        "events_not_kept": 404,
        "model_not_found": 404,
        "method_not_allowed": 405,
        "request_timeout": 408,
        "stream_not_read": 408,
        "request_too_large": 413,
        "empty_messages_array": 422,
        "invalid_sequence_number": 422,
        "validation_error": 422,
        "rate_limited": 429,
        "budget_exceeded": 429,
        "not_supported": 501,
        "shutting_down": 503,
        "too_many_bodies": 503,
        "turn_timeout": 504,
    }
)


class RefusedError(CllmError):
    """A request that is not answered as asked.

    `param` is the field, header or parameter that it is about, `retry_after` in seconds when the
    same request could be answered. `details` are for programs that know what to do then.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        param: str | None = None,
        retry_after: float | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.status = STATUSES[code]
        self.param = param
        self.retry_after = retry_after
        self.details = details

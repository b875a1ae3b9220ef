"""Error responses: `ApiError`, the status of each code, and one encoder per protocol.

The classes of `core/errors.py` declare their own status and code.
"""

import math
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Literal

import msgspec

from cllm.core.errors import CLIENT_ERRORS, SERVER_ERRORS, CllmError, ErrorReport
from cllm.wire.errors import FieldError, MalformedError

EncodedResponse = tuple[int, dict[str, str], bytes]
RequestError = CllmError | MalformedError
"""Every other exception is a bug."""

JSON = "application/json"
SHOULD_RETRY = "x-should-retry"
"""The libraries of OpenAI and Anthropic decide by this header before they look at the status."""
NOT_IMPLEMENTED = 501
# Anthropic's clients then shorten the prompt.
PROMPT_TOO_LONG = "prompt is too long"
OPENAI_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
ANTHROPIC_TYPES = {
    **OPENAI_TYPES,
    402: "billing_error",
    404: "not_found_error",
    413: "request_too_large",
    529: "overloaded_error",
}
ApiErrorCode = Literal[
    "invalid_conversation_id",
    "invalid_header",
    "invalid_request",
    "thread_unsupported_request",
    "missing_token",
    "invalid_token",
    "admin_key_required",
    "host_not_allowed",
    "origin_not_allowed",
    "not_found",
    "conversation_not_found",
    "message_not_found",
    "sequence_not_found",
    "turn_not_found",
    "response_not_found",
    "previous_response_not_found",
    "item_not_found",
    "import_not_found",
    "events_not_kept",
    "model_not_found",
    "method_not_allowed",
    "request_timeout",
    "stream_not_read",
    "conversation_exists",
    "response_cancelled",
    "import_conflict",
    "request_too_large",
    "empty_messages_array",
    "invalid_sequence_number",
    "validation_error",
    "upgrade_required",
    "rate_limited",
    "too_many_imports",
    "not_supported",
    "imports_unavailable",
    "shutting_down",
    "too_many_bodies",
    "turn_timeout",
]
STATUSES: Mapping[ApiErrorCode, int] = MappingProxyType(
    {
        "invalid_conversation_id": 400,
        "invalid_header": 400,
        "invalid_request": 400,
        "thread_unsupported_request": 400,
        "missing_token": 401,
        "invalid_token": 401,
        "admin_key_required": 403,
        "host_not_allowed": 403,
        "origin_not_allowed": 403,
        "not_found": 404,
        "conversation_not_found": 404,
        "message_not_found": 404,
        "sequence_not_found": 404,
        "turn_not_found": 404,
        "response_not_found": 404,
        "previous_response_not_found": 404,
        "item_not_found": 404,
        "import_not_found": 404,
        "events_not_kept": 404,
        "model_not_found": 404,
        "method_not_allowed": 405,
        "request_timeout": 408,
        "stream_not_read": 408,
        "conversation_exists": 409,
        "response_cancelled": 409,
        "import_conflict": 409,
        "request_too_large": 413,
        "empty_messages_array": 422,
        "invalid_sequence_number": 422,
        "validation_error": 422,
        "upgrade_required": 426,
        "rate_limited": 429,
        "too_many_imports": 429,
        "not_supported": 501,
        "imports_unavailable": 503,
        "shutting_down": 503,
        "too_many_bodies": 503,
        "turn_timeout": 504,
    }
)


class ApiError(CllmError):
    """An error response with one of `STATUSES`. `retry_after` is in seconds."""

    http_message = None

    def __init__(
        self,
        code: ApiErrorCode,
        message: str,
        *,
        param: str | None = None,
        retry_after: float | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = self.http_code = code
        self.status = self.http_status = STATUSES[code]
        self.param = param
        self.retry_after = retry_after
        self.can_retry = retry_after is not None
        self.details = details

    def report(self) -> ErrorReport:
        return msgspec.structs.replace(super().report(), details=self.details)


def report_error(error: RequestError) -> ErrorReport:
    if isinstance(error, CllmError):
        return error.report()
    path = error.path if isinstance(error, FieldError) else None
    return ErrorReport(status=422, code="validation_error", message=str(error), param=path or None)


UNEXPECTED = CllmError().report()
"""The report of every other exception."""


def _iterate_codes(kind: type[CllmError]) -> Iterator[tuple[str, int]]:
    yield kind.http_code, kind.http_status
    for subclass in kind.__subclasses__():
        yield from _iterate_codes(subclass)


STATUS_BY_CODE: Mapping[str, int] = MappingProxyType(
    dict([*_iterate_codes(CllmError), *STATUSES.items()])
)
"""The HTTP status of every error code."""


def openai_error_response(error: RequestError) -> EncodedResponse:
    report = report_error(error)
    return report.status, _error_headers(report), encode_openai_error(report)


def anthropic_error_response(error: RequestError) -> EncodedResponse:
    """Report 422 as 400, as Anthropic does."""
    report = report_error(error)
    status = 400 if report.status == 422 else report.status  # noqa: PLR2004
    return status, _error_headers(report), encode_anthropic_error(report)


def responses_error_response(error: RequestError) -> EncodedResponse:
    """Report 422 as 400, as OpenAI does."""
    status, headers, body = openai_error_response(error)
    return 400 if status == 422 else status, headers, body  # noqa: PLR2004


def openai_error_type(report: ErrorReport) -> str:
    return _error_type(report.status, OPENAI_TYPES)


def encode_openai_error(report: ErrorReport) -> bytes:
    fields: dict[str, Any] = {
        "message": report.message,
        "type": openai_error_type(report),
        "code": report.code,
        "param": report.param,
    }
    if report.turn_id is not None:
        fields["turn_id"] = report.turn_id
    return msgspec.json.encode({"error": fields})


def encode_anthropic_error(report: ErrorReport) -> bytes:
    message = report.message
    if report.code == "context_length_exceeded" and PROMPT_TOO_LONG not in message.lower():
        message = f"{PROMPT_TOO_LONG}: {message}"
    fields: dict[str, Any] = {
        "type": _error_type(report.status, ANTHROPIC_TYPES),
        "message": message,
    }
    if report.details is not None:
        fields["details"] = report.details
    if report.turn_id is not None:
        fields["turn_id"] = report.turn_id
    return msgspec.json.encode({"type": "error", "error": fields})


def _error_type(status: int, types: Mapping[int, str]) -> str:
    fallback = "api_error" if status in SERVER_ERRORS else "invalid_request_error"
    return types.get(status, fallback)


def _error_headers(report: ErrorReport) -> dict[str, str]:
    headers = {"Content-Type": JSON}
    if report.can_retry:
        headers[SHOULD_RETRY] = "true"
    elif report.status in CLIENT_ERRORS or report.status == NOT_IMPLEMENTED:
        headers[SHOULD_RETRY] = "false"
    if report.retry_after is not None:
        headers["Retry-After"] = str(max(math.ceil(report.retry_after), 1))
    if report.turn_id is not None:
        headers["X-Turn-ID"] = report.turn_id
    if report.code in ("missing_token", "invalid_token"):
        headers["WWW-Authenticate"] = "Bearer"
    return headers

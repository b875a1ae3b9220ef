"""What is said of each error: its status, its code and one sentence. A table of the error tree.

Sentences are written here from an error's fields; its own words are passed on only where they are
about the request, so that no path, address or key of this machine is told.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from cllm.core import errors as core
from cllm.core.secret import without_secrets
from cllm.server.refusal import STATUSES, RefusedError
from cllm.wire.malformed import FieldError, MalformedError

RETRY_SECONDS = 1.0
CLIENT_ERRORS = range(400, 500)
SERVER_ERRORS = range(500, 600)


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What is said of an error, in no protocol's words yet."""

    status: int
    code: str
    message: str
    param: str | None = None
    retry_after: float | None = None
    turn_id: str | None = None
    details: Mapping[str, Any] | None = None


def _always(status: int, code: str, message: str, **more: Any) -> Callable[[Any], Told]:
    """The same for every error of a class."""
    told = Told(status=status, code=code, message=message, **more)
    return lambda _error: told


def _refused(error: RefusedError) -> Told:
    return Told(
        status=error.status,
        code=error.code,
        message=str(error),
        param=error.param,
        retry_after=error.retry_after,
        details=error.details,
    )


def _malformed(error: MalformedError) -> Told:
    path = error.path if isinstance(error, FieldError) else None
    return Told(status=422, code="validation_error", message=str(error), param=path or None)


def _usage(error: core.UsageError) -> Told:
    return Told(status=422, code="validation_error", message=str(error))


def _window_too_small(error: core.WindowTooSmallError) -> Told:
    return Told(
        status=400,
        code="context_length_exceeded",
        message=f"This needs {error.needed} tokens and there is room for {error.available}; "
        "send less, or choose a model with a larger context window.",
        param="messages",
    )


def _schema(error: core.SchemaError) -> Told:
    where = "" if error.place is None else f" at {error.place}"
    return Told(
        status=422,
        code="validation_error",
        message=f"The JSON schema cannot be used{where}; correct it and ask again.",
        param="response_format",
    )


def _reply_schema(error: core.ReplySchemaError) -> Told:
    return Told(
        status=502,
        code="reply_schema_mismatch",
        message=f"The reply does not fit the JSON schema at {error.place}; ask again.",
    )


def _model_not_found(error: core.ModelNotFoundError) -> Told:
    return Told(status=404, code="model_not_found", message=str(error), param="model")


def _missing_key(error: core.MissingKeyError) -> Told:
    return Told(
        status=401,
        code="provider_key_missing",
        message=f"This server has no key for provider '{error.provider}'; send one of your own "
        "where that is possible, or ask the server's operator.",
    )


def _provider(
    status: int, code: str, problem: str, *, retry: bool = False
) -> Callable[[core.ProviderError], Told]:
    """An error of a provider's that is told by its kind, not in its words."""

    def told(error: core.ProviderError) -> Told:
        return Told(
            status=status,
            code=code,
            message=f"Provider '{error.provider}' {problem}",
            retry_after=error.retry_after if retry else None,
        )

    return told


def _upstream(error: core.ProviderError) -> Told:
    """The provider's own trouble; a status that says how to go on is kept."""
    status = error.status if error.status in SERVER_ERRORS else 502
    return Told(
        status=status or 502,
        code="upstream_error",
        message=f"Provider '{error.provider}' failed"
        + ("" if error.status is None else f" (HTTP {error.status})")
        + "; ask again later.",
        retry_after=error.retry_after,
    )


def _invalid_request(error: core.InvalidRequestError) -> Told:
    """The provider looked at the request and refuses it: its words are about the request."""
    code = error.code or "invalid_request"
    status = error.status if error.status in CLIENT_ERRORS else 400
    said = _without_addresses(str(error))
    return Told(status=status or 400, code=code, message=said, details=error.details)


def _too_long(error: core.PromptTooLongError) -> Told:
    told = _invalid_request(error)
    return msgspec.structs.replace(
        told, status=400, code="context_length_exceeded", param="messages"
    )


def _unsendable(error: core.UnsendableError) -> Told:
    if error.path is None:
        return Told(status=400, code="invalid_request", message=str(error))
    return Told(status=422, code="validation_error", message=str(error), param=error.path)


def _strict(error: core.StrictError) -> Told:
    path = error.notices[0].path if error.notices else None
    return Told(status=400, code="strict_mode", message=str(error), param=path or None)


def _without_addresses(text: str) -> str:
    """A provider's words without the address that ours put around them."""
    words = text.split(" ")
    return without_secrets(text, [word for word in words if "://" in word])


def _busy(error: core.ConversationBusyError) -> Told:
    return Told(
        status=409,
        code="conversation_busy",
        message="Another turn is running in this conversation; wait for it and ask again, or send "
        "X-On-Conflict: queue or branch.",
        retry_after=RETRY_SECONDS,
        turn_id=error.turn_id,
    )


def _sequence_not_found(error: core.SequenceNotFoundError) -> Told:
    return Told(
        status=404,
        code="sequence_not_found",
        message=f"The conversation has no message number {error.sequence}.",
        param="sequence_number",
    )


INVALID_ID = Told(
    status=400,
    code="invalid_conversation_id",
    message="This is not the id of a conversation; send a UUID as the server gave it, or leave it "
    "empty for a new conversation.",
)
TOLD: dict[type[BaseException], Callable[[Any], Told]] = {
    RefusedError: _refused,
    MalformedError: _malformed,
    core.UsageError: _usage,
    core.InvalidIdError: lambda _error: INVALID_ID,
    core.InvalidTextError: _always(
        422, "validation_error", "A text is empty, or has something in it that is no character."
    ),
    core.MissingExtraError: _always(
        501,
        "not_supported",
        "This server was installed without the packages for that; ask its operator.",
    ),
    core.WindowTooSmallError: _window_too_small,
    core.SettingsError: _always(
        500, "server_misconfigured", "The server's settings are wrong; ask its operator."
    ),
    core.UntrustedFileError: _always(
        500, "server_misconfigured", "The server's settings are not trusted; ask its operator."
    ),
    core.ContextError: _always(
        502, "context_failed", "A context command of this server failed; ask its operator."
    ),
    core.VariableError: _always(
        500, "server_misconfigured", "A template of this server's misses a variable."
    ),
    core.SchemaError: _schema,
    core.SchemaUnavailableError: _schema,
    core.ReplySchemaError: _reply_schema,
    core.ModelNotFoundError: _model_not_found,
    core.MissingKeyError: _missing_key,
    core.ProviderError: _upstream,
    core.UnreachableError: _provider(
        502, "upstream_unreachable", "cannot be reached from this server; ask again later."
    ),
    core.ProviderTimeoutError: _provider(
        504, "upstream_timeout", "sent nothing for too long; ask again."
    ),
    core.AuthenticationError: _provider(
        401, "provider_key_refused", "refused the key it was asked with; check that key."
    ),
    core.PermissionDeniedError: _provider(
        403, "provider_permission_denied", "does not allow this with the key it was asked with."
    ),
    core.InvalidRequestError: _invalid_request,
    core.PromptTooLongError: _too_long,
    core.UnsendableError: _unsendable,
    core.StrictError: _strict,
    core.RateLimitedError: _provider(
        429, "rate_limited", "takes no more requests for now; wait and ask again.", retry=True
    ),
    core.UpstreamError: _upstream,
    core.BadReplyError: _provider(
        502, "upstream_bad_reply", "gave an answer that cannot be read; ask again."
    ),
    core.BrokenStreamError: _provider(
        502, "upstream_broken_stream", "broke off in the middle of its answer; ask again."
    ),
    core.LocalModelError: _always(
        503, "local_model_unavailable", "The local model does not run here now; ask again later."
    ),
    core.DownloadError: _always(
        503, "local_model_unavailable", "The local model could not be fetched; ask again later."
    ),
    core.StoreError: _always(
        503,
        "conversation_storage_unavailable",
        "Conversations cannot be read or kept at the moment; ask again later.",
        retry_after=RETRY_SECONDS,
    ),
    core.ConversationNotFoundError: _always(
        404, "conversation_not_found", "There is no such conversation."
    ),
    core.ConversationExistsError: _always(
        409, "conversation_exists", "There is already such a conversation; choose another id."
    ),
    core.ConversationBusyError: _busy,
    core.SequenceNotFoundError: _sequence_not_found,
    core.TurnNotFoundError: _always(
        404, "turn_not_found", "The conversation has no such turn.", param="turn_id"
    ),
    core.StaleLeaseError: _always(
        409,
        "conversation_busy",
        "The turn took too long and another one took its place; ask again.",
        retry_after=RETRY_SECONDS,
    ),
    core.RequestInFlightError: _always(
        409,
        "idempotency_conflict",
        "The same request is still being answered; ask again in a moment.",
        param="Idempotency-Key",
        retry_after=RETRY_SECONDS,
    ),
    core.RequestConflictError: _always(
        409,
        "idempotency_conflict",
        "This idempotency key came with another request; use a new key for a new request.",
        param="Idempotency-Key",
    ),
    core.BrokenConversationError: _always(
        503,
        "conversation_unreadable",
        "What is stored of this conversation cannot be read; ask the server's operator.",
    ),
    core.StoreUnavailableError: _always(
        503,
        "conversation_storage_unavailable",
        "Conversations cannot be read or kept at the moment; ask again later.",
        retry_after=RETRY_SECONDS,
    ),
}
# The codes of answers that are not refusals of the server's own, with their statuses.
STATUS_OF: dict[str, int] = {
    **STATUSES,
    "provider_key_missing": 401,
    "provider_key_refused": 401,
    "provider_permission_denied": 403,
    "context_length_exceeded": 400,
    "strict_mode": 400,
    "conversation_busy": 409,
    "conversation_exists": 409,
    "idempotency_conflict": 409,
    "internal_error": 500,
    "server_misconfigured": 500,
    "context_failed": 502,
    "reply_schema_mismatch": 502,
    "upstream_bad_reply": 502,
    "upstream_broken_stream": 502,
    "upstream_error": 502,
    "upstream_unreachable": 502,
    "conversation_storage_unavailable": 503,
    "conversation_unreadable": 503,
    "local_model_unavailable": 503,
    "upstream_timeout": 504,
}

"""Every error that cllm raises on purpose.

docs/reference/library.md shows the hierarchy.

The text of an error is one sentence that tells a person what to do next. Programs use the type and
the fields, never the text. Each class also declares how the server reports it to a client.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from cllm.core.notice import Notice
from cllm.core.secret import redact_secrets

RETRY_SECONDS = 1.0
CLIENT_ERRORS = range(400, 500)
SERVER_ERRORS = range(500, 600)


class ErrorReport(msgspec.Struct, frozen=True, kw_only=True):
    """An error as the server reports it, in any protocol."""

    status: int
    code: str
    message: str
    param: str | None = None
    can_retry: bool = False
    retry_after: float | None = None
    turn_id: str | None = None
    details: Mapping[str, Any] | None = None


class CllmError(Exception):
    """The base class of all errors of cllm.

    `http_message` is the text for clients of the server, formatted with `error`. None means the
    text of the error itself, which must contain no path, address or key of the server. `can_retry`:
    whether the same request can succeed later.
    """

    http_status: int = 500
    http_code: str = "internal_error"
    http_message: str | None = (
        "The server failed; ask its operator to look up the request ID in the server log."
    )
    param: str | None = None
    retry_after: float | None = None
    can_retry: bool = False

    def __reduce__(self) -> tuple[Any, ...]:
        """Errors of another process, as of `multiprocessing`, have their text and their fields."""
        return _rebuild_error, (type(self), self.args, self.__dict__)

    def report(self) -> ErrorReport:
        text = self.http_message
        return ErrorReport(
            status=self.http_status,
            code=self.http_code,
            message=str(self) if text is None else text.format(error=self),
            param=self.param,
            can_retry=self.can_retry,
            retry_after=self.retry_after if self.can_retry else None,
        )


def _rebuild_error(kind: type[CllmError], args: tuple[Any, ...], fields: Any) -> CllmError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(fields)
    return error


class UsageError(CllmError):
    http_status, http_code = 422, "validation_error"
    http_message: str | None = None


class InvalidIdError(UsageError):
    http_status, http_code = 400, "invalid_conversation_id"
    http_message = (
        "No conversation has this ID or name; send the UUID that the server returned, or the name "
        "of a conversation."
    )

    def __init__(self, ref: str) -> None:
        super().__init__(
            f"{ref!r} is not a valid conversation ID; use 1 to 128 letters, digits, '-' or '_'."
        )
        self.ref = ref


class InvalidTextError(UsageError, ValueError):
    http_message = "A string is empty or contains an invalid character; correct it and try again."

    def __init__(self, message: str) -> None:
        super().__init__(message)


def install_advice(extra: str) -> str:
    from cllm.core.installation import install_command  # noqa: PLC0415 - only for this error

    return f"to add it, run: {install_command(extra)}"


class MissingPackageError(UsageError):
    http_status, http_code = 501, "not_supported"
    http_message = (
        "This server lacks the packages for this feature; ask its operator to install them."
    )


class MissingExtraError(MissingPackageError):
    def __init__(self, *, feature: str, extra: str, alternative: str | None = None) -> None:
        advice = "" if alternative is None else f"; or {alternative}"
        super().__init__(f"{feature} needs the extra '{extra}'; {install_advice(extra)}{advice}")
        self.extra = extra


class WindowTooSmallError(UsageError):
    """All numbers are tokens."""

    http_status, http_code, param = 400, "context_length_exceeded", "messages"
    http_message = (
        "The messages need {error.needed} tokens and the context window has room for "
        "{error.available}; send less, or choose a model with a larger context window."
    )

    def __init__(self, *, needed: int, available: int, pinned: int = 0) -> None:
        unpin = f"remove pins (they need {pinned} tokens), " if pinned else ""
        super().__init__(
            f"The messages need {needed} tokens and the context window has room for {available}; "
            f"send less text, {unpin}summarise it first, or choose a model with a larger context "
            "window."
        )
        self.needed = needed
        self.available = available
        self.pinned = pinned


class SettingsError(CllmError):
    http_code = "server_misconfigured"
    http_message = "The settings of the server are invalid; ask its operator to correct them."

    def __init__(self, message: str, *, path: str | None = None, line: int | None = None) -> None:
        where = "" if path is None else f"{path}: " if line is None else f"{path}, line {line}: "
        super().__init__(f"Configuration error: {where}{message}")
        self.path = path
        self.line = line


class UntrustedFileError(SettingsError):
    http_message = (
        "The settings of the server are not trusted; ask its operator to run `cllm trust`."
    )

    def __init__(self, *, path: str, keys: tuple[str, ...]) -> None:
        from shlex import quote  # noqa: PLC0415 - rarely needed

        super().__init__(
            f"{path} is not trusted. It sets {', '.join(keys)}, which can run commands or redirect "
            f"requests. Read it, then run: cllm trust {quote(path)}"
        )
        self.path = path
        self.keys = keys


class ContextError(CllmError):
    http_status, http_code = 502, "context_failed"
    http_message = "A context command of the server failed; ask its operator to check it."

    def __init__(self, *, name: str, reason: str) -> None:
        super().__init__(
            f"Context error: '{name}' failed ({reason}), so the model was not called; correct the "
            "command, or set its on_failure to `warn`."
        )
        self.name = name
        self.reason = reason


class VariableError(CllmError):
    http_code = "server_misconfigured"
    http_message = "A template of the server lacks a variable; ask its operator to set it."

    def __init__(self, message: str, *, variable: str | None = None) -> None:
        super().__init__(f"Variable error: {message}")
        self.variable = variable


class SchemaError(CllmError):
    """`source` is the origin of the schema, `place` a JSON path inside it."""

    http_status, http_code, param = 422, "validation_error", "response_format"
    http_message = "The JSON schema cannot be used{error._location}; correct it and try again."

    def __init__(self, problem: str, *, source: str, place: str | None = None) -> None:
        self.problem = problem
        self.source = source
        self.place = place
        super().__init__(f"The JSON schema from {source} cannot be used{self._location}: {problem}")

    @property
    def _location(self) -> str:
        return "" if self.place is None else f" at {self.place}"


class SchemaUnavailableError(SchemaError):
    """The schema cannot be fetched now; a cached copy can be used."""

    http_message = "The JSON schema could not be fetched; try again later."


class ReplySchemaError(CllmError):
    """`place` is a JSON path inside the reply."""

    http_status, http_code = 502, "reply_schema_mismatch"
    http_message = "The reply does not match the JSON schema at {error.place}; try again."

    def __init__(self, problem: str, *, place: str, advice: str = "Try again.") -> None:
        super().__init__(
            f"The reply does not match the JSON schema at {place}: {problem}; the reply was not "
            f"saved. {advice}"
        )
        self.problem = problem
        self.place = place


class ModelNotFoundError(CllmError):
    http_status, http_code = 404, "model_not_found"
    http_message = None
    param = "model"

    def __init__(self, message: str, *, model: str) -> None:
        super().__init__(message)
        self.model = model


class MissingKeyError(CllmError):
    http_status, http_code = 401, "provider_key_missing"
    http_message = "The server has no API key for provider '{error.provider}'; {error._advice}"

    def __init__(self, *, provider: str, variable: str) -> None:
        super().__init__(
            f"Provider '{provider}' needs an API key: run `cllm keys set {provider}`, or set "
            f"{variable}."
        )
        self.provider = provider
        self.variable = variable

    @property
    def _advice(self) -> str:
        if self.provider == "anthropic":
            return "send your own key in x-anthropic-api-key, or ask the server's operator."
        return "ask the server's operator to configure one."


class ProviderError(CllmError):
    """`code`, `param`, `details` and `provider_message` are from the provider's response.

    `request_id` is the provider's ID of the call, for its support. With `shares_message` a client
    of the server receives the provider's message too.
    """

    http_status, http_code = 502, "upstream_error"
    http_message: str | None = (
        "Provider '{error.provider}' failed{error._status_text}; try again later."
    )
    shares_message: bool = False

    def __init__(
        self,
        message: str,
        *,
        provider: str,
        status: int | None = None,
        retry_after: float | None = None,
        code: str | None = None,
        param: str | None = None,
        details: Mapping[str, Any] | None = None,
        provider_message: str | None = None,
        request_id: str | None = None,
    ) -> None:
        super().__init__(message)
        self.provider = provider
        self.status = status
        self.retry_after = retry_after
        self.code = code
        self.param = param or self.param
        self.details = details
        self.provider_message = provider_message
        self.request_id = request_id

    @property
    def _status_text(self) -> str:
        return "" if self.status is None else f" (HTTP {self.status})"

    def report(self) -> ErrorReport:
        """Return the report, with the provider's status unless a subclass has a better one."""
        report = super().report()
        if self.shares_message and self.provider_message:
            text = f"{report.message} The provider's message: {self.provider_message}"
            report = msgspec.structs.replace(report, message=redact_urls(text))
        if self.http_code != ProviderError.http_code or self.status not in SERVER_ERRORS:
            return report
        return msgspec.structs.replace(report, status=self.status)


def redact_urls(text: str) -> str:
    """Remove the addresses of the server's providers from a text for its clients."""
    return redact_secrets(text, [word for word in text.split(" ") if "://" in word])


class UnreachableError(ProviderError):
    http_code, can_retry = "upstream_unreachable", True
    http_message = "The server cannot reach provider '{error.provider}'; try again later."


class ProviderTimeoutError(ProviderError):
    http_status, http_code = 504, "upstream_timeout"
    http_message = "Provider '{error.provider}' sent no data for too long; try again."


class AuthenticationError(ProviderError):
    http_status, http_code = 401, "provider_key_refused"
    http_message = "Provider '{error.provider}' rejected the API key; check the key."


class PermissionDeniedError(ProviderError):
    http_status, http_code = 403, "provider_permission_denied"
    http_message = (
        "Provider '{error.provider}' does not allow this request with this API key; use a key "
        "with more permissions."
    )


class InvalidRequestError(ProviderError):
    http_status, http_code = 400, "invalid_request"
    http_message = None

    def report(self) -> ErrorReport:
        """Return the provider's text, which is about the request, without URLs."""
        status = self.status
        return ErrorReport(
            status=status if status and status in CLIENT_ERRORS else self.http_status,
            code=self.code or self.http_code,
            message=redact_urls(str(self)),
            param=self.param,
            details=self.details,
        )


class PromptTooLongError(InvalidRequestError):
    http_code, param = "context_length_exceeded", "messages"

    def report(self) -> ErrorReport:
        return msgspec.structs.replace(
            super().report(), status=self.http_status, code=self.http_code, param=self.param
        )


class UnsendableError(InvalidRequestError):
    def __init__(self, message: str, *, provider: str, path: str | None = None) -> None:
        super().__init__(message, provider=provider)
        self.path = path

    def report(self) -> ErrorReport:
        if self.path is None:
            return ErrorReport(status=400, code="invalid_request", message=str(self))
        return ErrorReport(status=422, code="validation_error", message=str(self), param=self.path)


class StrictError(InvalidRequestError):
    http_code = "strict_mode"

    def __init__(self, *, provider: str, notices: tuple[Notice, ...]) -> None:
        changes = "; ".join(map(_describe_change, notices))
        super().__init__(
            f"Strict mode: the request was not sent, because provider '{provider}' does not accept "
            f"it unchanged ({changes}); change the request or turn strict mode off.",
            provider=provider,
        )
        self.notices = notices

    def report(self) -> ErrorReport:
        path = self.notices[0].path if self.notices else None
        return ErrorReport(
            status=self.http_status, code=self.http_code, message=str(self), param=path or None
        )


def _describe_change(notice: Notice) -> str:
    text = notice.message.removesuffix("; it is not sent.").rstrip(".")
    return f"{notice.path}: {text}" if notice.path else text


class RateLimitedError(ProviderError):
    http_status, http_code, can_retry = 429, "rate_limited", True
    http_message = "Provider '{error.provider}' limits the rate of requests; wait and try again."
    shares_message = True


class QuotaExceededError(RateLimitedError):
    """The account has no quota or credit left: a retry does not help."""

    http_code, can_retry = "insufficient_quota", False
    http_message = (
        "The account at provider '{error.provider}' has no quota or credit left; check its plan "
        "and billing."
    )

    def report(self) -> ErrorReport:
        """Return the report with the provider's status: 402, 429, or 400 for an empty balance."""
        status = self.status
        report = super().report()
        if status is None or status not in CLIENT_ERRORS:
            return report
        return msgspec.structs.replace(report, status=status)


class UpstreamError(ProviderError):
    can_retry = True
    shares_message = True


class BadReplyError(ProviderError):
    http_code = "upstream_bad_reply"
    http_message = "Provider '{error.provider}' sent an invalid response; try again."


class BrokenStreamError(ProviderError):
    http_code, can_retry = "upstream_broken_stream", True
    http_message = "Provider '{error.provider}' ended its response too early; try again."


class LocalModelError(CllmError):
    http_status, http_code = 503, "local_model_unavailable"
    http_message = "The local model is not available now; try again later."


class DownloadError(LocalModelError):
    http_message = "The local model could not be downloaded; try again later."


class StoreError(CllmError):
    http_status, http_code = 503, "conversation_storage_unavailable"
    http_message: str | None = "The conversation store is not available now; try again later."
    retry_after: float | None = RETRY_SECONDS
    can_retry = True


class ConversationNotFoundError(StoreError):
    http_status, http_code, can_retry = 404, "conversation_not_found", False
    http_message = "The conversation does not exist; check its ID."

    def __init__(self, ref: str) -> None:
        super().__init__(
            f"Conversation '{ref}' does not exist; list conversations with: cllm conversations list"
        )
        self.ref = ref


class ConversationExistsError(StoreError):
    http_status, http_code, can_retry = 409, "conversation_exists", False
    http_message = "A conversation with this ID already exists; choose another ID."

    def __init__(self, ref: str) -> None:
        super().__init__(f"Conversation '{ref}' already exists; choose another ID.")
        self.ref = ref


class ConversationBusyError(StoreError):
    http_status, http_code = 409, "conversation_busy"
    http_message = (
        "Another turn is running in this conversation; wait and try again, or send "
        "X-On-Conflict: queue or branch."
    )

    def __init__(self, ref: str, *, turn_id: str | None = None) -> None:
        super().__init__(f"Another turn is running in conversation '{ref}'; wait and try again.")
        self.ref = ref
        self.turn_id = turn_id

    def report(self) -> ErrorReport:
        return msgspec.structs.replace(super().report(), turn_id=self.turn_id)


class HistoryDivergedError(StoreError):
    """Only with `strict`: the history of a request differs from the stored one."""

    http_status, http_code, can_retry = 409, "history_diverged", False
    http_message = (
        "The history in the request differs from the stored conversation; send the stored history, "
        "or omit X-CLLM-Strict to continue in a branch."
    )
    param = "messages"

    def __init__(self, ref: str, *, index: int) -> None:
        super().__init__(
            f"The history differs from conversation '{ref}' after {index} common messages; send "
            "the stored history, or omit `strict` to continue in a branch."
        )
        self.ref = ref
        self.index = index


class SequenceNotFoundError(StoreError):
    http_status, http_code, can_retry = 404, "sequence_not_found", False
    http_message = "The conversation has no message {error.sequence}; check the sequence number."
    param = "sequence_number"

    def __init__(self, ref: str, sequence: int) -> None:
        super().__init__(f"Conversation '{ref}' has no message {sequence}; check the number.")
        self.ref = ref
        self.sequence = sequence


class TurnNotFoundError(StoreError):
    http_status, http_code, can_retry = 404, "turn_not_found", False
    http_message = "The turn does not exist in this conversation; check its ID."
    param = "turn_id"

    def __init__(self, ref: str, turn_id: str) -> None:
        super().__init__(f"Conversation '{ref}' has no turn '{turn_id}'; check the ID.")
        self.ref = ref
        self.turn_id = turn_id


class StaleLeaseError(StoreError):
    http_status, http_code = 409, "conversation_busy"
    http_message = "The turn lost its lease to another turn and was not saved; try again."

    def __init__(self, ref: str) -> None:
        super().__init__(
            f"The turn in conversation '{ref}' lost its lease to another turn and was not saved; "
            "try again."
        )
        self.ref = ref


class RequestInFlightError(StoreError):
    http_status, http_code, param = 409, "idempotency_conflict", "Idempotency-Key"
    http_message = None

    def __init__(self) -> None:
        super().__init__("The same request is still running; try again in a moment.")


class RequestConflictError(StoreError):
    http_status, http_code, param = 409, "idempotency_conflict", "Idempotency-Key"
    http_message, can_retry = None, False

    def __init__(self) -> None:
        super().__init__(
            "This idempotency key was used for another request; use a new key for a new request."
        )


class BrokenConversationError(StoreError):
    http_code, can_retry = "conversation_unreadable", False
    http_message = "The stored conversation is damaged; ask the server's operator to repair it."

    def __init__(self, path: str, *, reason: str) -> None:
        super().__init__(
            f"{path} is not a valid conversation ({reason}); repair it, or move it to another "
            "folder (it was not changed)."
        )
        self.path = path
        self.reason = reason


class StoreUnavailableError(StoreError):
    def __init__(self, message: str, *, path: str | None = None) -> None:
        super().__init__(message)
        self.path = path

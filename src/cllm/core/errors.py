"""Every error that cllm raises on purpose.

    CllmError
    ├── UsageError                    the request cannot be met
    │   ├── InvalidIdError
    │   ├── InvalidTextError            also a ValueError
    │   ├── MissingExtraError
    │   └── WindowTooSmallError         the messages exceed the window
    ├── SettingsError                 a Cllmfile or a setting is wrong
    │   └── UntrustedFileError
    ├── ContextError                  a context command with on_failure `fail` failed
    ├── VariableError                 a variable of a template is missing or wrong
    ├── SchemaError                   a JSON schema cannot be read or used
    │   └── SchemaUnavailableError      cannot be fetched now
    ├── ReplySchemaError              the reply does not match its JSON schema
    ├── ModelNotFoundError            no provider serves the model
    ├── MissingKeyError               the provider needs a key and none is configured
    ├── ProviderError                 the provider was called and gave no reply
    │   ├── UnreachableError            no connection
    │   ├── ProviderTimeoutError        connected, but no data for too long
    │   ├── AuthenticationError         401
    │   ├── PermissionDeniedError       403
    │   ├── InvalidRequestError         400, 404, 413, 422
    │   │   ├── PromptTooLongError
    │   │   ├── UnsendableError         the prompt cannot be converted for this provider
    │   │   └── StrictError             it would have to be changed, which strict mode forbids
    │   ├── RateLimitedError            429
    │   ├── UpstreamError               500 and above
    │   ├── BadReplyError               a reply that violates the protocol
    │   └── BrokenStreamError           a stream that ended before the reply did
    ├── LocalModelError               the local model cannot be downloaded or run
    │   └── DownloadError
    └── StoreError
        ├── ConversationNotFoundError
        ├── ConversationExistsError
        ├── ConversationBusyError       another turn is running
        ├── SequenceNotFoundError
        ├── TurnNotFoundError
        ├── StaleLeaseError             the lease was lost
        ├── RequestInFlightError        the same request is running
        ├── RequestConflictError        an idempotency key was used for another request
        ├── BrokenConversationError     the stored data cannot be read
        └── StoreUnavailableError       unwritable folder, full disk, no connection

The text of an error is one sentence for a person that says what to do. Programs use the type and
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
    retry_after: float | None = None
    turn_id: str | None = None
    details: Mapping[str, Any] | None = None


class CllmError(Exception):
    """The root of the tree.

    `http_message` is the text for clients of the server, formatted with `error`; None is the text
    of the error, if that has no path, address or key of the server. `can_retry`: whether the same
    request can succeed later.
    """

    http_status: int = 500
    http_code: str = "internal_error"
    http_message: str | None = (
        "The server failed; ask its operator to look for the request's id in its log."
    )
    param: str | None = None
    retry_after: float | None = None
    can_retry: bool = False

    def report(self) -> ErrorReport:
        text = self.http_message
        return ErrorReport(
            status=self.http_status,
            code=self.http_code,
            message=str(self) if text is None else text.format(error=self),
            param=self.param,
            retry_after=self.retry_after if self.can_retry else None,
        )


class UsageError(CllmError):
    http_status, http_code = 422, "validation_error"
    http_message: str | None = None


class InvalidIdError(UsageError):
    http_status, http_code = 400, "invalid_conversation_id"
    http_message = (
        "This is not the id of a conversation; send a UUID as the server gave it, or leave it "
        "empty for a new conversation."
    )

    def __init__(self, ref: str) -> None:
        super().__init__(
            f"{ref!r} is not a conversation id; use letters, digits, '-' and '_' only, "
            "at most 128 of them."
        )
        self.ref = ref


class InvalidTextError(UsageError, ValueError):
    http_message = "A text is empty, or has something in it that is no character."

    def __init__(self, message: str) -> None:
        super().__init__(message)


class MissingExtraError(UsageError):
    http_status, http_code = 501, "not_supported"
    http_message = "This server was installed without the packages for that; ask its operator."

    def __init__(self, *, feature: str, extra: str) -> None:
        super().__init__(
            f"{feature} needs more packages; install them with: pip install 'cllm[{extra}]'"
        )
        self.extra = extra


class WindowTooSmallError(UsageError):
    """All numbers are tokens."""

    http_status, http_code, param = 400, "context_length_exceeded", "messages"
    http_message = (
        "This needs {error.needed} tokens and there is room for {error.available}; send less, or "
        "choose a model with a larger context window."
    )

    def __init__(self, *, needed: int, available: int, pinned: int = 0) -> None:
        unpin = f" unpin some of the {pinned} that are pinned," if pinned else ""
        super().__init__(
            f"This needs {needed} tokens and there is room for {available}; attach long text as a "
            f"file,{unpin} choose a model with a larger context window, or summarise it first."
        )
        self.needed = needed
        self.available = available
        self.pinned = pinned


class SettingsError(CllmError):
    http_code = "server_misconfigured"
    http_message = "The server's settings are wrong; ask its operator."

    def __init__(self, message: str, *, path: str | None = None, line: int | None = None) -> None:
        where = "" if path is None else f"{path}: " if line is None else f"{path}, line {line}: "
        super().__init__(f"Configuration error: {where}{message}")
        self.path = path
        self.line = line


class UntrustedFileError(SettingsError):
    http_message = "The server's settings are not trusted; ask its operator."

    def __init__(self, *, path: str, keys: tuple[str, ...]) -> None:
        from shlex import quote  # noqa: PLC0415 - rarely needed

        super().__init__(
            f"it sets {', '.join(keys)}, which can run or redirect things, and you have not "
            f"trusted it; read it, then run: cllm trust {quote(path)}",
            path=path,
        )
        self.keys = keys


class ContextError(CllmError):
    http_status, http_code = 502, "context_failed"
    http_message = "A context command of this server failed; ask its operator."

    def __init__(self, *, name: str, reason: str) -> None:
        super().__init__(
            f"Context error: '{name}' failed ({reason}), and its on_failure is `fail`; the model "
            "was not asked."
        )
        self.name = name
        self.reason = reason


class VariableError(CllmError):
    http_code = "server_misconfigured"
    http_message = "A template of this server's misses a variable."

    def __init__(self, message: str, *, variable: str | None = None) -> None:
        super().__init__(f"Variable error: {message}")
        self.variable = variable


class SchemaError(CllmError):
    """`source` is the origin of the schema, `place` a path inside it."""

    http_status, http_code, param = 422, "validation_error", "response_format"
    http_message = "The JSON schema cannot be used{error._where}; correct it and ask again."

    def __init__(self, problem: str, *, source: str, place: str | None = None) -> None:
        where = "" if place is None else f" at {place}"
        super().__init__(f"The JSON schema of {source} cannot be used{where}: {problem}")
        self.problem = problem
        self.source = source
        self.place = place

    @property
    def _where(self) -> str:
        return "" if self.place is None else f" at {self.place}"


class SchemaUnavailableError(SchemaError):
    """The schema cannot be fetched now; one that was fetched earlier can be used."""


class ReplySchemaError(CllmError):
    """`place` is a path inside the reply."""

    http_status, http_code = 502, "reply_schema_mismatch"
    http_message = "The reply does not fit the JSON schema at {error.place}; ask again."

    def __init__(self, problem: str, *, place: str) -> None:
        super().__init__(
            f"The reply does not fit the JSON schema at {place}: {problem}; nothing was kept."
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
    http_message = (
        "This server has no key for provider '{error.provider}'; send one of your own where that "
        "is possible, or ask the server's operator."
    )

    def __init__(self, *, provider: str, variable: str) -> None:
        super().__init__(
            f"Provider '{provider}' needs an API key: set {variable}, or "
            f"providers.{provider}.api_key in ~/.cllm/Cllmfile.yml."
        )
        self.provider = provider
        self.variable = variable


class ProviderError(CllmError):
    """`code` and `details` are the provider's own."""

    http_status, http_code = 502, "upstream_error"
    http_message: str | None = (
        "Provider '{error.provider}' failed{error._shown_status}; ask again later."
    )

    def __init__(
        self,
        message: str,
        *,
        provider: str,
        status: int | None = None,
        retry_after: float | None = None,
        code: str | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.provider = provider
        self.status = status
        self.retry_after = retry_after
        self.code = code
        self.details = details

    @property
    def _shown_status(self) -> str:
        return "" if self.status is None else f" (HTTP {self.status})"

    def report(self) -> ErrorReport:
        """Return the report, with the provider's own status if no subclass has a better one."""
        report = super().report()
        if self.http_code != ProviderError.http_code or self.status not in SERVER_ERRORS:
            return report
        return msgspec.structs.replace(report, status=self.status)


class UnreachableError(ProviderError):
    http_code, can_retry = "upstream_unreachable", True
    http_message = (
        "Provider '{error.provider}' cannot be reached from this server; ask again later."
    )


class ProviderTimeoutError(ProviderError):
    http_status, http_code = 504, "upstream_timeout"
    http_message = "Provider '{error.provider}' sent nothing for too long; ask again."


class AuthenticationError(ProviderError):
    http_status, http_code = 401, "provider_key_refused"
    http_message = "Provider '{error.provider}' refused the key it was asked with; check that key."


class PermissionDeniedError(ProviderError):
    http_status, http_code = 403, "provider_permission_denied"
    http_message = "Provider '{error.provider}' does not allow this with the key it was asked with."


class InvalidRequestError(ProviderError):
    http_status, http_code = 400, "invalid_request"
    http_message = None

    def report(self) -> ErrorReport:
        """Return the provider's text, which is about the request, without addresses."""
        status, text = self.status, str(self)
        return ErrorReport(
            status=status if status and status in CLIENT_ERRORS else self.http_status,
            code=self.code or self.http_code,
            message=redact_secrets(text, [word for word in text.split(" ") if "://" in word]),
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
        texts = " ".join(
            f"{notice.path}: {notice.message}" if notice.path else notice.message
            for notice in notices
        )
        super().__init__(
            f"Provider '{provider}' cannot be sent this as it is, and strict mode is on: {texts}",
            provider=provider,
        )
        self.notices = notices

    def report(self) -> ErrorReport:
        path = self.notices[0].path if self.notices else None
        return ErrorReport(
            status=self.http_status, code=self.http_code, message=str(self), param=path or None
        )


class RateLimitedError(ProviderError):
    http_status, http_code, can_retry = 429, "rate_limited", True
    http_message = "Provider '{error.provider}' takes no more requests for now; wait and ask again."


class UpstreamError(ProviderError):
    can_retry = True


class BadReplyError(ProviderError):
    http_code = "upstream_bad_reply"
    http_message = "Provider '{error.provider}' gave an answer that cannot be read; ask again."


class BrokenStreamError(ProviderError):
    http_code, can_retry = "upstream_broken_stream", True
    http_message = "Provider '{error.provider}' broke off in the middle of its answer; ask again."


class LocalModelError(CllmError):
    http_status, http_code = 503, "local_model_unavailable"
    http_message = "The local model does not run here now; ask again later."


class DownloadError(LocalModelError):
    http_message = "The local model could not be fetched; ask again later."


class StoreError(CllmError):
    http_status, http_code = 503, "conversation_storage_unavailable"
    http_message: str | None = (
        "Conversations cannot be read or kept at the moment; ask again later."
    )
    retry_after: float | None = RETRY_SECONDS
    can_retry = True


class ConversationNotFoundError(StoreError):
    http_status, http_code, can_retry = 404, "conversation_not_found", False
    http_message = "There is no such conversation."

    def __init__(self, ref: str) -> None:
        super().__init__(
            f"There is no conversation '{ref}'; see them with: cllm --list-conversations"
        )
        self.ref = ref


class ConversationExistsError(StoreError):
    http_status, http_code, can_retry = 409, "conversation_exists", False
    http_message = "There is already such a conversation; choose another id."

    def __init__(self, ref: str) -> None:
        super().__init__(f"There is already a conversation '{ref}'; choose another id.")
        self.ref = ref


class ConversationBusyError(StoreError):
    http_status, http_code = 409, "conversation_busy"
    http_message = (
        "Another turn is running in this conversation; wait for it and ask again, or send "
        "X-On-Conflict: queue or branch."
    )

    def __init__(self, ref: str, *, turn_id: str | None = None) -> None:
        super().__init__(
            f"Another turn is running in conversation '{ref}'; wait for it and ask again."
        )
        self.ref = ref
        self.turn_id = turn_id

    def report(self) -> ErrorReport:
        return msgspec.structs.replace(super().report(), turn_id=self.turn_id)


class SequenceNotFoundError(StoreError):
    http_status, http_code, can_retry = 404, "sequence_not_found", False
    http_message = "The conversation has no message number {error.sequence}."
    param = "sequence_number"

    def __init__(self, ref: str, sequence: int) -> None:
        super().__init__(f"Conversation '{ref}' has no message number {sequence}.")
        self.ref = ref
        self.sequence = sequence


class TurnNotFoundError(StoreError):
    http_status, http_code, can_retry = 404, "turn_not_found", False
    http_message = "The conversation has no such turn."
    param = "turn_id"

    def __init__(self, ref: str, turn_id: str) -> None:
        super().__init__(f"Conversation '{ref}' has no turn '{turn_id}'.")
        self.ref = ref
        self.turn_id = turn_id


class StaleLeaseError(StoreError):
    http_status, http_code = 409, "conversation_busy"
    http_message = "The turn took too long and another one took its place; ask again."

    def __init__(self, ref: str) -> None:
        super().__init__(
            f"The turn in conversation '{ref}' lost its lease to another one, and was not kept; "
            "ask again."
        )
        self.ref = ref


class RequestInFlightError(StoreError):
    http_status, http_code, param = 409, "idempotency_conflict", "Idempotency-Key"
    http_message = None

    def __init__(self) -> None:
        super().__init__("The same request is still being answered; ask again in a moment.")


class RequestConflictError(StoreError):
    http_status, http_code, param = 409, "idempotency_conflict", "Idempotency-Key"
    http_message = (
        "This idempotency key came with another request; use a new key for a new request."
    )
    can_retry = False

    def __init__(self) -> None:
        super().__init__(
            "This idempotency key was used for another request; use a new key for a new request."
        )


class BrokenConversationError(StoreError):
    http_code, can_retry = "conversation_unreadable", False
    http_message = "What is stored of this conversation cannot be read; ask the server's operator."

    def __init__(self, path: str, *, reason: str) -> None:
        super().__init__(
            f"{path} is not a conversation that can be read ({reason}); "
            "mend it or move it away, it has not been changed."
        )
        self.path = path
        self.reason = reason


class StoreUnavailableError(StoreError):
    def __init__(self, message: str, *, path: str | None = None) -> None:
        super().__init__(message)
        self.path = path

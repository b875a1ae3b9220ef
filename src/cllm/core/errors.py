"""Every error that cllm raises on purpose.

    CllmError
    ├── UsageError                    the person asked for something that cannot be
    │   ├── InvalidIdError
    │   ├── InvalidTextError            a ValueError as well
    │   ├── MissingExtraError
    │   └── WindowTooSmallError         what has to be sent is more than may be
    ├── SettingsError                 a Cllmfile or a setting is wrong
    │   └── UntrustedFileError
    ├── ContextError                  a context command failed that must not
    ├── VariableError                 a variable of a template is missing or wrong
    ├── SchemaError                   a JSON schema cannot be read or used
    │   └── SchemaUnavailableError      its address gives nothing now, and could later
    ├── ReplySchemaError              the reply is not what the JSON schema asks for
    ├── ModelNotFoundError            no provider is known for the model
    ├── MissingKeyError               the provider wants a key and none is configured
    ├── ProviderError                 the provider was asked and there is no answer
    │   ├── UnreachableError            no connection
    │   ├── ProviderTimeoutError        connected, but silent for too long
    │   ├── AuthenticationError         401
    │   ├── PermissionDeniedError       403
    │   ├── InvalidRequestError         400, 404, 413, 422
    │   │   ├── PromptTooLongError
    │   │   ├── UnsendableError         no request can be made of the prompt for this provider
    │   │   └── StrictError             it would have to be changed, and strict mode forbids that
    │   ├── RateLimitedError            429
    │   ├── UpstreamError               500 and above
    │   ├── BadReplyError               an answer that is not what the protocol promises
    │   └── BrokenStreamError           a stream that ended before the answer did
    ├── LocalModelError               the local model cannot be fetched or run
    │   └── DownloadError
    └── StoreError
        ├── ConversationNotFoundError
        ├── ConversationExistsError
        ├── ConversationBusyError       another turn is running
        ├── SequenceNotFoundError
        ├── TurnNotFoundError
        ├── StaleLeaseError             the right to write was lost
        ├── RequestInFlightError        the same request is being answered now
        ├── RequestConflictError        an idempotency key came with another request
        ├── BrokenConversationError     what is stored cannot be read
        └── StoreUnavailableError       unwritable folder, full disk, no connection

The text of an error is one sentence for a person, and says what to do. Programs look at the type
and the fields, never at the text.
"""

from collections.abc import Mapping
from typing import Any

from cllm.core.notice import Notice


class CllmError(Exception):
    """The root of the tree."""


class UsageError(CllmError):
    """The person asked for something that cannot be done as asked."""


class InvalidIdError(UsageError):
    def __init__(self, ref: str) -> None:
        super().__init__(
            f"{ref!r} is not a conversation id; use letters, digits, '-' and '_' only, "
            "at most 128 of them."
        )
        self.ref = ref


class InvalidTextError(UsageError, ValueError):
    """What should be a text says nothing, or has something in it that is no character."""

    def __init__(self, message: str) -> None:
        super().__init__(message)


class MissingExtraError(UsageError):
    """Something was used whose packages are not installed."""

    def __init__(self, *, feature: str, extra: str) -> None:
        super().__init__(
            f"{feature} needs more packages; install them with: pip install 'cllm[{extra}]'"
        )
        self.extra = extra


class WindowTooSmallError(UsageError):
    """What cannot be left out of a prompt is more than its budget; all numbers are tokens."""

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
    """A setting is wrong; `path` and `line` say where, when it came from a file."""

    def __init__(self, message: str, *, path: str | None = None, line: int | None = None) -> None:
        where = "" if path is None else f"{path}: " if line is None else f"{path}, line {line}: "
        super().__init__(f"Configuration error: {where}{message}")
        self.path = path
        self.line = line


class UntrustedFileError(SettingsError):
    """A Cllmfile in the current directory has keys that need the person's trust."""

    def __init__(self, *, path: str, keys: tuple[str, ...]) -> None:
        from shlex import quote  # noqa: PLC0415 - rarely needed

        super().__init__(
            f"it sets {', '.join(keys)}, which can run or redirect things, and you have not "
            f"trusted it; read it, then run: cllm trust {quote(path)}",
            path=path,
        )
        self.keys = keys


class ContextError(CllmError):
    """A context command with `on_failure: fail` failed, so the model was not asked."""

    def __init__(self, *, name: str, reason: str) -> None:
        super().__init__(
            f"Context error: '{name}' failed ({reason}), and its on_failure is `fail`; the model "
            "was not asked."
        )
        self.name = name
        self.reason = reason


class VariableError(CllmError):
    """A template cannot be filled in; the sentence says what to give."""

    def __init__(self, message: str, *, variable: str | None = None) -> None:
        super().__init__(f"Variable error: {message}")
        self.variable = variable


class SchemaError(CllmError):
    """A JSON schema cannot be used. `source` is where it came from, `place` is inside it."""

    def __init__(self, problem: str, *, source: str, place: str | None = None) -> None:
        where = "" if place is None else f" at {place}"
        super().__init__(f"The JSON schema of {source} cannot be used{where}: {problem}")
        self.problem = problem
        self.source = source
        self.place = place


class SchemaUnavailableError(SchemaError):
    """The address of a schema gives nothing now; one that was fetched earlier will do."""


class ReplySchemaError(CllmError):
    """The reply does not fit its JSON schema, and was not kept. `place` is inside the reply."""

    def __init__(self, problem: str, *, place: str) -> None:
        super().__init__(
            f"The reply does not fit the JSON schema at {place}: {problem}; nothing was kept."
        )
        self.problem = problem
        self.place = place


class ModelNotFoundError(CllmError):
    def __init__(self, message: str, *, model: str) -> None:
        super().__init__(message)
        self.model = model


class MissingKeyError(CllmError):
    def __init__(self, *, provider: str, variable: str) -> None:
        super().__init__(
            f"Provider '{provider}' needs an API key: set {variable}, or "
            f"providers.{provider}.api_key in ~/.cllm/Cllmfile.yml."
        )
        self.provider = provider
        self.variable = variable


class ProviderError(CllmError):
    """A provider was asked and gave no answer. `status` is the HTTP status, if there was one.

    `details` are what it said for programs, beside the words for people.
    """

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


class UnreachableError(ProviderError):
    """No connection could be made."""


class ProviderTimeoutError(ProviderError):
    """Connected, but nothing came for too long."""


class AuthenticationError(ProviderError):
    """The key was refused."""


class PermissionDeniedError(ProviderError):
    """The key is known and may not do this."""


class InvalidRequestError(ProviderError):
    """The provider understood the request and refuses it; asking again will not help."""


class PromptTooLongError(InvalidRequestError):
    """The prompt does not fit the model's context window."""


class UnsendableError(InvalidRequestError):
    """No request can be made of the prompt for this provider; it was not asked. `path`: where."""

    def __init__(self, message: str, *, provider: str, path: str | None = None) -> None:
        super().__init__(message, provider=provider)
        self.path = path


class StrictError(InvalidRequestError):
    """The prompt cannot be sent as it is; in strict mode it is not sent otherwise."""

    def __init__(self, *, provider: str, notices: tuple[Notice, ...]) -> None:
        said = " ".join(
            f"{notice.path}: {notice.message}" if notice.path else notice.message
            for notice in notices
        )
        super().__init__(
            f"Provider '{provider}' cannot be sent this as it is, and strict mode is on: {said}",
            provider=provider,
        )
        self.notices = notices


class RateLimitedError(ProviderError):
    """Too many requests; `retry_after` says when to come back, if the provider did."""


class UpstreamError(ProviderError):
    """The provider failed by itself."""


class BadReplyError(ProviderError):
    """The answer is not what the protocol promises."""


class BrokenStreamError(ProviderError):
    """The stream ended before the answer did."""


class LocalModelError(CllmError):
    """The local model cannot be fetched or run."""


class DownloadError(LocalModelError):
    """A model file could not be fetched whole."""


class StoreError(CllmError):
    """A conversation could not be read or kept."""


class ConversationNotFoundError(StoreError):
    def __init__(self, ref: str) -> None:
        super().__init__(
            f"There is no conversation '{ref}'; see them with: cllm --list-conversations"
        )
        self.ref = ref


class ConversationExistsError(StoreError):
    def __init__(self, ref: str) -> None:
        super().__init__(f"There is already a conversation '{ref}'; choose another id.")
        self.ref = ref


class ConversationBusyError(StoreError):
    def __init__(self, ref: str, *, turn_id: str | None = None) -> None:
        super().__init__(
            f"Another turn is running in conversation '{ref}'; wait for it and ask again."
        )
        self.ref = ref
        self.turn_id = turn_id


class SequenceNotFoundError(StoreError):
    def __init__(self, ref: str, sequence: int) -> None:
        super().__init__(f"Conversation '{ref}' has no message number {sequence}.")
        self.ref = ref
        self.sequence = sequence


class TurnNotFoundError(StoreError):
    def __init__(self, ref: str, turn_id: str) -> None:
        super().__init__(f"Conversation '{ref}' has no turn '{turn_id}'.")
        self.ref = ref
        self.turn_id = turn_id


class StaleLeaseError(StoreError):
    def __init__(self, ref: str) -> None:
        super().__init__(
            f"The turn in conversation '{ref}' lost its lease to another one, and was not kept; "
            "ask again."
        )
        self.ref = ref


class RequestInFlightError(StoreError):
    """The same request is being answered at this moment."""

    def __init__(self) -> None:
        super().__init__("The same request is still being answered; ask again in a moment.")


class RequestConflictError(StoreError):
    """A key that stands for one request came with another."""

    def __init__(self) -> None:
        super().__init__(
            "This idempotency key was used for another request; use a new key for a new request."
        )


class BrokenConversationError(StoreError):
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

"""Retry with backoff, and fallback models, after an error before any part of the reply."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator
from contextlib import aclosing
from http import HTTPStatus

import msgspec

from cllm.core.errors import (
    CllmError,
    InvalidRequestError,
    LocalModelError,
    MissingKeyError,
    MissingPackageError,
    ModelNotFoundError,
    PromptTooLongError,
    ProviderError,
    SettingsError,
    WindowTooSmallError,
    redact_urls,
)
from cllm.core.notice import Notice, NoticeCollector
from cllm.core.reply import ModelReported, Noticed, ReplyEvent, ReplyFinished, UsageReported

CallProvider = Callable[[], AsyncGenerator[ReplyEvent, None]]
Sleep = Callable[[float], Awaitable[None]]

TRANSIENT_STATUSES = (408, 409)
# A tuple: a union in isinstance() would be built for every event.
PREFACE = (Noticed, ModelReported)


class RetryRules(msgspec.Struct, frozen=True, kw_only=True):
    """The wait, in seconds, doubles from `first_wait` up to `backoff_cap`.

    With a Retry-After above `longest_wait` there is no retry: a program must not seem to hang.
    """

    retries: int = 2
    first_wait: float = 0.5
    backoff_cap: float = 8.0
    longest_wait: float = 60.0

    def wait_before(self, attempt: int, error: ProviderError, jitter: float) -> float | None:
        """Return the seconds to wait before this retry; None to give up."""
        if attempt > self.retries or not is_transient(error):
            return None
        if error.retry_after is not None:
            return error.retry_after if error.retry_after <= self.longest_wait else None
        backoff = min(self.first_wait * 2.0 ** (attempt - 1), self.backoff_cap)
        return backoff * (0.5 + jitter / 2)


def is_transient(error: ProviderError) -> bool:
    return error.can_retry or error.status in TRANSIENT_STATUSES


class _Preface:
    """The notices and the model of one attempt.

    The model is reported with the reply: an attempt that names it and fails does not reply.
    """

    def __init__(self, yielded: set[Notice]) -> None:
        self._yielded = yielded
        self._notices = NoticeCollector()
        self._model: ModelReported | None = None

    def add(self, event: Noticed | ModelReported) -> Iterator[Noticed | ModelReported]:
        """Yield a notice that no attempt has yielded."""
        if isinstance(event, ModelReported):
            self._model = event
        elif self._notices.append(event.notice):
            yield from self._select_new([event.notice])

    def finish(self) -> Iterator[Noticed | ModelReported]:
        """Yield the notice that counts left-out notices, and the model."""
        yield from self._select_new(self._notices.left_out)
        if self._model is not None:
            yield self._model
            self._model = None

    def _select_new(self, notices: Iterable[Notice]) -> Iterator[Noticed]:
        for notice in notices:
            if notice not in self._yielded:
                self._yielded.add(notice)
                yield Noticed(notice=notice)


async def call_with_retry(
    call: CallProvider, *, rules: RetryRules, sleep: Sleep, jitter: Callable[[], float]
) -> AsyncGenerator[ReplyEvent, None]:
    """Yield the events of the first attempt that replies; no retry after its first event.

    A notice of several attempts is yielded once.
    """
    attempt = 0
    yielded: set[Notice] = set()
    while True:
        is_answering = False
        preface = _Preface(yielded)
        try:
            async with aclosing(call()) as events:
                async for event in events:
                    if isinstance(event, PREFACE):
                        for first in preface.add(event):
                            yield first
                        continue
                    is_part = not isinstance(event, UsageReported)
                    if isinstance(event, ReplyFinished) or (is_part and not is_answering):
                        is_answering = True
                        for first in preface.finish():
                            yield first
                    yield event
        except ProviderError as error:
            attempt += 1
            wait = None if is_answering else rules.wait_before(attempt, error, jitter())
            if wait is None:
                raise
            await sleep(wait)
        else:
            return


def can_fall_back(error: CllmError) -> bool:
    """Whether another model could succeed: not if the request itself is invalid.

    Another model can have a larger context window, or exist.
    """
    if isinstance(error, InvalidRequestError):
        return isinstance(error, PromptTooLongError) or error.status == HTTPStatus.NOT_FOUND
    return isinstance(error, ProviderError | LocalModelError | WindowTooSmallError)


def is_unfit(error: CllmError) -> bool:
    """Whether a fallback cannot take the request, or is not configured for it: try the next."""
    kinds = InvalidRequestError | MissingPackageError | MissingKeyError | ModelNotFoundError
    return isinstance(error, kinds | SettingsError)


def fallback_notice(model: str, next_model: str, error: CllmError) -> Noticed:
    """Return the notice, which clients of the server receive too, without addresses."""
    reason = redact_urls(_describe_reason(error))
    return Noticed(
        notice=Notice(
            code="fallback",
            path="model",
            message=f"Model '{model}' failed ({reason}); calling '{next_model}' instead.",
        )
    )


def _describe_reason(error: CllmError) -> str:
    """Return what happened, without the advice to the caller of a single model."""
    if isinstance(error, ProviderError) and error.status is not None:
        text = (error.provider_message or "").rstrip(".")
        return f"HTTP {error.status}: {text}" if text else f"HTTP {error.status}"
    text = str(error)
    return (text.rpartition("; ")[0] or text).rstrip(".")

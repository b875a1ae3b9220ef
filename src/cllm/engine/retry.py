"""Retry with backoff, and fallback models, after an error before any part of the reply."""

from collections.abc import AsyncGenerator, Awaitable, Callable
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
REPORTS = (UsageReported, ModelReported)


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


async def call_with_retry(
    call: CallProvider, *, rules: RetryRules, sleep: Sleep, jitter: Callable[[], float]
) -> AsyncGenerator[ReplyEvent, None]:
    """Yield the events of the first attempt that replies; no retry after its first event.

    A notice of several attempts is yielded once. The notice that counts left-out notices comes
    before the first other event.
    """
    attempt = 0
    yielded: set[Notice] = set()
    while True:
        is_answering = False
        notices = NoticeCollector()
        try:
            async with aclosing(call()) as events:
                async for event in events:
                    if isinstance(event, Noticed):
                        if notices.append(event.notice) and event.notice not in yielded:
                            yielded.add(event.notice)
                            yield event
                        continue
                    is_part = not isinstance(event, REPORTS)
                    if isinstance(event, ReplyFinished) or (is_part and not is_answering):
                        is_answering = True
                        for notice in set(notices.left_out) - yielded:
                            yielded.add(notice)
                            yield Noticed(notice=notice)
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

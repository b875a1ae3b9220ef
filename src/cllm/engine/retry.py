"""Calling a provider again, or another model, after an error and before any part of a reply."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from http import HTTPStatus

import msgspec

from cllm.core.errors import (
    CllmError,
    InvalidRequestError,
    LocalModelError,
    PromptTooLongError,
    ProviderError,
    WindowTooSmallError,
)
from cllm.core.notice import Notice, NoticeCollector
from cllm.core.ports import Provider
from cllm.core.reply import Noticed, ReplyEvent, ReplyFinished

Ask = Callable[[], AsyncGenerator[ReplyEvent, None]]
Sleep = Callable[[float], Awaitable[None]]

PASSING_STATUSES = (408, 409)


class RetryRules(msgspec.Struct, frozen=True, kw_only=True):
    """How often to ask again, and how long to wait: doubling from `first_wait`, never over a cap.

    A provider's own Retry-After is honoured up to `longest_wait`; one beyond that is an error now,
    which is better than a program that seems to hang.
    """

    retries: int = 2
    first_wait: float = 0.5
    backoff_cap: float = 8.0
    longest_wait: float = 60.0

    def wait_before(self, attempt: int, error: ProviderError, jitter: float) -> float | None:
        """Seconds to wait before asking again for the `attempt`-th time; None for giving up."""
        if attempt > self.retries or not is_passing(error):
            return None
        if error.retry_after is not None:
            return error.retry_after if error.retry_after <= self.longest_wait else None
        backoff = min(self.first_wait * 2.0 ** (attempt - 1), self.backoff_cap)
        return backoff * (0.5 + jitter / 2)


def is_passing(error: ProviderError) -> bool:
    """Whether the same request may succeed a little later."""
    return error.can_retry or error.status in PASSING_STATUSES


async def ask_patiently(
    ask: Ask, *, rules: RetryRules, sleep: Sleep, jitter: Callable[[], float]
) -> AsyncGenerator[ReplyEvent, None]:
    """The events of the first attempt that answers. After its first event nothing is repeated.

    A notice that several attempts have in common is yielded once. An attempt has a bounded number
    of notices; the one that says how many were left out comes before the first other event.
    """
    attempt = 0
    said: set[Notice] = set()
    while True:
        seen = False
        notices = _NewNotices(said)
        try:
            async with aclosing(ask()) as events:
                async for event in events:
                    if isinstance(event, Noticed):
                        if notices.is_new(event.notice):
                            yield event
                        continue
                    if not seen or isinstance(event, ReplyFinished):
                        seen = True
                        for notice in notices.left_out():
                            yield Noticed(notice=notice)
                    yield event
        except ProviderError as error:
            attempt += 1
            wait = None if seen else rules.wait_before(attempt, error, jitter())
            if wait is None:
                raise
            await sleep(wait)
        else:
            return


class _NewNotices:
    """The notices of one attempt that are not in `said`, to which they are added."""

    def __init__(self, said: set[Notice]) -> None:
        self._said = said
        self._collected = NoticeCollector()

    def is_new(self, notice: Notice) -> bool:
        return self._collected.append(notice) and self._is_unsaid(notice)

    def left_out(self) -> list[Notice]:
        """The notice that says how many the attempt left out, if it has to be said."""
        return [notice for notice in self._collected.left_out if self._is_unsaid(notice)]

    def _is_unsaid(self, notice: Notice) -> bool:
        if notice in self._said:
            return False
        self._said.add(notice)
        return True


def may_fall_back(error: CllmError) -> bool:
    """Whether another model could do better: never when the request itself is at fault.

    A prompt too long for one model, or for its window, may fit another, and a model that is gone
    is not the request's fault.
    """
    if isinstance(error, InvalidRequestError):
        return isinstance(error, PromptTooLongError) or error.status == HTTPStatus.NOT_FOUND
    return isinstance(error, ProviderError | LocalModelError | WindowTooSmallError)


def fell_back(model: str, following: str, error: CllmError) -> Noticed:
    """The notice that another model is asked."""
    return Noticed(
        notice=Notice(
            code="fallback",
            path="model",
            message=f"Model '{model}' gave no answer; asking '{following}'. {error}",
        )
    )


class Readiness:
    """Which models' providers are prepared, and what kept others from being."""

    def __init__(self) -> None:
        self.ready: set[str] = set()
        self.failed: dict[str, CllmError] = {}

    async def prepare(self, model: str, provider: Provider) -> None:
        """Prepare it now, unless that has failed in this turn already."""
        if model in self.failed:
            raise self.failed[model]
        await provider.prepare()
        self.ready.add(model)

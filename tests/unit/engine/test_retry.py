"""Retries: which errors, how many, and the wait before each."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.scripted_provider import ScriptedProvider, text_reply_events

from cllm.core import errors
from cllm.core.message import plain_message
from cllm.core.notice import LEFT_OUT, MAX_NOTICES, Notice
from cllm.core.prompt import Prompt
from cllm.core.reply import (
    ModelReported,
    Noticed,
    ReplyEvent,
    TextDelta,
    Usage,
    UsageReported,
)
from cllm.engine.retry import RetryRules, call_with_retry, fallback_notice, is_transient

PROMPT = Prompt(model="m", messages=(plain_message("user", "Hello"),))
RULES = RetryRules()


def upstream(**fields: float) -> errors.UpstreamError:
    return errors.UpstreamError("Oops.", provider="p", **fields)  # type: ignore[arg-type]


async def ask(provider: ScriptedProvider, sleeper, **rules):
    asked = call_with_retry(
        lambda: provider.ask(PROMPT), rules=RetryRules(**rules), sleep=sleeper, jitter=lambda: 1.0
    )
    return [event async for event in asked]


@pytest.mark.parametrize(
    ("kind", "status", "passing"),
    [
        (errors.RateLimitedError, 429, True),
        (errors.UpstreamError, 503, True),
        (errors.UnreachableError, None, True),
        (errors.BrokenStreamError, None, True),
        (errors.InvalidRequestError, 408, True),
        (errors.InvalidRequestError, 409, True),
        (errors.InvalidRequestError, 400, False),
        (errors.PromptTooLongError, 400, False),
        (errors.AuthenticationError, 401, False),
        (errors.PermissionDeniedError, 403, False),
        (errors.BadReplyError, None, False),
        (errors.ProviderTimeoutError, None, False),
    ],
)
def test_only_transient_errors_are_retried(kind, status, passing):
    error = kind("No.", provider="p", status=status)

    assert is_transient(error) is passing
    assert (RULES.wait_before(1, error, 1.0) is not None) is passing


@pytest.mark.parametrize(
    ("attempt", "expected"), [(1, 0.5), (2, 1.0), (3, 2.0), (5, 8.0), (9, 8.0), (20, 8.0)]
)
def test_the_wait_doubles_up_to_a_cap(attempt, expected):
    assert RetryRules(retries=20).wait_before(attempt, upstream(), 1.0) == expected


@given(st.integers(1, 20), st.floats(0, 1, exclude_max=True))
def test_jitter_takes_away_at_most_half(attempt, jitter):
    rules = RetryRules(retries=20)
    longest = rules.wait_before(attempt, upstream(), 1.0)
    wait = rules.wait_before(attempt, upstream(), jitter)

    assert longest is not None
    assert wait is not None
    assert longest / 2 <= wait <= longest


@pytest.mark.parametrize(
    ("retry_after", "expected"),
    [(0.0, 0.0), (3.0, 3.0), (60.0, 60.0), (60.1, None), (1e9, None)],
)
def test_retry_after_is_respected_up_to_a_limit(retry_after, expected):
    assert RULES.wait_before(1, upstream(retry_after=retry_after), 0.3) == expected


def test_retry_after_does_not_make_an_error_transient():
    error = errors.AuthenticationError("No.", provider="p", retry_after=1.0)

    assert RULES.wait_before(1, error, 1.0) is None


@pytest.mark.parametrize("retries", [0, 1, 4])
async def test_the_number_of_retries_follows_the_rules(sleeper, retries):
    provider = ScriptedProvider([upstream() for _ in range(10)])

    with pytest.raises(errors.UpstreamError):
        await ask(provider, sleeper, retries=retries)
    assert len(provider.prompts) == 1 + retries
    assert len(sleeper.slept) == retries


async def test_the_events_are_from_the_successful_attempt(sleeper):
    provider = ScriptedProvider([upstream(), upstream(retry_after=7.0), "Hi there"])

    assert await ask(provider, sleeper) == text_reply_events("Hi there")
    assert sleeper.slept == [0.5, 7.0]


async def test_the_model_of_an_attempt_without_a_reply_is_not_reported(sleeper):
    first, second = ModelReported(model="first"), ModelReported(model="second")
    usage = UsageReported(usage=Usage(input=1))
    provider = ScriptedProvider([[first, usage, upstream()], [second, TextDelta(text="Hi")]])

    assert await ask(provider, sleeper) == [usage, second, TextDelta(text="Hi")]


async def test_there_is_no_retry_after_the_first_event(sleeper):
    provider = ScriptedProvider([[TextDelta(text="Hal"), upstream()], "Hi"])

    with pytest.raises(errors.UpstreamError):
        await ask(provider, sleeper)
    assert len(provider.prompts) == 1
    assert sleeper.slept == []


async def test_a_retry_after_above_the_limit_is_an_error(sleeper):
    with pytest.raises(errors.UpstreamError):
        await ask(ScriptedProvider([upstream(retry_after=61.0), "Hi"]), sleeper)
    assert sleeper.slept == []


async def test_other_errors_are_not_retried(sleeper):
    provider = ScriptedProvider([errors.StoreUnavailableError("Full."), "Hi"])

    with pytest.raises(errors.StoreUnavailableError):
        await ask(provider, sleeper)
    assert len(provider.prompts) == 1


def noticed(count: int) -> list[Noticed]:
    return [
        Noticed(notice=Notice(code="field_left_out", message=f"No k{n}.")) for n in range(count)
    ]


def codes(events: list[ReplyEvent]) -> list[str]:
    return [event.notice.code for event in events if isinstance(event, Noticed)]


async def test_a_limited_number_of_notices_comes_before_the_reply(sleeper):
    provider = ScriptedProvider([[*noticed(5000), *text_reply_events("Hello.")]])

    events = await ask(provider, sleeper)

    assert events[:MAX_NOTICES] == noticed(MAX_NOTICES)
    last, *answer = events[MAX_NOTICES:]
    assert isinstance(last, Noticed)
    assert (last.notice.code, last.notice.count) == (LEFT_OUT, 5000 - MAX_NOTICES)
    assert answer == text_reply_events("Hello.")


async def test_notices_that_every_attempt_has_are_counted_once(sleeper):
    provider = ScriptedProvider(
        [
            [*noticed(150), upstream()],
            [*noticed(150), upstream()],
            [*noticed(150), *text_reply_events("Hi.")],
        ]
    )

    events = await ask(provider, sleeper)

    assert codes(events) == ["field_left_out"] * MAX_NOTICES + [LEFT_OUT]
    assert events[MAX_NOTICES].notice.count == 50


async def test_notices_during_a_reply_are_limited_too(sleeper):
    piece = TextDelta(text="a")
    pieces = [event for notice in noticed(300) for event in (notice, piece)]
    provider = ScriptedProvider([[*pieces, *text_reply_events("")]])

    events = await ask(provider, sleeper)

    assert codes(events) == ["field_left_out"] * MAX_NOTICES + [LEFT_OUT]
    assert [event for event in events if isinstance(event, TextDelta)] == [piece] * 300


def test_the_notice_of_a_fallback_contains_no_address():
    error = errors.UnreachableError("Cannot reach 'p' at http://10.1.2.3:8000 (no).", provider="p")

    message = fallback_notice("m", "n", error).notice.message

    assert "10.1.2.3" not in message
    assert message == "Model 'm' failed (Cannot reach 'p' at *** (no)); calling 'n' instead."

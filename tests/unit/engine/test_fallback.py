"""Fallback models: called in order, before any part of a reply."""

import itertools
from contextlib import suppress
from typing import Any

import pytest
from tests.scripted_provider import ScriptedProvider, text_reply_events

from cllm.core.errors import (
    AuthenticationError,
    BadReplyError,
    BrokenStreamError,
    CllmError,
    DownloadError,
    InvalidRequestError,
    MissingKeyError,
    ModelNotFoundError,
    PromptTooLongError,
    ProviderTimeoutError,
    RateLimitedError,
    StrictError,
    UnreachableError,
    UnsendableError,
    UpstreamError,
)
from cllm.core.message import plain_message
from cllm.core.notice import Notice
from cllm.core.reply import Noticed, ReplyFinished, TextDelta, Usage
from cllm.engine.request import ModelRoute, TurnEnded, TurnRequest, TurnStarted
from cllm.engine.retry import RetryRules, can_fall_back
from cllm.engine.turn import Engine

DOWN = UpstreamError("It is down.", provider="first", status=503)
NEVER_AGAIN = RetryRules(retries=0)


@pytest.fixture
def engine_with(store, clock, sleeper):
    """An engine with several models, each with its own provider."""

    def make(**providers: ScriptedProvider) -> Engine:
        def find_route(model: str) -> ModelRoute:
            return ModelRoute(provider=providers[model], model=model)

        return Engine(
            store=store,
            find_route=find_route,
            clock=clock,
            new_id=lambda: f"turn-{next(numbers)}",
            retry=NEVER_AGAIN,
            sleep=sleeper,
        )

    numbers = itertools.count(1)
    return make


async def take(engine: Engine, request: TurnRequest) -> list[Any]:
    return [event async for event in engine.run_turn(request)]


async def events_until(error: type[CllmError], turn: Any) -> tuple[list[Any], Any]:
    """Return the events of a turn up to an error, and the error."""
    heard = []
    try:
        async for event in turn:
            heard.append(event)  # noqa: PERF401 - what came before the error is kept
    except error as raised:
        return heard, raised
    pytest.fail(f"there was no {error.__name__}")


def text_of(events: list[Any]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


async def test_the_next_model_is_called_when_the_first_fails(engine_with, ask, store):
    first, second = ScriptedProvider([DOWN]), ScriptedProvider(["From the second"])

    events = await take(engine_with(m=first, n=second), ask(fallbacks=("n",)))

    assert text_of(events) == "From the second"
    assert [m.text for m in second.prompts[0].messages] == ["Hello"]
    conversation = await store.load("demo")
    assert conversation.model == "m"
    assert [turn.model for turn in conversation.turns] == ["n"]
    assert [m.text for m in conversation.messages] == ["Hello", "From the second"]


async def test_a_fallback_is_reported_and_saved(engine_with, ask, store):
    engine = engine_with(m=ScriptedProvider([DOWN]), n=ScriptedProvider(["Fine"]))

    events = await take(engine, ask(fallbacks=("n",)))

    notices = [event.notice for event in events if isinstance(event, Noticed)]
    assert [notice.code for notice in notices] == ["fallback"]
    assert notices[0].message == "Model 'm' failed (HTTP 503); calling 'n' instead."
    assert (await store.load("demo")).turns[0].notices == tuple(notices)
    assert sum(isinstance(event, TurnStarted) for event in events) == 1
    assert events[-1].model == "n"


async def test_there_is_no_fallback_after_the_first_piece_of_a_reply(engine_with, ask):
    first = ScriptedProvider([[TextDelta(text="Once upon"), DOWN]])
    second = ScriptedProvider(["Never said"])

    seen, _ = await events_until(
        UpstreamError, engine_with(m=first, n=second).run_turn(ask(fallbacks=("n",)))
    )

    assert text_of(seen) == "Once upon"
    assert second.prompts == []


async def test_a_broken_stream_is_an_error_and_not_a_complete_reply(engine_with, ask, store):
    broken = BrokenStreamError("It broke off.", provider="first")
    engine = engine_with(m=ScriptedProvider([[TextDelta(text="Half"), broken]]))

    seen, _ = await events_until(BrokenStreamError, engine.run_turn(ask()))

    assert not any(isinstance(event, TurnEnded | ReplyFinished) for event in seen)
    assert [turn.state for turn in (await store.load("demo")).turns] == ["failed"]


async def test_notices_of_the_first_attempt_do_not_prevent_a_fallback(engine_with, ask):
    notice = Noticed(notice=Notice(code="field_left_out", message="No such field."))
    first = ScriptedProvider([[notice, DOWN]])

    events = await take(
        engine_with(m=first, n=ScriptedProvider(["From the second"])), ask(fallbacks=("n",))
    )

    assert text_of(events) == "From the second"


async def test_models_are_called_in_order_and_the_last_error_is_raised(engine_with, ask):
    last = RateLimitedError("Too many.", provider="third", status=429, retry_after=7)
    providers = {
        "m": ScriptedProvider([DOWN]),
        "n": ScriptedProvider([UnreachableError("Nobody there.", provider="second")]),
        "o": ScriptedProvider([last]),
    }

    seen, raised = await events_until(
        RateLimitedError, engine_with(**providers).run_turn(ask(fallbacks=("n", "o")))
    )

    assert raised.retry_after == 7
    assert [len(provider.prompts) for provider in providers.values()] == [1, 1, 1]
    assert sum(isinstance(event, Noticed) for event in seen) == 2


async def test_each_model_is_retried_before_the_next_one_is_called(
    engine_with, ask, store, clock, sleeper
):
    first, second = ScriptedProvider([DOWN, DOWN, DOWN]), ScriptedProvider(["Fine"])
    routes = {
        "m": ModelRoute(provider=first, model="m"),
        "n": ModelRoute(provider=second, model="n"),
    }
    engine = Engine(
        store=store,
        find_route=routes.__getitem__,
        clock=clock,
        new_id=lambda: "turn-1",
        retry=RetryRules(retries=2),
        sleep=sleeper,
        jitter=lambda: 1.0,
    )

    events = await take(engine, ask(fallbacks=("n",)))

    assert text_of(events) == "Fine"
    assert len(first.prompts) == 3
    assert sleeper.slept == [0.5, 1.0]


async def test_an_invalid_request_is_not_sent_to_another_model(engine_with, ask):
    refused = InvalidRequestError("Not so.", provider="first", status=400)
    second = ScriptedProvider(["Never said"])

    with pytest.raises(InvalidRequestError):
        await take(engine_with(m=ScriptedProvider([refused]), n=second), ask(fallbacks=("n",)))

    assert second.prompts == []


UNFIT = [
    InvalidRequestError("No tools here.", provider="second", status=400),
    UnsendableError("No audio here.", provider="second"),
    StrictError(provider="second", notices=()),
    ModelNotFoundError("Unknown.", model="n"),
]


@pytest.mark.parametrize("refusal", UNFIT, ids=lambda error: type(error).__name__)
async def test_a_fallback_that_cannot_take_the_request_is_skipped(engine_with, ask, refusal):
    third = ScriptedProvider(["From the third"])
    engine = engine_with(m=ScriptedProvider([DOWN]), n=ScriptedProvider([refusal]), o=third)

    events = await take(engine, ask(fallbacks=("n", "o")))

    assert text_of(events) == "From the third"
    notices = [event.notice.message for event in events if isinstance(event, Noticed)]
    status = getattr(refusal, "status", None)
    text = str(refusal).rpartition("; ")[0] or str(refusal).rstrip(".")
    reason = f"HTTP {status}" if status else text
    assert notices == [
        "Model 'm' failed (HTTP 503); calling 'n' instead.",
        f"Model 'n' failed ({reason}); calling 'o' instead.",
    ]


@pytest.mark.parametrize("refusal", UNFIT, ids=lambda error: type(error).__name__)
async def test_the_error_of_the_failed_model_is_raised_instead_of_a_fallbacks_refusal(
    engine_with, ask, refusal
):
    engine = engine_with(m=ScriptedProvider([DOWN]), n=ScriptedProvider([refusal]))

    with pytest.raises(UpstreamError) as raised:
        await take(engine, ask(fallbacks=("n",)))

    assert raised.value is DOWN


@pytest.mark.parametrize("prepares", [True, False])
async def test_a_fallback_without_a_key_is_skipped(store, clock, ask, prepares):
    first = ScriptedProvider([DOWN]) if prepares else Unprepared()
    providers = {"m": first, "o": ScriptedProvider(["From the third"])}

    def find_route(model: str) -> ModelRoute:
        if model not in providers:
            raise MissingKeyError(provider=model, variable="KEY")
        return ModelRoute(provider=providers[model], model=model)

    engine = Engine(
        store=store, find_route=find_route, clock=clock, new_id=lambda: "1", retry=NEVER_AGAIN
    )

    events = await take(engine, ask(fallbacks=("n", "o")))

    assert text_of(events) == "From the third"
    assert sum(isinstance(event, Noticed) for event in events) == 2


class Unprepared(ScriptedProvider):
    """Cannot be prepared: its model cannot be downloaded."""

    async def prepare(self) -> None:
        await super().prepare()
        raise DownloadError("The model could not be fetched.")


async def test_a_model_that_cannot_be_prepared_is_skipped(engine_with, ask):
    first, second = Unprepared(), ScriptedProvider(["Fine"])

    events = await take(engine_with(m=first, n=second), ask(fallbacks=("n",)))

    assert text_of(events) == "Fine"
    assert (first.prepared, second.prepared) == (1, 1)
    assert any(isinstance(event, Noticed) for event in events)


async def test_without_a_fallback_the_error_of_the_model_is_raised(engine_with, ask):
    with pytest.raises(DownloadError):
        await take(engine_with(m=Unprepared()), ask())


async def test_the_cost_is_for_the_model_that_answered(engine_with, ask, store, clock):
    usage = Usage(input=10, output=2)
    routes = {
        "m": ModelRoute(provider=ScriptedProvider([DOWN]), model="m"),
        "n": ModelRoute(
            provider=ScriptedProvider([text_reply_events("Fine", usage=usage)]), model="n"
        ),
    }
    prices = {"m": 1.0, "n": 0.25}
    engine = Engine(
        store=store,
        find_route=routes.__getitem__,
        clock=clock,
        new_id=lambda: "turn-1",
        price=lambda route: lambda spent: prices[route.model] * spent.total,
        retry=NEVER_AGAIN,
    )

    events = await take(engine, ask(fallbacks=("n",)))

    assert events[-1].cost == 3.0
    assert (await store.load("demo")).turns[0].cost == 3.0


async def test_an_unknown_price_is_not_zero(engine_with, ask, store):
    engine = engine_with(
        m=ScriptedProvider([text_reply_events("Fine", usage=Usage(input=1, output=1))])
    )

    events = await take(engine, ask())

    assert events[-1].cost is None
    assert (await store.load("demo")).turns[0].cost is None


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (UpstreamError("", provider="p", status=500), True),
        (UnreachableError("", provider="p"), True),
        (ProviderTimeoutError("", provider="p"), True),
        (RateLimitedError("", provider="p", status=429), True),
        (AuthenticationError("", provider="p", status=401), True),
        (BadReplyError("", provider="p"), True),
        (PromptTooLongError("", provider="p", status=400), True),
        (InvalidRequestError("", provider="p", status=404), True),
        (DownloadError(""), True),
        (InvalidRequestError("", provider="p", status=400), False),
        (UnsendableError("", provider="p"), False),
        (StrictError(provider="p", notices=()), False),
        (CllmError(""), False),
    ],
)
def test_which_errors_allow_a_fallback(error, expected):
    assert can_fall_back(error) is expected


async def test_closing_the_stream_during_a_fallback_leaves_no_running_turn(engine_with, ask, store):
    engine = engine_with(m=ScriptedProvider([DOWN]), n=ScriptedProvider(["From the second"]))
    turn = engine.run_turn(ask(fallbacks=("n",)))

    with suppress(StopAsyncIteration):
        while not isinstance(await anext(turn), Noticed):
            pass
    await turn.aclose()

    again = await take(engine, ask("Again"))
    assert isinstance(again[-1], TurnEnded)


async def test_thinking_of_the_first_model_is_not_sent_to_the_next(engine_with, ask):
    """A client with its own history sends it with the request."""
    second = ScriptedProvider(["Fine"])
    engine = engine_with(m=ScriptedProvider([DOWN]), n=second)
    request = ask(fallbacks=("n",), ref=None).with_input(
        messages=(
            plain_message("user", "One"),
            plain_message("assistant", "Two"),
            plain_message("user", "Three"),
        ),
    )

    await take(engine, request)

    assert second.prompts[0].foreign == {0, 1, 2}


async def test_a_notice_of_every_attempt_is_reported_once(engine_with, ask, store, clock, sleeper):
    notice = Noticed(notice=Notice(code="field_left_out", message="No such field."))
    provider = ScriptedProvider(
        [[notice, DOWN], [notice, DOWN], [notice, *text_reply_events("Fine")]]
    )
    engine = Engine(
        store=store,
        find_route=lambda model: ModelRoute(provider=provider, model=model),
        clock=clock,
        new_id=lambda: "turn-1",
        retry=RetryRules(retries=2),
        sleep=sleeper,
    )

    events = await take(engine, ask())

    assert sum(isinstance(event, Noticed) for event in events) == 1

"""Random conversations with pins, summaries and failures: invariants of all prompts."""

import asyncio
from contextlib import suppress
from datetime import UTC, datetime
from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.scripted_provider import ScriptedProvider, text_reply_events
from tests.torture import choose_size
from tests.turn_requests import make_turn_request

from cllm.core.conversation import StoredConversation
from cllm.core.errors import RateLimitedError, UsageError, WindowTooSmallError
from cllm.core.message import Message, plain_message
from cllm.core.ports import Changes, NewConversation
from cllm.core.prompt import Prompt
from cllm.engine.request import ModelRoute, TurnRequest
from cllm.engine.retry import RetryRules
from cllm.engine.turn import Engine
from cllm.history.rules import PROFILES, find_problems
from cllm.stores.memory import MemoryStore
from cllm.window.strategies import ByTokens, ByTurns, Strategy, Summarise
from cllm.window.summary import build_summary_messages
from cllm.window.tokens import estimate_tokens
from cllm.wire.convert import build_outgoing_message

pytestmark = pytest.mark.torture
LIMIT = 700
STRATEGIES: list[Strategy] = [
    ByTurns(max_turns=3),
    ByTokens(max_tokens=LIMIT),
    Summarise(tokens=ByTokens(max_tokens=LIMIT), summary_tokens=80),
]
STEPS = st.one_of(
    st.tuples(st.just("say"), st.integers(1, 120)),
    st.tuples(st.just("say"), st.integers(400, 800)),
    st.tuples(st.just("fail"), st.integers(1, 60)),
    st.tuples(st.just("pin"), st.integers(1, 20)),
    st.tuples(st.just("unpin"), st.just(0)),
    st.tuples(st.just("compact"), st.just(0)),
    st.tuples(st.just("undo"), st.just(0)),
    st.tuples(st.just("break"), st.booleans()),
)


class Model(ScriptedProvider):
    """Returns a short answer; can fail on command or for summary requests."""

    def __init__(self) -> None:
        super().__init__()
        self.fails = False
        self.fails_at_summaries = False
        self.summarised: set[bytes] = set()

    def _next_events(self, prompt: Prompt) -> Any:
        is_summary = prompt.messages[-1].text.startswith("Summarise our conversation")
        if self.fails or (is_summary and self.fails_at_summaries):
            return [RateLimitedError("Slow down.", provider=self.name)]
        if is_summary:
            self.prompts.pop()
            self.summarised.update(message.raw for message in prompt.messages)
            return text_reply_events("said " * 100)
        return text_reply_events(f"answer {len(self.prompts)}")


class Walk:
    """One conversation with one strategy."""

    def __init__(self, strategy: Strategy) -> None:
        clock = lambda: datetime(2026, 11, 15, tzinfo=UTC)  # noqa: E731
        numbers = count(1)
        self.strategy = strategy
        self.model = Model()
        self.store = MemoryStore(clock=clock)
        self.engine = Engine(
            store=self.store,
            find_route=lambda model: ModelRoute(provider=self.model, model=model),
            clock=clock,
            new_id=lambda: f"turn-{next(numbers)}",
            retry=RetryRules(retries=0),
        )
        self.said = count(1)

    def request(self, *messages: Message) -> TurnRequest:
        return make_turn_request(
            messages=messages,
            model="m",
            ref="demo",
            create=NewConversation(id="demo", model="m"),
            window=lambda _: self.strategy,
        )

    async def take(self, step: str, size: Any) -> None:
        match step:
            case "say" | "fail":
                await self.say(size, fails=step == "fail")
            case "pin":
                with suppress(UsageError):
                    await self.pin(size)
            case "unpin":
                await self.store.update("demo", Changes(pins=()))
            case "compact":
                with suppress(UsageError, RateLimitedError, WindowTooSmallError):
                    async for _ in self.engine.compact(self.request()):
                        pass
            case "undo":
                with suppress(UsageError):
                    await self.engine.undo_summary("demo")
            case "break":
                self.model.fails_at_summaries = size

    async def pin(self, number: int) -> None:
        conversation = await self.store.load("demo")
        if number <= conversation.message_count:
            await self.store.update("demo", Changes(pins=(*conversation.pins, number)))

    async def say(self, size: int, *, fails: bool) -> None:
        text = f"{next(self.said)} " + "word " * size
        self.model.fails = fails
        before = await self.store.load("demo")
        question = len(self.model.prompts)
        try:
            async for _ in self.engine.run_turn(self.request(plain_message("user", text))):
                pass
        except WindowTooSmallError:
            assert len(self.model.prompts) == question
            assert (await self.store.load("demo")).turns == before.turns
            return
        except RateLimitedError:
            assert fails
        self.check(self.model.prompts[-1], await self.store.load("demo"), text)

    def check(self, prompt: Prompt, conversation: StoredConversation, text: str) -> None:
        *_, newest = conversation.turns
        summary = conversation.summary
        messages = list(prompt.messages)
        if summary is not None:
            assert tuple(messages[:2]) == build_summary_messages(summary.text)
            del messages[:2]
        numbers = {
            message.raw: number
            for number, turn, message in conversation.numbered_messages()
            if turn.is_history or turn is newest
        }
        sent = [numbers[message.raw] for message in messages]
        assert sent == sorted(set(sent))
        assert messages[-1].text == text
        assert newest.window is not None
        assert newest.window.first_sequence <= sent[-1]
        self.check_numbers(sent, conversation, newest.window.first_sequence)
        spoken = [build_outgoing_message(message, "openai") for message in prompt.messages]
        assert find_problems(spoken, PROFILES["openai"]) == ()
        if not isinstance(self.strategy, ByTurns):
            assert sum(map(estimate_tokens, prompt.messages)) <= LIMIT

    def check_numbers(
        self, sent: list[int], conversation: StoredConversation, window_start: int
    ) -> None:
        """Pinned messages are sent; other messages in a summary are not."""
        newest = conversation.turns[-1]
        through = 0 if conversation.summary is None else conversation.summary.through
        told = {
            number
            for number, turn, _ in conversation.numbered_messages()
            if turn.is_history and turn is not newest
        }
        pinned = {number for number in conversation.pins if number in told}
        assert pinned <= set(sent)
        behind = {number for number in told if number >= window_start}
        assert behind <= set(sent)
        assert window_start > through
        loose = [number for number in sent if number < window_start and number not in pinned]
        starts = {_start(conversation, number) for number in pinned}
        assert {_start(conversation, number) for number in loose} <= starts
        raws = {number: message.raw for number, _, message in conversation.numbered_messages()}
        covered = [number for number in told if number <= through]
        assert all(raws[number] in self.model.summarised for number in covered)


def _start(conversation: StoredConversation, number: int) -> str:
    """Return the turn of a message, without failed turns."""
    found = [turn.id for n, turn, _ in conversation.numbered_messages() if n == number]
    return found[0]


async def _walk(strategy: Strategy, steps: list[tuple[str, Any]]) -> None:
    walk = Walk(strategy)
    await walk.store.create(NewConversation(id="demo", model="m"))
    for step, size in steps:
        await walk.take(step, size)


@pytest.mark.parametrize("strategy", STRATEGIES, ids=["turns", "tokens", "summarise"])
@settings(
    max_examples=choose_size(60, 1000), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
@given(steps=st.lists(STEPS, min_size=5, max_size=30))
def test_every_prompt_has_all_pins_no_duplicates_and_no_gaps(strategy, steps):
    asyncio.run(_walk(strategy, steps))

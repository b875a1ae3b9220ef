"""The window on recorded conversations: every call, several budgets, by two calculations."""

import asyncio
import json
from collections import Counter
from datetime import UTC, datetime
from functools import cache
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.scripted_provider import ScriptedProvider, text_reply_events
from tests.tokenizers import o200k
from tests.turn_requests import make_turn_request
from tests.window_histories import SampleHistory, required_positions

from cllm.core.conversation import StoredConversation
from cllm.core.errors import WindowTooSmallError
from cllm.core.message import Message, Text, ToolResult
from cllm.core.ports import NewConversation, TurnStart
from cllm.core.prompt import Prompt
from cllm.core.reply import ReplyFinished
from cllm.engine.request import ModelRoute
from cllm.engine.turn import Engine
from cllm.history.repair import repair
from cllm.history.rules import OPENAI, PROFILES, find_problems
from cllm.history.system_prompt import GivenPrompt
from cllm.stores.memory import MemoryStore
from cllm.window.plan import plan_window
from cllm.window.strategies import ByTokens, ByTurns, Strategy, Summarise
from cllm.window.summary import build_summary_messages
from cllm.window.tokens import (
    GENERAL,
    LARGE,
    TokenRatios,
    TokenWeights,
    estimate_text,
    estimate_tokens,
    weights_for,
)
from cllm.wire.messages import OutgoingMessage
from cllm.wire.openai.parts import decode_parts

RECORDED = Path(__file__).resolve().parents[3] / "shared" / "data" / "tau_airline.jsonl"
BUDGETS = (500, 1000, 2000, 4000, 8000)
pytestmark = [
    pytest.mark.shared_data,
    pytest.mark.skipif(not RECORDED.exists(), reason=f"{RECORDED} is not beside this repository"),
]


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation beside its system prompt."""

    system: OutgoingMessage
    sample: SampleHistory


@cache
def recorded() -> list[Recorded]:
    with RECORDED.open(encoding="utf-8") as lines:
        return [_read(line) for line in lines]


def _read(line: str) -> Recorded:
    messages = [
        Message(role=fields["role"], raw=msgspec.json.encode(fields))
        for fields in json.loads(line)["messages"]
    ]
    system, *sample = [
        OutgoingMessage(role=message.role, parts=decode_parts(message), raw=message.raw)
        for message in messages
    ]
    assert system.role == "system"
    tokens = tuple(estimate_tokens(message, LARGE) for message in messages[1:])
    return Recorded(system=system, sample=SampleHistory(messages=tuple(sample), tokens=tokens))


def calls(sample: SampleHistory) -> list[int]:
    """How much of a conversation there was at each call."""
    return [n for n, message in enumerate(sample.messages) if n and message.role == "assistant"]


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("strategy", [ByTokens(), ByTokens(floor=300), ByTurns()], ids=repr)
def test_every_window_is_valid_complete_and_within_its_budget(budget: int, strategy: Strategy):
    points = trimmed = refused = 0
    for conversation in recorded():
        sample = conversation.sample
        turn_index = sample.turn_index(0)
        window_start: int | None = None
        items = sample.items()
        for end in calls(sample):
            for item in items[len(turn_index) : end]:
                turn_index.append(item)
            points += 1
            included = required_positions(sample.chosen(range(end)))
            least = sum(sample.tokens[n] for n in included)
            if least > budget:
                refused += 1
                with pytest.raises(WindowTooSmallError) as raised:
                    plan_window(turn_index, strategy, budget=budget, window_start=window_start)
                assert raised.value.needed == least
                continue
            for remembered in (window_start, None):
                view = plan_window(turn_index, strategy, budget=budget, window_start=remembered)
                sent = view.select(sample.messages[:end])
                assert find_problems([conversation.system, *sent], OPENAI) == ()
                places = [n for start, stop in view.spans for n in range(start, stop)]
                assert set(included) <= set(places) <= set(range(end))
                assert sum(sample.tokens[n] for n in places) == view.tokens <= budget
                trimmed += len(sent) < end
            window_start = plan_window(
                turn_index, strategy, budget=budget, window_start=window_start
            ).window_start

    assert points > 1000
    assert trimmed or budget == BUDGETS[-1]
    assert refused or budget > 1000


@pytest.mark.parametrize("weights", [GENERAL, LARGE], ids=["general", "large"])
def test_estimates_of_recorded_tool_results_are_close(weights: TokenWeights):
    """Each is estimated after a report of another one."""
    texts = [
        part.text
        for conversation in recorded()
        for message in conversation.sample.messages
        if message.role == "tool"
        for result in message.parts
        if isinstance(result, ToolResult)
        for part in result.content
        if isinstance(part, Text) and len(part.text) >= 200
    ]
    count = o200k()
    assert len(texts) >= 200
    for before, text in pairwise(texts):
        true = count(text)
        ratios = TokenRatios().with_report(estimate_text(before, weights), count(before))
        assert TokenRatios().correct(estimate_text(text, weights)) >= 0.75 * true
        assert ratios.correct(estimate_text(text, weights)) >= 0.9 * true


@pytest.mark.parametrize("name", sorted(PROFILES))
def test_windows_of_recorded_conversations_are_valid_for_every_provider(name: str):
    for conversation in recorded():
        sample = conversation.sample
        turn_index, window_start, items = sample.turn_index(0), None, sample.items()
        for end in calls(sample):
            for item in items[len(turn_index) : end]:
                turn_index.append(item)
            try:
                view = plan_window(turn_index, ByTokens(), budget=1000, window_start=window_start)
            except WindowTooSmallError:
                continue
            window_start = view.window_start
            sent = view.select(sample.messages[:end])
            repaired = repair(
                sent,
                PROFILES[name],
                make=lambda role, parts: OutgoingMessage(role=role, parts=parts),
            )
            assert repaired.problems == ()


class Recording(ScriptedProvider):
    """Answers as it was recorded, and summaries in a few words."""

    def __init__(self) -> None:
        super().__init__()
        self.reply: Message | None = None
        self.summaries = 0

    def _next_events(self, prompt: Prompt) -> Any:
        if prompt.messages[-1].text.startswith("Summarise our conversation"):
            self.summaries += 1
            self.prompts.pop()
            return text_reply_events("They spoke of flights, names and numbers.")
        assert self.reply is not None
        return [ReplyFinished(message=self.reply, stop_reason="end")]


class Replay:
    """One recorded conversation, taken turn by turn through the engine with a window."""

    def __init__(self, recorded: Recorded, strategy: Strategy, limit: int) -> None:
        self.system = recorded.system
        self.messages = [_as_message(one) for one in recorded.sample.messages]
        weights = weights_for("scripted")
        self.tokens = tuple(estimate_tokens(message, weights) for message in self.messages)
        self.sample = SampleHistory(messages=recorded.sample.messages, tokens=self.tokens)
        self.strategy = strategy
        self.limit = limit
        self.provider = Recording()
        self.counts: Counter[str] = Counter()
        self.numbers = count(1)
        self.store = MemoryStore(clock=_now)
        self.engine = Engine(
            store=self.store,
            find_route=lambda model: ModelRoute(provider=self.provider, model=model),
            clock=_now,
            new_id=lambda: f"turn-{next(self.numbers)}",
        )

    async def run(self) -> None:
        await self.store.create(NewConversation(id="demo", model="m"))
        before = 0
        for end in calls(self.sample):
            self.counts["calls"] += 1
            await self.take(tuple(self.messages[before:end]), end)
            before = end + 1

    async def take(self, with_question: tuple[Message, ...], end: int) -> None:
        """One call: what was said since the last, and the answer that was given to it."""
        self.provider.reply = self.messages[end]
        stored = await self.store.load("demo", tail=0)
        taken = 0 if stored.summary is None else stored.summary.tokens
        included = required_positions(self.sample.chosen(range(end)))
        if sum(self.tokens[n] for n in included) > self.limit - taken:
            with pytest.raises(WindowTooSmallError):
                await self.say(with_question)
            self.counts["refused"] += 1
            await self.keep(with_question)
            return
        await self.say(with_question)
        self.judge(await self.store.load("demo"), end, included)

    async def say(self, with_question: tuple[Message, ...]) -> None:
        request = make_turn_request(
            messages=with_question,
            model="m",
            ref="demo",
            system=GivenPrompt(text=_text(self.system)),
            window=lambda _: self.strategy,
        )
        async for _ in self.engine.run_turn(request):
            pass

    async def keep(self, with_question: tuple[Message, ...]) -> None:
        start = TurnStart(id=f"turn-{next(self.numbers)}", messages=with_question, visible=False)
        lease = await self.store.begin_turn("demo", start)
        messages = (*with_question, self.provider.reply)
        turn = msgspec.structs.replace(lease.turn, messages=messages, state="complete", model="m")
        await self.store.finish_turn(lease, turn)

    def judge(self, conversation: StoredConversation, end: int, included: list[int]) -> None:
        """Valid, with what it must have, within the limit, and its order kept."""
        prompt = self.provider.prompts[-1]
        standing = conversation.summary
        ahead = () if standing is None else build_summary_messages(standing.text)
        sent = prompt.messages[len(ahead) :]
        assert prompt.messages[: len(ahead)] == ahead
        assert prompt.system is not None
        assert prompt.system.text == _text(self.system)
        rest = iter([message.raw for message in self.messages[:end]])
        assert all(message.raw in rest for message in sent)
        assert Counter(self.messages[n].raw for n in included) <= Counter(m.raw for m in sent)
        heard = [
            OutgoingMessage(role=one.role, parts=decode_parts(one)) for one in prompt.all_messages
        ]
        assert find_problems(heard, OPENAI) == ()
        tokens = sum(estimate_tokens(one, weights_for("scripted")) for one in sent)
        assert tokens + (0 if standing is None else standing.tokens) <= self.limit
        self.counts["trimmed"] += len(sent) < end


def _now() -> datetime:
    return datetime(2026, 11, 15, tzinfo=UTC)


def _as_message(sample: OutgoingMessage) -> Message:
    assert sample.raw is not None
    return Message(role=sample.role, raw=sample.raw)


def _text(sample: OutgoingMessage) -> str:
    return "".join(part.text for part in sample.parts if isinstance(part, Text))


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("strategy", ["blocks", "summarise"])
def test_every_call_of_the_recorded_conversations_through_the_engine(budget: int, strategy: str):
    tokens = ByTokens(max_tokens=budget)
    chosen = tokens if strategy == "blocks" else Summarise(tokens=tokens, summary_tokens=100)
    counts: Counter[str] = Counter()
    summaries = 0
    for conversation in recorded()[:: 1 if strategy == "blocks" else 3]:
        replay = Replay(conversation, chosen, budget)
        asyncio.run(replay.run())
        counts += replay.counts
        summaries += replay.provider.summaries

    assert counts["calls"] > (1000 if strategy == "blocks" else 300)
    assert counts["trimmed"] or budget == BUDGETS[-1]
    assert counts["refused"] or budget > 1000
    assert summaries or strategy == "blocks" or budget in (BUDGETS[0], BUDGETS[-1])

"""Random histories through the engine and every provider's codec: invariants of each prompt."""

import asyncio
from collections import Counter
from datetime import UTC, datetime
from itertools import count
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from tests.scripted_provider import ScriptedProvider, text_reply_events
from tests.torture import choose_size
from tests.turn_requests import make_turn_request
from tests.window_histories import SampleHistory, histories, required_positions, split_turns

from cllm.core.conversation import StandingSummary
from cllm.core.errors import WindowTooSmallError
from cllm.core.message import AnyPart, Dialect, Message, Text, Thinking, ToolCall, plain_message
from cllm.core.ports import Changes, NewConversation, TurnStart
from cllm.core.prompt import Prompt
from cllm.engine.request import ModelRoute, TurnRequest
from cllm.engine.turn import Engine
from cllm.history.rules import PROFILES, HistoryProfile, find_problems
from cllm.history.system_prompt import GivenPrompt
from cllm.providers.history import HistoryRepair, cache_control_for
from cllm.stores.memory import MemoryStore
from cllm.window.strategies import ByTokens, ByTurns, Strategy, Summarise
from cllm.window.summary import build_summary_messages
from cllm.window.tokens import estimate_tokens, weights_for
from cllm.wire.anthropic.parts import encode_block
from cllm.wire.convert import encode_anthropic, encode_bedrock, encode_openai, parts_of
from cllm.wire.messages import OutgoingMessage, RepairedHistory
from cllm.wire.openai.parts import encode_parts

pytestmark = pytest.mark.torture
MODELS: dict[str, tuple[Dialect, str]] = {
    "anthropic": ("anthropic", "claude-opus-4-6"),
    "anthropic-prefill": ("anthropic", "claude-sonnet-4-5"),
    "anthropic-system": ("anthropic", "claude-opus-5"),
    "openai": ("openai", "gpt-test"),
    "strict": ("openai", "some-model"),
    "bedrock": ("bedrock", "anthropic.claude-opus-4-6-v1:0"),
    "bedrock-prefill": ("bedrock", "anthropic.claude-sonnet-4-5-v1:0"),
    "bedrock-plain": ("bedrock", "meta.llama4-scout-v1:0"),
    "bedrock-other": ("bedrock", "amazon.nova-pro-v1:0"),
}
SYSTEM = "You are exact. " * 300
WEIGHTS = weights_for("scripted")
NUMBERS = count(1)


class Encoding(ScriptedProvider):
    """Encodes each prompt like the provider of a profile, and returns a short answer."""

    def __init__(self, profile: HistoryProfile) -> None:
        super().__init__()
        self._profile = profile
        self.dialect, self.model = MODELS[profile.name]
        self.repaired: list[tuple[OutgoingMessage, ...]] = []

    def _next_events(self, prompt: Prompt) -> Any:
        if self.dialect == "openai":
            sent = encode_openai(prompt, repair=self.repair)
        else:
            cache_control = cache_control_for(self.dialect, self.model, prompt.continuity)
            if self.dialect == "bedrock":
                sent = encode_bedrock(prompt, repair=self.repair, cache_control=cache_control)
            else:
                sent = encode_anthropic(
                    prompt, default_max_tokens=99, repair=self.repair, cache_control=cache_control
                )
        assert sent.body.count(b'"cache_control"') + sent.body.count(b'"cachePoint"') <= 4
        if _is_summary(prompt):
            self.prompts.pop()
            return text_reply_events("All that was said, in a few words.")
        return text_reply_events(f"Done, {next(NUMBERS)}.")

    def repair(self, messages: Any) -> RepairedHistory:
        repaired = HistoryRepair(self._profile, provider="scripted")(messages)
        self.repaired.append(tuple(repaired.messages))
        return repaired


def _is_summary(prompt: Prompt) -> bool:
    return prompt.messages[-1].text.startswith("Summarise our conversation")


def _padded(part: AnyPart, tokens: int) -> AnyPart:
    """Return the part with unique text of about this length."""
    match part:
        case Text():
            return msgspec.structs.replace(part, text=f"{next(NUMBERS)} " + "word " * tokens)
        case ToolCall():
            return msgspec.structs.replace(part, arguments=f'{{"n":{next(NUMBERS)}}}')
        case _:
            return part


def _message(spoken: OutgoingMessage, tokens: int, dialect: Dialect) -> Message:
    parts = [_padded(part, tokens) for part in spoken.parts]
    if dialect == "openai":
        return encode_parts(spoken.role, [one for one in parts if not isinstance(one, Thinking)])
    fields = {"role": spoken.role, "content": [encode_block(part) for part in parts]}
    return Message(role=spoken.role, raw=msgspec.json.encode(fields), dialect="anthropic")


class Case:
    """A stored history, new messages and the budget for both."""

    def __init__(self, data: Any, profile: HistoryProfile) -> None:
        drawn: SampleHistory = data.draw(histories(profile))
        self.provider = Encoding(profile)
        self.messages = [
            _message(one, tokens, self.provider.dialect)
            for one, tokens in zip(drawn.messages, drawn.tokens, strict=True)
        ]
        self.tokens = [estimate_tokens(message, WEIGHTS) for message in self.messages]
        *self.older, self.newest = split_turns(drawn.messages)
        last = sum(map(len, self.older))
        self.pins = data.draw(st.sets(st.integers(1, last), max_size=2)) if last else set()
        self.limit: int = data.draw(st.integers(40, 1500))
        self.strategy: Strategy = data.draw(
            st.sampled_from(
                [
                    ByTurns(max_turns=2),
                    ByTokens(max_tokens=self.limit),
                    Summarise(tokens=ByTokens(max_tokens=self.limit), summary_tokens=60),
                ]
            )
        )
        through = data.draw(st.sampled_from([0, *(turn[-1] + 1 for turn in self.older)]))
        text = "What was said until then."
        taken = sum(estimate_tokens(one, WEIGHTS) for one in build_summary_messages(text))
        self.summary = (
            StandingSummary(text=text, through=through, tokens=taken) if through else None
        )
        self.store = MemoryStore(clock=_now)

    def sample(self) -> SampleHistory:
        parts = [OutgoingMessage(role=one.role, parts=parts_of(one)) for one in self.messages]
        return SampleHistory(messages=tuple(parts), tokens=tuple(self.tokens))

    async def keep(self) -> None:
        await self.store.create(NewConversation(id="demo", model="m"))
        for turn in self.older:
            messages = tuple(self.messages[n] for n in turn)
            start = TurnStart(id=f"old-{turn[0]}", messages=messages, visible=False)
            lease = await self.store.begin_turn("demo", start)
            await self.store.finish_turn(
                lease, msgspec.structs.replace(lease.turn, state="complete", model="m")
            )
        changes = Changes(pins=tuple(self.pins), summary=self.summary)
        await self.store.update("demo", changes)

    def request(self, *messages: Message) -> TurnRequest:
        return make_turn_request(
            messages=messages,
            model="m",
            ref="demo",
            window=lambda _: self.strategy,
            system=GivenPrompt(text=SYSTEM),
            system_policy="dynamic",
        )

    async def say(self, *messages: Message) -> None:
        engine = Engine(
            store=self.store,
            find_route=lambda _: ModelRoute(provider=self.provider, model=self.provider.model),
            clock=_now,
            new_id=lambda: f"turn-{next(NUMBERS)}",
        )
        async for _ in engine.run_turn(self.request(*messages)):
            pass

    def least(self) -> int:
        """Return what must be sent, from a scan of all messages."""
        required = required_positions(self.sample(), sorted(pin - 1 for pin in self.pins))
        return sum(self.tokens[n] for n in required)

    @property
    def room(self) -> int:
        taken = 0 if self.summary is None else self.summary.tokens
        return self.limit - taken

    async def check(self, profile: HistoryProfile) -> None:
        prompt = self.provider.prompts[-1]
        conversation = await self.store.load("demo")
        standing = conversation.summary
        ahead = () if standing is None else build_summary_messages(standing.text)
        assert prompt.messages[: len(ahead)] == ahead
        assert prompt.system is not None
        assert prompt.system.text == SYSTEM
        sent = [message.raw for message in prompt.messages[len(ahead) :]]
        remaining = iter([message.raw for message in self.messages])
        assert all(raw in remaining for raw in sent)
        required = required_positions(self.sample(), sorted(pin - 1 for pin in self.pins))
        assert Counter(self.messages[n].raw for n in required) <= Counter(sent)
        window = conversation.turns[-1].window
        assert window is not None
        assert window.sent_messages == len(sent)
        assert window.sent_messages + window.left_out_messages == len(self.messages)
        for repaired in self.provider.repaired:
            assert find_problems(repaired, profile) == ()
        if not isinstance(self.strategy, ByTurns):
            taken = 0 if standing is None else standing.tokens
            own = sum(estimate_tokens(one, WEIGHTS) for one in prompt.messages[len(ahead) :])
            assert own + taken <= self.limit
        event("cut" if len(sent) < len(self.messages) else "whole")


def _now() -> datetime:
    return datetime(2026, 11, 15, tzinfo=UTC)


async def _run(case: Case, profile: HistoryProfile) -> None:
    await case.keep()
    new_messages = [case.messages[n] for n in case.newest]
    is_limited = not isinstance(case.strategy, ByTurns)
    if is_limited and case.least() > case.room:
        before = await case.store.load("demo")
        with pytest.raises(WindowTooSmallError):
            await case.say(*new_messages)
        assert case.provider.prompts == []
        assert await case.store.load("demo") == before
        event("refused")
        return
    await case.say(*new_messages)
    await case.check(profile)
    first = await case.store.load("demo")
    case.summary = first.summary
    more = plain_message("user", f"And now, {next(NUMBERS)}?")
    reply = first.turns[-1].messages[-1]
    case.messages += [reply, more]
    case.tokens += [estimate_tokens(one, WEIGHTS) for one in (reply, more)]
    if is_limited and case.least() > case.room:
        return
    await case.say(more)
    await case.check(profile)
    second = await case.store.load("demo")
    cuts = [found.turns[-1].window for found in (first, second)]
    assert cuts[0] is not None
    assert cuts[1] is not None
    assert cuts[0].first_sequence <= cuts[1].first_sequence


@pytest.mark.parametrize("profile", list(PROFILES.values()), ids=lambda profile: profile.name)
@settings(
    max_examples=choose_size(25, 400),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(data=st.data())
def test_every_prompt_is_valid_for_the_provider_and_complete(data, profile):
    asyncio.run(_run(Case(data, profile), profile))

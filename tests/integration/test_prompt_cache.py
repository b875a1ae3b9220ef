"""Long conversations over a provider with a cache: what is read from it, and what that saves."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from datetime import UTC, datetime
from itertools import count, pairwise
from typing import Any

import pytest
from tests.fake_cache import PromptCache, PromptTokens
from tests.fake_provider import WAIT, FakeProvider, Reply, Request
from tests.fake_provider import ToolCall as Call
from tests.request_validation import validate_anthropic_request, validate_bedrock_request
from tests.turn_requests import make_turn_request

from cllm.core.conversation import StoredConversation
from cllm.core.message import ToolCall, plain_message
from cllm.core.ports import NewConversation, Provider, Store
from cllm.engine.request import ModelRoute
from cllm.engine.turn import Engine
from cllm.history.context import CommandOutcome, ContextCommand
from cllm.history.system_prompt import GivenPrompt
from cllm.providers.anthropic import AnthropicProvider
from cllm.providers.bedrock import AwsAccount, BedrockProvider
from cllm.providers.http.aiohttp_transport import AiohttpTransport
from cllm.stores.json.store import JsonFileStore
from cllm.stores.memory import MemoryStore
from cllm.window.cache_report import build_cache_report
from cllm.window.strategies import ByTokens, Summarise

CLAUDE = "claude-sonnet-4-5"
SYSTEM = GivenPrompt(text="You are thorough. " * 300, source="Cllmfile")
TURNS = 60
CLAUDE_PRICES, NOVA_PRICES = (1.25, 0.1), (1.0, 0.25)
"""Of writing to the cache and of reading from it, in multiples of the price of input."""


class Box:
    """A tool whose results are long."""

    definitions: Any = ({"type": "function", "function": {"name": "look", "parameters": {}}},)
    max_calls = 1000

    async def use(self, call: ToolCall) -> str:
        return f"result of {call.arguments}: " + "all is well. " * 20


class Talk:
    """A conversation with one provider, which uses tools when it is told to."""

    def __init__(self, server: FakeProvider, provider: Provider, model: str) -> None:
        self.server = server
        self.model = model
        self.provider = provider
        self.store: Store = MemoryStore(clock=lambda: datetime.now(UTC))
        self._ids = count(1)

    async def say(self, text: str, *, rounds: tuple[int, ...] = (), **fields: Any) -> None:
        """One turn; the model asks for so many tools in each round before it answers."""
        for calls in rounds:
            requested = [
                Call(id=f"call_{next(self._ids)}", name="look", arguments=json.dumps({"n": n}))
                for n in range(calls)
            ]
            self.server.queue_reply(tool_calls=tuple(requested), finish="tool_calls")
        self.server.queue_reply(f"This is what I think of {text!r}. " * 5)
        prompt_given: dict[str, Any] = {
            "ref": "demo",
            "create": NewConversation(id="demo"),
        } | fields
        request = make_turn_request(
            messages=(plain_message("user", f"{text} " * 10),),
            model="m",
            tools=Box(),
            **{"system": SYSTEM} | prompt_given,
        )
        async with aclosing(self._engine().run_turn(request)) as events:
            async for _ in events:
                pass

    async def load_stored(self) -> StoredConversation:
        return await self.store.load("demo")

    @property
    def counted(self) -> list[PromptTokens]:
        assert self.server.cache is not None
        return self.server.cache.counted

    def _engine(self) -> Engine:
        return Engine(
            store=self.store,
            find_route=lambda _: ModelRoute(provider=self.provider, model=self.model),
            clock=lambda: datetime.now(UTC),
            new_id=lambda: f"turn-{next(self._ids)}",
            run_commands=_run,
        )


async def _run(commands: Any) -> list[CommandOutcome]:
    return [
        CommandOutcome(command=command, state="ok", exit_code=0, output=f"{next(NUMBERS)}")
        for command in commands
    ]


NUMBERS = count(1)


@pytest.fixture
def server() -> Iterator[FakeProvider]:
    with FakeProvider() as provider:
        # A server that is stopped before its loop runs for good would be waited for in vain.
        asyncio.run_coroutine_threadsafe(asyncio.sleep(0), provider._loop).result(WAIT)
        provider.cache = PromptCache(minimum=1024)
        yield provider


@pytest.fixture(params=["anthropic", "bedrock", "nova"])
async def talk(server: FakeProvider, request: pytest.FixtureRequest) -> AsyncIterator[Talk]:
    provider: Provider
    model = CLAUDE
    if request.param == "anthropic":
        provider = AnthropicProvider(
            name="anthropic",
            base_url=server.root,
            api_key="sk-ant-0123456789",
            http=AiohttpTransport(),
        )
    else:
        model = "amazon.nova-pro-v1:0" if request.param == "nova" else CLAUDE
        account = AwsAccount(endpoint_url=server.root, bearer="bedrock-api-key-0123456789")
        provider = BedrockProvider(name="bedrock", account=account, http=AiohttpTransport())
    yield Talk(server, provider, model)
    await provider.close()


def judge(server: FakeProvider) -> None:
    """The SDK's types and botocore's model find nothing wrong with what was sent."""
    for request in server.requests:
        if request.path.endswith("/messages"):
            validate_anthropic_request(request.body, sampling=False)
        else:
            validate_bedrock_request(request.body, model="m")


def paid(talk: Talk) -> float:
    """What the prompts cost, of what they would have cost without marks."""
    write, read = NOVA_PRICES if "nova" in talk.model else CLAUDE_PRICES
    paid = sum(one.sent + write * one.written + read * one.read for one in talk.counted)
    return paid / sum(one.total for one in talk.counted)


async def test_sixty_turns_with_tools_read_every_earlier_prompt_from_the_cache(talk):
    for n in range(TURNS):
        await talk.say(f"Question {n}", rounds=(1, 2) if n % 3 == 0 else ())

    for before, now in pairwise(talk.counted):
        assert now.read == before.read + before.written
        assert now.sent == 0
    assert all(one.marks == 2 for one in talk.counted)
    assert paid(talk) < (0.27 if "nova" in talk.model else 0.13)
    judge(talk.server)
    report = build_cache_report([await talk.load_stored()], lambda *_: None)
    assert report.usage.cache_read == sum(one.read for one in talk.counted)
    assert report.missed == report.expired == 0


@pytest.mark.parametrize("talk", ["anthropic"], indirect=True)
async def test_the_report_has_the_misses_between_turns(talk):
    await talk.say("Begin", rounds=(2, 2))
    load_stored, talk.server.cache = talk.counted, PromptCache(minimum=1024)
    await talk.say("Go on", rounds=(2, 2))

    report = build_cache_report([await talk.load_stored()], lambda *_: None)

    assert report.missed == load_stored[-1].total


async def test_the_next_turn_reads_a_turn_of_many_blocks_from_the_cache(talk):
    await talk.say("Begin")
    await talk.say("Look everywhere", rounds=(12, 1, 40))
    await talk.say("And now?")

    for before, now in pairwise(talk.counted):
        assert now.read == before.read + before.written > 0
    assert max(one.marks for one in talk.counted) > 2
    judge(talk.server)


async def test_the_context_of_one_turn_comes_after_the_last_breakpoint(talk):
    command = ContextCommand(name="Time", command="date", template="date", kind="dynamic")
    for n in range(6):
        await talk.say(f"What time is it, for the {n}th time?", context=(command,))

    for before, now in pairwise(talk.counted):
        assert now.read == before.read + before.written > 0
        assert now.sent > 0


async def test_after_a_turn_with_context_the_next_reads_everything_before_it(talk):
    command = ContextCommand(name="Time", command="date", template="date", kind="dynamic")
    await talk.say("Begin")
    await talk.say("Look everywhere", rounds=(15,), context=(command,))
    await talk.say("And now?")

    _, with_context, again, after = talk.counted
    assert with_context.read + with_context.written == again.read == after.read
    assert after.written > with_context.total


async def test_after_trimming_the_system_prompt_is_still_read_from_the_cache(talk):
    for n in range(TURNS):
        await talk.say(f"Question {n}", window=lambda _: ByTokens(max_tokens=4000))

    reads = [now.read for now in talk.counted[1:]]
    cuts = [n for n, (before, now) in enumerate(pairwise(reads)) if now < before]
    assert 0 < len(cuts) < TURNS / 4
    assert min(reads) > len(SYSTEM.text or "") / 4
    assert paid(talk) < 0.4


async def test_a_stateless_prompt_has_no_breakpoints(talk):
    await talk.say("Hello", ref=None, create=None)

    assert [one.marks for one in talk.counted] == [0]


async def test_a_read_only_turn_reads_the_cache_and_adds_only_the_last_answer(talk):
    await talk.say("Hello")
    await talk.say("Just asking", read_only=True, create=None)

    first, second = talk.counted
    assert second.read == first.read + first.written > 0
    assert second.sent > 0


async def test_breakpoints_are_not_stored(talk):
    await talk.say("Hello", rounds=(2,))
    await talk.say("Again")

    for message in (await talk.load_stored()).messages:
        assert b"cache" not in message.raw


async def test_the_same_conversation_is_sent_as_the_same_bytes(talk):
    await talk.say("Hello", rounds=(2,))
    place = (await talk.load_stored()).turns[-1].place
    for _ in range(2):
        await talk.say("Hello", place=place)

    *_, second, third = talk.server.requests
    assert second.body == third.body


def summarise(_model: str) -> Summarise:
    return Summarise(tokens=ByTokens(max_tokens=2000), summary_tokens=400)


def said_in(request: Request) -> list[str]:
    """The messages of a request, one by one and without marks."""
    found = []
    for message in request.json["messages"]:
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        plain = [
            {name: value for name, value in block.items() if name != "cache_control"}
            for block in blocks
            if "cachePoint" not in block
        ]
        found.append(json.dumps([message["role"], plain]))
    return found


def is_summary(request: Request) -> bool:
    return "Summarise our conversation up to here" in said_in(request)[-1]


def give_summary(request: Request) -> Reply | None:
    return Reply(pieces=("They asked and answered. " * 10,)) if is_summary(request) else None


async def test_a_summary_request_reads_the_last_prompt_from_the_cache(talk):
    talk.server.choose = give_summary
    for n in range(30):
        await talk.say(f"Question {n}", rounds=(2,) if n % 4 == 0 else (), window=summarise)

    requests = talk.server.requests
    found = [n for n, request in enumerate(requests) if is_summary(request)]
    assert len(found) >= 2
    for n in found:
        requested, before = requests[n].json, requests[n - 1].json
        for field in ("system", "tools", "toolConfig"):
            assert requested.get(field) == before.get(field)
        shared = said_in(requests[n])[:-1]
        assert said_in(requests[n - 1])[: len(shared)] == shared
        counted = talk.counted[n]
        assert counted.read > 0.8 * counted.total
        assert counted.written < 0.15 * counted.total
    judge(talk.server)


async def test_later_chunks_of_a_summary_read_only_the_system_prompt(talk):
    for n in range(40):
        await talk.say(f"Question {n}")

    await talk.say("And now?", window=lambda _: ByTokens(max_tokens=3000))
    await talk.say("And then?", window=lambda _: Summarise(tokens=ByTokens(max_tokens=1500)))

    found = [n for n, request in enumerate(talk.server.requests) if is_summary(request)]
    assert len(found) >= 2
    for n in found[1:]:
        assert talk.counted[n].written == 0
        assert talk.counted[n].read > len(SYSTEM.text or "") / 4


async def test_a_dynamic_prompt_is_in_no_summary_request_and_never_stored(talk, tmp_path):
    secret = "the-client-s-secret-words"
    folder = tmp_path / "conversations"
    talk.store = JsonFileStore(folder, clock=lambda: datetime.now(UTC))
    prompt_given = GivenPrompt(said=plain_message("system", f"{secret}. " * 100), text=secret)
    for n in range(20):
        await talk.say(
            f"Question {n}", window=summarise, system_policy="dynamic", system=prompt_given
        )

    requests = talk.server.requests
    requested = [request for request in requests if is_summary(request)]
    assert requested
    assert all(secret.encode() in one.body for one in requests if one not in requested)
    assert all(secret.encode() not in one.body for one in requested)
    written = [path.read_bytes() for path in folder.rglob("*") if path.is_file()]
    assert any(b'"summary"' in text for text in written)
    assert all(secret.encode() not in text for text in written)

"""Tests that every provider must pass: subclass `ProviderContract` and define its harness.

    class TestMyProvider(ProviderContract):
        @pytest.fixture
        def harness(self) -> ProviderHarness:
            return MyHarness()

`ScriptedContract` adds tests for a provider whose service can be scripted.
"""

import asyncio
import copy
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, NamedTuple, Protocol

import msgspec
import pytest

from cllm.core.errors import ProviderError
from cllm.core.message import AnyPart, Message, Refusal, Text, Thinking, ToolCall, plain_message
from cllm.core.ports import Provider
from cllm.core.prompt import Prompt
from cllm.core.reply import (
    Noticed,
    PartAdded,
    RefusalDelta,
    ReplyEvent,
    ReplyFinished,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
)
from cllm.wire.convert import parts_of

replace = msgspec.structs.replace
HELLO = plain_message("user", "Say hello to Luna, my cat, and to all of her many friends.")
both_ways = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
PATIENCE = 60.0


class ProviderHarness(Protocol):
    """Opens providers of one kind for the same service. The caller closes them."""

    model: str

    async def open(self) -> Provider: ...


class ScriptedHarness(ProviderHarness, Protocol):
    """A harness that scripts the service's next response."""

    def say(self, *pieces: str) -> None:
        """Respond to the next request with these text deltas."""

    def refuse(self) -> None:
        """Respond to the next request with an error."""

    def break_off(self, *pieces: str) -> None:
        """Respond to the next request with these text deltas, then close the connection."""

    async def left(self) -> None:
        """Return when the service notices that the client closed its newest request."""


async def listen(provider: Provider, prompt: Prompt) -> list[ReplyEvent]:
    return [event async for event in provider.ask(prompt)]


def last(events: Sequence[ReplyEvent]) -> ReplyFinished:
    assert events, "the provider sent no event"
    event = events[-1]
    assert isinstance(event, ReplyFinished), f"the last event is {type(event).__name__}"
    return event


def said(events: Sequence[ReplyEvent]) -> tuple[str, str, list[tuple[str, str]]]:
    """The joined deltas: text, thinking, and tool calls with their arguments."""
    text, thinking, calls = "", "", dict[int, list[str]]()
    for event in events:
        match event:
            case TextDelta() | RefusalDelta():
                text += event.text
            case ThinkingDelta():
                thinking += event.text
            case ToolCallDelta():
                call = calls.setdefault(event.index, ["", ""])
                call[0] = call[0] or event.name or ""
                call[1] += event.arguments
            case PartAdded():
                text += event.part.text if isinstance(event.part, Text | Refusal) else ""
            case Noticed() | ReplyFinished():
                pass
    return text, thinking, [(name, arguments or "{}") for name, arguments in calls.values()]


def kept(message: Message) -> tuple[str, str, list[tuple[str, str]]]:
    parts: tuple[AnyPart, ...] = parts_of(message)
    text = "".join(part.text for part in parts if isinstance(part, Text | Refusal))
    thinking = "".join(part.text for part in parts if isinstance(part, Thinking))
    calls = [(part.name, part.arguments or "{}") for part in parts if isinstance(part, ToolCall)]
    return text, thinking, calls


class _Client(NamedTuple):
    provider: Provider
    prompt: Callable[..., Prompt]

    async def ask(self, *messages: Message, **changes: Any) -> list[ReplyEvent]:
        return await listen(self.provider, self.prompt(*messages, **changes))


class ProviderContract:
    @pytest.fixture
    async def provider(self, harness: ProviderHarness) -> AsyncIterator[Provider]:
        provider = await harness.open()
        yield provider
        await provider.close()

    @pytest.fixture
    def client(self, harness: ProviderHarness, provider: Provider) -> _Client:
        return _Client(provider, partial(self.prompt, harness))

    def prompt(self, harness: ProviderHarness, *messages: Message, **changes: Any) -> Prompt:
        parameters = {"max_tokens": 8, "temperature": 0}
        fields = {"parameters": parameters, "cache_key": "demo"} | changes
        return Prompt(model=harness.model, messages=messages or (HELLO,), **fields)

    def test_a_provider_has_a_name(self, provider: Provider) -> None:
        assert isinstance(provider.name, str)
        assert provider.name

    async def test_prepare_can_be_called_twice(self, client: _Client) -> None:
        await client.provider.prepare()
        await client.provider.prepare()
        last(await client.ask())

    @both_ways
    async def test_only_the_last_event_finishes_the_reply(
        self, client: _Client, *, stream: bool
    ) -> None:
        events = await client.ask(stream=stream)
        last(events)
        assert sum(isinstance(event, ReplyFinished) for event in events) == 1

    @both_ways
    async def test_notices_come_before_the_reply(self, client: _Client, *, stream: bool) -> None:
        is_notice = [isinstance(event, Noticed) for event in await client.ask(stream=stream)]
        assert is_notice == sorted(is_notice, reverse=True)

    @both_ways
    async def test_the_deltas_add_up_to_the_message(self, client: _Client, *, stream: bool) -> None:
        events = await client.ask(stream=stream)
        message = last(events).message
        assert message.role == "assistant"
        assert said(events) == kept(message)

    @both_ways
    async def test_the_reply_can_be_sent_back(self, client: _Client, *, stream: bool) -> None:
        first = last(await client.ask(stream=stream))
        again = plain_message("user", "And now?")
        last(await client.ask(HELLO, first.message, again, stream=stream))

    @both_ways
    async def test_a_call_does_not_change_the_prompt(
        self, client: _Client, *, stream: bool
    ) -> None:
        prompt = client.prompt(stream=stream, system=plain_message("system", "Be brief."))
        before = copy.deepcopy(prompt)
        await listen(client.provider, prompt)
        assert prompt == before

    @both_ways
    async def test_no_token_is_counted_twice(self, client: _Client, *, stream: bool) -> None:
        usage = last(await client.ask(stream=stream)).usage
        if usage is None:
            return
        counts = (usage.input, usage.output, usage.cache_read, usage.cache_write, usage.reasoning)
        assert min(counts) >= 0
        assert usage.total == sum(counts)

    async def test_a_provider_can_be_called_again(self, client: _Client) -> None:
        for _ in range(2):
            last(await client.ask())

    async def test_a_provider_handles_two_calls_in_parallel(self, client: _Client) -> None:
        for events in await asyncio.gather(client.ask(), client.ask(cache_key="other")):
            assert said(events) == kept(last(events).message)

    async def test_a_provider_can_be_called_after_a_stream_is_closed_early(
        self, client: _Client
    ) -> None:
        async with asyncio.timeout(PATIENCE):
            async with aclosing(client.provider.ask(client.prompt())) as events:
                await anext(events)
            last(await client.ask())

    async def test_a_call_can_be_cancelled_before_its_reply(self, client: _Client) -> None:
        await client.provider.prepare()
        call = asyncio.create_task(client.ask())
        await asyncio.sleep(0)
        was_running = call.cancel()
        await asyncio.wait([call])
        assert call.cancelled() == was_running
        async with asyncio.timeout(PATIENCE):
            last(await client.ask())

    async def test_close_can_be_called_twice(self, harness: ProviderHarness) -> None:
        provider = await harness.open()
        await listen(provider, self.prompt(harness))
        await provider.close()
        await provider.close()

    async def test_an_unused_provider_can_be_closed(self, harness: ProviderHarness) -> None:
        provider = await harness.open()
        await provider.close()


class ScriptedContract(ProviderContract):
    @both_ways
    async def test_the_text_arrives_unchanged(
        self, harness: ScriptedHarness, client: _Client, *, stream: bool
    ) -> None:
        harness.say("Hel", "lo ä🐈", "\n")
        events = await client.ask(stream=stream)
        assert said(events)[0] == "Hello ä🐈\n"
        assert last(events).message.text == "Hello ä🐈\n"
        assert last(events).stop_reason == "end"

    async def test_a_stream_has_several_deltas(
        self, harness: ScriptedHarness, client: _Client
    ) -> None:
        harness.say("One ", "two ", "three.")
        assert sum(isinstance(event, TextDelta) for event in await client.ask()) > 1

    @both_ways
    async def test_a_rejected_call_is_an_error_with_the_provider_name(
        self, harness: ScriptedHarness, client: _Client, *, stream: bool
    ) -> None:
        harness.refuse()
        events: list[ReplyEvent] = []
        with pytest.raises(ProviderError) as raised:
            await self._collect(client.provider, client.prompt(stream=stream), events)
        assert raised.value.provider == client.provider.name
        assert all(isinstance(event, Noticed) for event in events)

    async def test_a_broken_stream_is_an_error_and_has_no_final_event(
        self, harness: ScriptedHarness, client: _Client
    ) -> None:
        harness.break_off("One ", "two ")
        events: list[ReplyEvent] = []
        with pytest.raises(ProviderError):
            await self._collect(client.provider, client.prompt(), events)
        assert "One two ".startswith(said(events)[0])
        assert not any(isinstance(event, ReplyFinished) for event in events)

    async def test_an_error_ends_the_stream(
        self, harness: ScriptedHarness, client: _Client
    ) -> None:
        harness.break_off("One ", "two ")
        events = client.provider.ask(client.prompt())
        with pytest.raises(ProviderError):
            async for _ in events:
                pass
        with pytest.raises(StopAsyncIteration):
            await anext(events)

    async def test_the_next_call_works_after_an_error(
        self, harness: ScriptedHarness, client: _Client
    ) -> None:
        harness.refuse()
        with pytest.raises(ProviderError):
            await client.ask()
        harness.say("Better.")
        assert last(await client.ask()).message.text == "Better."

    async def test_closing_a_stream_early_ends_the_request(
        self, harness: ScriptedHarness, client: _Client
    ) -> None:
        # More than a socket buffers, so that not everything is sent before the client closes.
        harness.say(*(["and so on " * 1000] * 2000))
        async with aclosing(client.provider.ask(client.prompt())) as events:
            await anext(events)
        async with asyncio.timeout(PATIENCE):
            await harness.left()

    async def _collect(self, provider: Provider, prompt: Prompt, events: list[ReplyEvent]) -> None:
        async for event in provider.ask(prompt):
            events.append(event)  # noqa: PERF401 - events before an error are checked

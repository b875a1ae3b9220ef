"""What every provider does, as tests: subclass `ProviderContract` and give it a harness.

    class TestMyProvider(ProviderContract):
        @pytest.fixture
        def harness(self) -> ProviderHarness:
            return MyHarness()

A provider whose service can be told what to answer, and to fail, takes `ScriptedContract`, which
asks more of it. The suite knows providers by their port only. It never looks at what is sent.
"""

import asyncio
import copy
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from typing import Any, Protocol

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
from cllm.wire.translate import parts_of

replace = msgspec.structs.replace
HELLO = plain_message("user", "Say hello to Luna, my cat, and to all of her many friends.")
both_ways = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
PATIENCE = 60.0


class ProviderHarness(Protocol):
    """Opens providers of one kind, all for the same service. The caller closes them."""

    model: str

    async def open(self) -> Provider: ...


class ScriptedHarness(ProviderHarness, Protocol):
    """A harness that scripts the service's next answer; unscripted, it answers something."""

    def say(self, *pieces: str) -> None:
        """Answer the next request with these pieces."""
        ...

    def refuse(self) -> None:
        """Answer the next request with an error."""
        ...

    def break_off(self, *pieces: str) -> None:
        """Answer the next request with these pieces, then break the connection."""
        ...

    async def left(self) -> None:
        """Return once the service knows that the client left its newest request."""
        ...


async def listen(provider: Provider, prompt: Prompt) -> list[ReplyEvent]:
    return [event async for event in provider.ask(prompt)]


def last(events: Sequence[ReplyEvent]) -> ReplyFinished:
    assert events, "there was no event"
    event = events[-1]
    assert isinstance(event, ReplyFinished), f"the last event is {type(event).__name__}"
    return event


def said(events: Sequence[ReplyEvent]) -> tuple[str, str, list[tuple[str, str]]]:
    """The sum of the pieces: text, thinking, and calls with their arguments."""
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


class ProviderContract:
    @pytest.fixture
    async def provider(self, harness: ProviderHarness) -> AsyncIterator[Provider]:
        provider = await harness.open()
        yield provider
        await provider.close()

    def prompt(self, harness: ProviderHarness, *messages: Message, **changes: Any) -> Prompt:
        parameters = {"max_tokens": 8, "temperature": 0}
        given = {"parameters": parameters, "cache_key": "demo"} | changes
        return Prompt(model=harness.model, messages=messages or (HELLO,), **given)

    def test_a_provider_has_a_name(self, provider: Provider) -> None:
        assert isinstance(provider.name, str)
        assert provider.name

    async def test_preparing_twice_is_preparing_once(
        self, harness: ProviderHarness, provider: Provider
    ) -> None:
        await provider.prepare()
        await provider.prepare()
        last(await listen(provider, self.prompt(harness)))

    @both_ways
    async def test_the_last_event_ends_the_answer_and_no_other_does(
        self, harness: ProviderHarness, provider: Provider, *, stream: bool
    ) -> None:
        events = await listen(provider, self.prompt(harness, stream=stream))
        last(events)
        assert sum(isinstance(event, ReplyFinished) for event in events) == 1

    @both_ways
    async def test_notices_come_before_the_answer(
        self, harness: ProviderHarness, provider: Provider, *, stream: bool
    ) -> None:
        events = await listen(provider, self.prompt(harness, stream=stream))
        noticed = [isinstance(event, Noticed) for event in events]
        assert noticed == sorted(noticed, reverse=True)

    @both_ways
    async def test_the_pieces_add_up_to_the_message(
        self, harness: ProviderHarness, provider: Provider, *, stream: bool
    ) -> None:
        events = await listen(provider, self.prompt(harness, stream=stream))
        message = last(events).message
        assert message.role == "assistant"
        assert said(events) == kept(message)

    @both_ways
    async def test_the_reply_can_be_sent_back(
        self, harness: ProviderHarness, provider: Provider, *, stream: bool
    ) -> None:
        first = last(await listen(provider, self.prompt(harness, stream=stream)))
        again = plain_message("user", "And now?")
        prompt = self.prompt(harness, HELLO, first.message, again, stream=stream)
        last(await listen(provider, prompt))

    @both_ways
    async def test_a_prompt_is_not_changed_by_asking(
        self, harness: ProviderHarness, provider: Provider, *, stream: bool
    ) -> None:
        system = plain_message("system", "Be brief.")
        prompt = self.prompt(harness, stream=stream, system=system)
        before = copy.deepcopy(prompt)
        await listen(provider, prompt)
        assert prompt == before

    @both_ways
    async def test_no_token_is_counted_twice_or_less_than_never(
        self, harness: ProviderHarness, provider: Provider, *, stream: bool
    ) -> None:
        usage = last(await listen(provider, self.prompt(harness, stream=stream))).usage
        if usage is None:
            return
        counts = (usage.input, usage.output, usage.cache_read, usage.cache_write, usage.reasoning)
        assert min(counts) >= 0
        assert usage.total == sum(counts)

    async def test_a_provider_can_be_asked_again(
        self, harness: ProviderHarness, provider: Provider
    ) -> None:
        for _ in range(2):
            last(await listen(provider, self.prompt(harness)))

    async def test_a_provider_can_be_asked_twice_at_once(
        self, harness: ProviderHarness, provider: Provider
    ) -> None:
        prompts = (self.prompt(harness), self.prompt(harness, cache_key="other"))
        answers = await asyncio.gather(*(listen(provider, prompt) for prompt in prompts))
        for events in answers:
            assert said(events) == kept(last(events).message)

    async def test_a_listener_may_leave_and_somebody_may_ask_again(
        self, harness: ProviderHarness, provider: Provider
    ) -> None:
        async with asyncio.timeout(PATIENCE):
            async with aclosing(provider.ask(self.prompt(harness))) as events:
                await anext(events)
            last(await listen(provider, self.prompt(harness)))

    async def test_a_question_may_be_cancelled_before_its_answer(
        self, harness: ProviderHarness, provider: Provider
    ) -> None:
        await provider.prepare()
        asking = asyncio.create_task(listen(provider, self.prompt(harness)))
        await asyncio.sleep(0)
        was_under_way = asking.cancel()
        await asyncio.wait([asking])
        assert asking.cancelled() == was_under_way
        async with asyncio.timeout(PATIENCE):
            last(await listen(provider, self.prompt(harness)))

    async def test_closing_twice_is_closing_once(self, harness: ProviderHarness) -> None:
        provider = await harness.open()
        await listen(provider, self.prompt(harness))
        await provider.close()
        await provider.close()

    async def test_an_unused_provider_can_be_closed(self, harness: ProviderHarness) -> None:
        provider = await harness.open()
        await provider.close()


class ScriptedContract(ProviderContract):
    @both_ways
    async def test_what_was_said_is_what_is_heard(
        self, harness: ScriptedHarness, provider: Provider, *, stream: bool
    ) -> None:
        harness.say("Hel", "lo ä🐈", "\n")
        events = await listen(provider, self.prompt(harness, stream=stream))
        assert said(events)[0] == "Hello ä🐈\n"
        assert last(events).message.text == "Hello ä🐈\n"
        assert last(events).stop_reason == "end"

    async def test_a_stream_comes_in_pieces(
        self, harness: ScriptedHarness, provider: Provider
    ) -> None:
        harness.say("One ", "two ", "three.")
        events = await listen(provider, self.prompt(harness))
        assert sum(isinstance(event, TextDelta) for event in events) > 1

    @both_ways
    async def test_a_refused_question_is_an_error_with_the_providers_name(
        self, harness: ScriptedHarness, provider: Provider, *, stream: bool
    ) -> None:
        harness.refuse()
        events: list[ReplyEvent] = []
        with pytest.raises(ProviderError) as raised:
            await self._hear(provider, self.prompt(harness, stream=stream), events)
        assert raised.value.provider == provider.name
        assert all(isinstance(event, Noticed) for event in events)

    async def test_an_answer_that_breaks_off_is_an_error_and_never_finished(
        self, harness: ScriptedHarness, provider: Provider
    ) -> None:
        harness.break_off("One ", "two ")
        events: list[ReplyEvent] = []
        with pytest.raises(ProviderError):
            await self._hear(provider, self.prompt(harness), events)
        assert "One two ".startswith(said(events)[0])
        assert not any(isinstance(event, ReplyFinished) for event in events)

    async def test_nothing_comes_after_an_error(
        self, harness: ScriptedHarness, provider: Provider
    ) -> None:
        harness.break_off("One ", "two ")
        asking = provider.ask(self.prompt(harness))
        with pytest.raises(ProviderError):
            async for _ in asking:
                pass
        with pytest.raises(StopAsyncIteration):
            await anext(asking)

    async def test_an_error_does_not_spoil_the_next_question(
        self, harness: ScriptedHarness, provider: Provider
    ) -> None:
        harness.refuse()
        with pytest.raises(ProviderError):
            await listen(provider, self.prompt(harness))
        harness.say("Better.")
        events = await listen(provider, self.prompt(harness))
        assert last(events).message.text == "Better."

    async def test_a_listener_who_leaves_ends_the_question(
        self, harness: ScriptedHarness, provider: Provider
    ) -> None:
        # More than a connection holds: else all of it may be sent before anybody can leave.
        harness.say(*(["and so on " * 1000] * 2000))
        async with aclosing(provider.ask(self.prompt(harness))) as events:
            await anext(events)
        async with asyncio.timeout(PATIENCE):
            await harness.left()

    async def _hear(self, provider: Provider, prompt: Prompt, events: list[ReplyEvent]) -> None:
        async for event in provider.ask(prompt):
            events.append(event)  # noqa: PERF401 - what came before an error counts

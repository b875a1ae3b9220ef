"""The contract suite detects faulty providers."""

from collections.abc import AsyncGenerator, Callable
from functools import partial
from typing import Any

import pytest
from tests.scripted_provider import ScriptedProvider, ScriptEntry

from cllm.core.message import plain_message
from cllm.core.notice import Notice
from cllm.core.ports import Provider
from cllm.core.prompt import Prompt
from cllm.core.reply import Noticed, ReplyEvent, ReplyFinished, TextDelta, Usage
from cllm.testing.provider_contract import ProviderContract, _Client

FINISHED = ReplyFinished(message=plain_message("assistant", "Hi"), stop_reason="end")
TEXT = TextDelta(text="Hi")
NOTICED = Noticed(notice=Notice(code="x", message="y"))
WRONG_USAGE = ReplyFinished(
    message=FINISHED.message, stop_reason="end", usage=Usage(input=-1, output=1)
)


class Meddling(ScriptedProvider):
    """Changes its prompt."""

    async def ask(self, prompt: Prompt) -> AsyncGenerator[ReplyEvent, None]:
        prompt.parameters["stream"] = True
        async for event in super().ask(prompt):
            yield event


class Harness:
    model = "m"

    def __init__(self, make: Callable[[], Provider]) -> None:
        self._make = make

    async def open(self) -> Provider:
        return self._make()


def scripted(*events: ReplyEvent) -> Callable[[], Provider]:
    lines: list[ScriptEntry] = [list(events)] * 3
    return lambda: ScriptedProvider(lines)


async def client(make: Callable[[], Provider]) -> _Client:
    harness = Harness(make)
    return _Client(await harness.open(), partial(ProviderContract().prompt, harness))


@pytest.mark.parametrize(
    ("make", "test"),
    [
        (scripted(TEXT), "test_only_the_last_event_finishes_the_reply"),
        (scripted(TEXT, FINISHED, TEXT), "test_only_the_last_event_finishes_the_reply"),
        (scripted(FINISHED, FINISHED), "test_only_the_last_event_finishes_the_reply"),
        (scripted(FINISHED), "test_the_deltas_add_up_to_the_message"),
        (scripted(TEXT, TEXT, FINISHED), "test_the_deltas_add_up_to_the_message"),
        (scripted(TEXT, NOTICED, FINISHED), "test_notices_come_before_the_reply"),
        (scripted(TEXT, WRONG_USAGE), "test_no_token_is_counted_twice"),
        (Meddling, "test_a_call_does_not_change_the_prompt"),
    ],
)
async def test_the_contract_detects_faults(make, test):
    check: Any = getattr(ProviderContract(), test)
    with pytest.raises(AssertionError):
        await check(await client(make), stream=True)


async def test_the_contract_accepts_a_correct_provider():
    check: Any = ProviderContract().test_the_deltas_add_up_to_the_message
    await check(await client(ScriptedProvider), stream=True)

"""The window on recorded conversations: every call, several budgets, by two calculations."""

import json
from functools import cache
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from tests.tokenizers import o200k
from tests.window_histories import Said, needed

from cllm.assembly.profiles import OPENAI
from cllm.assembly.repair import repair
from cllm.assembly.tokens import GENERAL, LARGE, Learned, Weights, estimate_tokens, weigh_text
from cllm.assembly.validity import PROFILES, check
from cllm.assembly.window import ByTokens, ByTurns, Strategy, plan_window
from cllm.core.errors import WindowTooSmallError
from cllm.core.message import Message, Text, ToolResult
from cllm.wire.openai_parts import decode_parts
from cllm.wire.spoken import Spoken

RECORDED = Path(__file__).resolve().parents[3] / "shared" / "data" / "tau_airline.jsonl"
BUDGETS = (500, 1000, 2000, 4000, 8000)
pytestmark = [
    pytest.mark.shared_data,
    pytest.mark.skipif(not RECORDED.exists(), reason=f"{RECORDED} is not beside this repository"),
]


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation beside its system prompt."""

    system: Spoken
    said: Said


@cache
def recorded() -> list[Recorded]:
    with RECORDED.open(encoding="utf-8") as lines:
        return [_read(line) for line in lines]


def _read(line: str) -> Recorded:
    messages = [
        Message(role=fields["role"], raw=msgspec.json.encode(fields))
        for fields in json.loads(line)["messages"]
    ]
    system, *said = [
        Spoken(role=message.role, parts=decode_parts(message), raw=message.raw)
        for message in messages
    ]
    assert system.role == "system"
    tokens = tuple(estimate_tokens(message, LARGE) for message in messages[1:])
    return Recorded(system=system, said=Said(messages=tuple(said), tokens=tokens))


def calls(said: Said) -> list[int]:
    """How much of a conversation there was at each call."""
    return [n for n, message in enumerate(said.messages) if n and message.role == "assistant"]


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("strategy", [ByTokens(), ByTokens(floor=300), ByTurns()], ids=repr)
def test_at_every_call_the_view_is_valid_whole_and_within_its_budget(
    budget: int, strategy: Strategy
):
    points = trimmed = refused = 0
    for conversation in recorded():
        said = conversation.said
        ledger = said.ledger(0)
        cut: int | None = None
        items = said.items()
        for end in calls(said):
            for item in items[len(ledger) : end]:
                ledger.append(item)
            points += 1
            kept = needed(said.chosen(range(end)))
            least = sum(said.tokens[n] for n in kept)
            if least > budget:
                refused += 1
                with pytest.raises(WindowTooSmallError) as raised:
                    plan_window(ledger, strategy, budget=budget, cut=cut)
                assert raised.value.needed == least
                continue
            for remembered in (cut, None):
                view = plan_window(ledger, strategy, budget=budget, cut=remembered)
                sent = view.of(said.messages[:end])
                assert check([conversation.system, *sent], OPENAI) == ()
                places = [n for start, stop in view.spans for n in range(start, stop)]
                assert set(kept) <= set(places) <= set(range(end))
                assert sum(said.tokens[n] for n in places) == view.tokens <= budget
                trimmed += len(sent) < end
            cut = plan_window(ledger, strategy, budget=budget, cut=cut).cut

    assert points > 1000
    assert trimmed or budget == BUDGETS[-1]
    assert refused or budget > 1000


@pytest.mark.parametrize("weights", [GENERAL, LARGE], ids=["general", "large"])
def test_recorded_tool_results_are_estimated_well(weights: Weights):
    """Each is estimated after a report of another one."""
    texts = [
        part.text
        for conversation in recorded()
        for message in conversation.said.messages
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
        learned = Learned().after(weigh_text(before, weights), count(before))
        assert Learned().expect(weigh_text(text, weights)) >= 0.75 * true
        assert learned.expect(weigh_text(text, weights)) >= 0.9 * true


@pytest.mark.parametrize("name", sorted(PROFILES))
def test_the_views_of_recorded_conversations_can_be_sent_to_every_provider(name: str):
    for conversation in recorded():
        said = conversation.said
        ledger, cut, items = said.ledger(0), None, said.items()
        for end in calls(said):
            for item in items[len(ledger) : end]:
                ledger.append(item)
            try:
                view = plan_window(ledger, ByTokens(), budget=1000, cut=cut)
            except WindowTooSmallError:
                continue
            cut = view.cut
            sent = view.of(said.messages[:end])
            mended = repair(
                sent, PROFILES[name], make=lambda role, parts: Spoken(role=role, parts=parts)
            )
            assert mended.problems == ()

"""Operations on stored conversations."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from cllm.core.conversation import StandingSummary, StoredConversation, Turn
from cllm.core.errors import BrokenConversationError, InvalidTextError
from cllm.core.message import plain_message
from cllm.core.reply import Usage
from cllm.engine.prompt_history import ModelContext
from cllm.library.operations import decode_export, find_window, sum_usage
from cllm.window.strategies import ByTokens, ByTurns
from cllm.wire.conversation_file.codec import encode_conversation

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
MODEL = ModelContext(model="m", provider="p", context_window=lambda: None, now=NOW)


def turn(number: int, *, replies: bool = True, **fields: Any) -> Turn:
    messages = [plain_message("user", f"question {number}")]
    messages += [plain_message("assistant", f"answer {number}")] if replies else []
    return Turn(
        id=f"t{number}",
        place=f"t{number}",
        state="complete",
        messages=tuple(messages),
        started_at=NOW,
        ended_at=NOW,
        model="m",
        **fields,
    )


def conversation(*turns: Turn, **fields: Any) -> StoredConversation:
    return StoredConversation(id="demo", created_at=NOW, updated_at=NOW, turns=turns, **fields)


def test_a_window_by_turns_has_the_newest_turns():
    window = find_window(conversation(*map(turn, range(5))), ByTurns(max_turns=2), MODEL)

    assert [message.text for message in window.messages] == [
        "question 3",
        "answer 3",
        "question 4",
        "answer 4",
    ]
    assert (window.turns, window.is_answered) == (2, True)
    assert window.record.left_out_messages == 6


def test_an_unanswered_turn_is_not_counted():
    window = find_window(conversation(turn(0), turn(1, replies=False)), ByTurns(), MODEL)

    assert (window.turns, window.is_answered) == (1, False)


def test_a_window_that_is_too_small_shows_everything():
    window = find_window(conversation(turn(0)), ByTokens(max_tokens=1), MODEL)

    assert len(window.messages) == 2


def test_usage_includes_replaced_summaries_and_counts_unknown_costs():
    first = StandingSummary(text="a", through=2, tokens=1, usage=Usage(output=1), cost=0.25)
    summary = StandingSummary(text="b", through=4, tokens=1, usage=Usage(output=2), before=first)
    turns = turn(0, usage=Usage(input=10), cost=0.5), turn(1, usage=None)

    total = sum_usage(conversation(*turns, summary=summary))

    assert (total.calls, total.usage) == (3, Usage(input=10, output=3))
    assert (total.cost, total.unpriced) == (0.75, 1)


def test_usage_of_a_model_without_a_price_has_no_cost():
    total = sum_usage(conversation(turn(0, usage=Usage(input=10), cost=None)))

    assert (total.calls, total.cost, total.unpriced) == (1, None, 1)


@pytest.mark.parametrize("decode", [bytes, bytes.decode])
def test_an_export_is_decoded(decode):
    stored = conversation(turn(0))

    decoded = decode_export(decode(encode_conversation(stored)))

    assert decoded.id == "demo"
    assert decoded.messages == stored.messages


@pytest.mark.parametrize("exported", ["", "[]", b"\xff", msgspec.json.encode({"id": "demo"})])
def test_an_invalid_export_is_an_error(exported):
    with pytest.raises(BrokenConversationError, match="the export"):
        decode_export(exported)


def test_a_lone_surrogate_in_an_export_is_an_error():
    with pytest.raises(InvalidTextError, match="The export has a lone surrogate"):
        decode_export("\ud800")

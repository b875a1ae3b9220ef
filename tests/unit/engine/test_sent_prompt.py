"""The prompt that a turn sent; `tests/unit/server/api/test_turns.py` tests it through the API."""

from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from cllm.core.conversation import (
    StandingSummary,
    StoredConversation,
    SystemRecord,
    Turn,
    WindowRecord,
)
from cllm.core.message import plain_message
from cllm.engine.sent_prompt import NOT_STORED, LeftOutView, view_prompt
from cllm.providers.local.models import SMOLLM_PROMPT

THEN = datetime(2026, 1, 1, tzinfo=UTC)


def make_turn(number: int, *, window: WindowRecord | None = None, state="complete") -> Turn:
    messages = (plain_message("user", f"Q{number}"), plain_message("assistant", f"A{number}"))
    return Turn(
        id=f"t{number}",
        place=f"t{number}",
        state=state,
        messages=messages,
        started_at=THEN,
        window=window,
    )


def make_conversation(*turns: Turn, **fields) -> StoredConversation:
    return StoredConversation(id="cats", created_at=THEN, updated_at=THEN, turns=turns, **fields)


def test_a_window_leaves_out_messages_with_reasons():
    window = WindowRecord(
        first_sequence=7, sent_messages=3, left_out_messages=6, summary_through=2, context=5
    )
    turns = (
        make_turn(1),
        make_turn(2, state="failed"),
        make_turn(3),
        make_turn(4),
        make_turn(5, window=window),
    )
    conversation = make_conversation(
        *turns,
        system=plain_message("system", "Be brief."),
        summary=StandingSummary(text="Cats.", through=2, tokens=3),
    )

    view = view_prompt(conversation, turns[-1])

    kinds = [one.kind for one in view.sent]
    assert [kind for kind in kinds if kind != "summary"] == [
        *("system", "history", "history", "context", "request")
    ]
    assert "summary" in kinds
    assert [one.content for one in view.sent if one.kind == "context"] == [NOT_STORED]
    assert view.left_out == (
        LeftOutView(first=1, last=2, reason="summary"),
        LeftOutView(first=3, last=4, reason="failed"),
        LeftOutView(first=5, last=6, reason="window"),
    )
    assert view.exact


def test_whether_a_dynamic_conversation_sent_a_system_prompt_is_unknown():
    turn = make_turn(1, window=WindowRecord(first_sequence=1, sent_messages=1))
    record = SystemRecord(policy="dynamic")

    view = view_prompt(make_conversation(turn, system_record=record), turn)

    assert [(one.kind, one.is_stored, one.is_unknown) for one in view.sent] == [
        ("system", False, True),
        ("request", True, False),
    ]
    assert view.exact


@pytest.mark.parametrize(
    ("model", "record", "system", "kinds"),
    [
        ("local/smollm2-135m", "captured", None, ["template", "request"]),
        ("local/smollm2-135m", "captured", "Be brief.", ["system", "request"]),
        ("local/smollm2-135m", "dynamic", None, ["system", "request"]),
        ("local/smollm2-135m", None, None, ["system", "request"]),
        ("local/smollm2-135m", None, "Be brief.", ["system", "request"]),
        ("local/qwen3-0.6b", "captured", None, ["request"]),
    ],
)
def test_the_text_that_a_chat_template_adds_is_a_part_of_the_prompt(model, record, system, kinds):
    window = WindowRecord(first_sequence=1, sent_messages=1)
    turn = replace(make_turn(1, window=window), model=model, provider="local")
    conversation = make_conversation(
        turn,
        system=None if system is None else plain_message("system", system),
        system_record=None if record is None else SystemRecord(policy=record),
    )

    view = view_prompt(conversation, turn)

    assert [one.kind for one in view.sent] == kinds
    assert view.exact
    if "template" in kinds:
        assert view.sent[0].content == SMOLLM_PROMPT
        assert view.sent[0].tokens


def test_a_turn_without_a_record_is_not_exact():
    turn = make_turn(1)

    view = view_prompt(make_conversation(turn), turn)

    assert [one.content for one in view.sent] == [NOT_STORED, "Q1"]
    assert not view.exact

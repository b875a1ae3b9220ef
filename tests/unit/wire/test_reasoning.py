"""Reasoning of past messages fitted to a server's rule, and streamed details joined."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from cllm.wire.reasoning import (
    AS_SENT,
    NEEDS_REASONING_CONTENT,
    TAKES_DETAILS,
    TAKES_EITHER,
    TAKES_NONE,
    TAKES_REASONING,
    TAKES_REASONING_CONTENT,
    TAKES_THINKING_BLOCKS,
    FittedReasoning,
    ReasoningRule,
    StreamedDetails,
    StreamedThinking,
    fit_reasoning,
)

RULES = {
    "as sent": AS_SENT,
    "blocks": TAKES_THINKING_BLOCKS,
    "details": TAKES_DETAILS,
    "either": TAKES_EITHER,
    "needed": NEEDS_REASONING_CONTENT,
    "none": TAKES_NONE,
    "reasoning": TAKES_REASONING,
    "reasoning_content": TAKES_REASONING_CONTENT,
}
every_rule = pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
TEXT = {"type": "reasoning.text", "text": "hm", "index": 0}
SIGNED = TEXT | {"signature": "c2ln"}
SEALED = {"type": "reasoning.encrypted", "data": "eA==", "index": 1}
BLOCK = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}


def written(**fields: Any) -> bytes:
    return json.dumps({"role": "assistant", "content": "Hi.", **fields}, indent=1).encode()


def fit(rule: ReasoningRule, *, is_foreign: bool = False, **fields: Any) -> dict[str, Any]:
    raw = fit_reasoning(written(**fields), rule, is_foreign=is_foreign).raw
    said: dict[str, Any] = json.loads(raw)
    return said


@every_rule
@pytest.mark.parametrize(
    "fields",
    [{}, {"content": 'my "reasoning" and "thinking"'}, {"tool_calls": [CALL]}, {"name": "ann"}],
)
def test_a_message_without_reasoning_is_unchanged(rule, fields):
    raw = written(**fields)

    assert fit_reasoning(raw, rule) == FittedReasoning(raw)


@pytest.mark.parametrize(
    ("rule", "fields"),
    [
        (TAKES_REASONING_CONTENT, {"reasoning_content": "hm"}),
        (TAKES_REASONING, {"reasoning": "hm"}),
        (TAKES_REASONING, {"reasoning": [{"type": "text", "text": "hm"}]}),
        (TAKES_EITHER, {"reasoning": "hm", "reasoning_content": "ha"}),
        (TAKES_DETAILS, {"reasoning": "hm", "reasoning_details": [SIGNED, SEALED]}),
        (TAKES_THINKING_BLOCKS, {"content": [BLOCK, {"type": "text", "text": "Hi."}]}),
        (AS_SENT, {"reasoning_details": {"odd": 1.50}, "reasoning": 3, "content": [BLOCK]}),
    ],
)
def test_accepted_reasoning_is_unchanged(rule, fields):
    raw = written(**fields)

    assert fit_reasoning(raw, rule) == FittedReasoning(raw)


def test_other_fields_keep_their_bytes_if_reasoning_moves():
    raw = b'{"role":"assistant","n":1.50,"content":"\\u00e4","reasoning":"hm","big":1e400}'
    sent = fit_reasoning(raw, TAKES_REASONING_CONTENT).raw

    assert b'"n":1.50,"content":"\\u00e4","big":1e400' in sent


@pytest.mark.parametrize(
    ("rule", "field"),
    [(TAKES_REASONING_CONTENT, "reasoning_content"), (TAKES_REASONING, "reasoning")],
)
@pytest.mark.parametrize(
    "fields",
    [
        {"reasoning_content": "hm"},
        {"reasoning": "hm"},
        {"reasoning": "hm", "reasoning_content": "hm"},
        {"reasoning": "hm", "reasoning_content": None},
        {"reasoning": "hm", "reasoning_content": ""},
        {"reasoning_details": [TEXT]},
        {"reasoning": "hm", "reasoning_details": [TEXT]},
        {"reasoning": "hm", "reasoning_details": []},
        {"reasoning_details": [TEXT | {"type": "reasoning.summary", "summary": "hm"}]},
        {"content": [BLOCK, {"type": "text", "text": "Hi."}]},
    ],
)
def test_plain_reasoning_moves_to_the_accepted_field(rule, field, fields):
    found = fit_reasoning(written(**fields), rule)
    said = json.loads(found.raw)

    assert said.pop(field) == "hm"
    assert {key: said[key] for key in said if said[key]} == {"role": "assistant", "content": "Hi."}
    assert found.lost is None


@pytest.mark.parametrize(
    ("content", "rest"),
    [
        ("Hi.", [{"type": "text", "text": "Hi."}]),
        ([{"type": "text", "text": "Hi."}], [{"type": "text", "text": "Hi."}]),
        ("", []),
        (None, []),
    ],
)
def test_plain_reasoning_becomes_a_thinking_block(content, rest):
    said = fit(TAKES_THINKING_BLOCKS, content=content, reasoning="hm", tool_calls=[CALL])

    assert said["content"] == [BLOCK, *rest]
    assert said["tool_calls"] == [CALL]
    assert "reasoning" not in said


@pytest.mark.parametrize(
    ("rule", "fields", "lost"),
    [
        (TAKES_NONE, {"reasoning_content": "hm"}, "reasoning_content"),
        (TAKES_NONE, {"reasoning": "hm"}, "reasoning"),
        (TAKES_NONE, {"reasoning_details": [TEXT]}, "reasoning_details"),
        (TAKES_NONE, {"content": [BLOCK, {"type": "text", "text": "Hi."}]}, "content"),
        (TAKES_REASONING, {"reasoning": "hm", "reasoning_content": "ha"}, "reasoning_content"),
        (TAKES_REASONING, {"reasoning": "hm", "reasoning_details": [SIGNED]}, "reasoning_details"),
        (TAKES_REASONING, {"reasoning_details": [SEALED]}, "reasoning_details"),
        (TAKES_REASONING_CONTENT, {"reasoning": {"odd": 1}}, "reasoning"),
        (TAKES_REASONING_CONTENT, {"reasoning_details": "x"}, "reasoning_details"),
        (TAKES_REASONING_CONTENT, {"reasoning_details": ["x"]}, "reasoning_details"),
    ],
)
def test_the_field_of_lost_reasoning_is_returned(rule, fields, lost):
    found = fit_reasoning(written(**fields), rule)

    assert found.lost == lost
    assert b"c2ln" not in found.raw
    assert b"eA==" not in found.raw
    assert json.loads(found.raw)["content"] == "Hi."


@pytest.mark.parametrize("rule", [TAKES_DETAILS, AS_SENT])
def test_only_the_text_of_foreign_details_is_sent(rule):
    found = fit_reasoning(written(reasoning_details=[SIGNED, SEALED]), rule, is_foreign=True)

    assert found.lost == "reasoning_details"
    assert json.loads(found.raw)[rule.text] == "hm"
    assert b"c2ln" not in found.raw


@pytest.mark.parametrize("rule", [TAKES_THINKING_BLOCKS, AS_SENT])
def test_only_the_text_of_a_foreign_signed_block_is_sent(rule):
    raw = written(content=[BLOCK | {"signature": "c2ln"}, {"type": "text", "text": "Hi."}])
    found = fit_reasoning(raw, rule, is_foreign=True)

    assert found.lost == "content"
    assert b"c2ln" not in found.raw
    assert b'"hm"' in found.raw
    assert fit_reasoning(raw, rule) == FittedReasoning(raw)


@pytest.mark.parametrize("rule", [TAKES_DETAILS, AS_SENT])
@pytest.mark.parametrize("kind", ["thinking", "redacted_thinking"])
def test_signed_blocks_of_claude_are_sent_only_if_accepted(rule, kind):
    raw = written(reasoning="hm", reasoning_details=[{"type": kind, "data": "eA=="}])

    assert fit_reasoning(raw, rule).lost == "reasoning_details"
    assert b"eA==" not in fit_reasoning(raw, rule).raw
    assert fit_reasoning(raw, replace(rule, signed_blocks=True)) == FittedReasoning(raw)


@pytest.mark.parametrize(
    ("fields", "filled"),
    [
        ({"tool_calls": [CALL]}, True),
        ({"tool_calls": [CALL], "reasoning_content": ""}, True),
        ({"tool_calls": [CALL], "reasoning_content": "hm"}, False),
        ({"tool_calls": [CALL], "reasoning": "hm"}, False),
        ({"tool_calls": []}, False),
        ({"tool_calls": None}, False),
        ({}, False),
    ],
)
def test_a_foreign_call_gets_blank_reasoning_if_required(fields, filled):
    raw = written(**fields)
    found = fit_reasoning(raw, NEEDS_REASONING_CONTENT, is_foreign=True)

    assert found.filled == filled
    assert (json.loads(found.raw).get("reasoning_content") == " ") == filled
    assert not fit_reasoning(raw, NEEDS_REASONING_CONTENT).filled
    assert not fit_reasoning(raw, TAKES_REASONING_CONTENT, is_foreign=True).filled


JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.sampled_from(["", "hm", "thinking", "text"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "text", "thinking", "signature", "data", "index", "id"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)


@given(
    st.sampled_from(list(RULES.values())),
    st.dictionaries(
        st.sampled_from(
            ["reasoning", "reasoning_content", "reasoning_details", "content", "tool_calls"]
        ),
        JUNK,
    ),
    st.booleans(),
)
def test_any_message_is_fitted_and_a_second_time_unchanged(rule, fields, is_foreign):
    found = fit_reasoning(written(**fields), rule, is_foreign=is_foreign)
    again = fit_reasoning(found.raw, rule, is_foreign=is_foreign)
    said = json.loads(found.raw)

    assert again.raw == found.raw
    assert again.lost is None
    assert {key for key in said if key.startswith("reasoning")} <= rule.fields
    assert said["role"] == "assistant"


class TestStreamedThinking:
    def test_blocks_and_texts_keep_their_order(self):
        texts: list[str] = []
        thinking = StreamedThinking()
        texts.append("So ")
        thinking.add({"type": "thinking", "thinking": [{"type": "text", "text": "h"}]}, before=1)
        more = [{"type": "text", "text": "m"}, {"type": "reference"}, {"text": "!"}]
        thinking.add({"type": "thinking", "thinking": more, "signature": "c2ln"}, before=1)
        texts += ["it ", "rains."]
        thinking.add(BLOCK, before=3)

        assert thinking.whole(texts) == [
            {"type": "text", "text": "So "},
            {
                "type": "thinking",
                "thinking": [
                    {"type": "text", "text": "hm"},
                    {"type": "reference"},
                    {"type": "text", "text": "!"},
                ],
                "signature": "c2ln",
            },
            {"type": "text", "text": "it rains."},
            BLOCK,
        ]

    def test_a_content_without_thinking_has_no_blocks(self):
        assert StreamedThinking().whole(["Hi."]) == []


class TestStreamedDetails:
    def test_pieces_with_the_same_index_are_joined(self):
        details = StreamedDetails()
        details.add([{"type": "reasoning.text", "text": "h", "signature": None, "index": 0}])
        details.add([{"type": "reasoning.text", "text": "m", "id": "a", "index": 0}])
        details.add([{"type": "reasoning.summary", "summary": "s", "index": 0}, SEALED, SEALED])
        details.add([{"type": "reasoning.text", "signature": "c2ln", "index": 0}])
        details.add([{"type": "reasoning.summary", "summary": "o", "index": 0}])
        details.add([{"type": "reasoning.text", "text": "!", "index": 2}])

        assert details.whole() == [
            {"type": "reasoning.text", "text": "hm", "signature": "c2ln", "id": "a", "index": 0},
            {"type": "reasoning.summary", "summary": "so", "index": 0},
            SEALED,
            SEALED,
            {"type": "reasoning.text", "text": "!", "index": 2},
        ]

    def test_a_piece_without_an_index_belongs_to_the_last_item(self):
        details = StreamedDetails()
        details.add([{"type": "reasoning.text", "text": "h"}, {"type": "reasoning.text"}])
        details.add([{"type": "reasoning.text", "text": "m"}, SEALED])
        details.add([{"type": "reasoning.text", "text": "!"}])

        assert details.whole() == [
            {"type": "reasoning.text", "text": "hm"},
            SEALED,
            {"type": "reasoning.text", "text": "!"},
        ]

    def test_pieces_with_different_ids_are_separate_items(self):
        details = StreamedDetails()
        first, second = TEXT | {"id": "a"}, TEXT | {"id": "b"}
        details.add([first, second])

        assert details.whole() == [first, second]

    @given(st.lists(JUNK, max_size=6))
    def test_whole_details_and_invalid_values_are_unchanged(self, junk):
        odd = [item for item in junk if not (isinstance(item, dict) and "type" in item)]
        details = StreamedDetails()
        details.add([SIGNED, *odd, SEALED])

        assert details.whole() == [SIGNED, *odd, SEALED]

    @given(st.lists(st.lists(JUNK, max_size=3), max_size=4))
    def test_invalid_values_are_no_error(self, chunks):
        details = StreamedDetails()
        for chunk in chunks:
            details.add(chunk)
        json.dumps(details.whole())

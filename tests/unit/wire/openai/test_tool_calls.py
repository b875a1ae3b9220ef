"""Tool calls of servers that omit ids and indexes, repeat an index, or send objects."""

from typing import Any

import pytest

from cllm.core.reply import PartAdded, ReplyEvent, ToolCallDelta
from cllm.wire.errors import MalformedError
from cllm.wire.openai.tool_calls import (
    CallPiece,
    Function,
    ToolCallBuilder,
    call_events,
    extended_piece,
    make_call_id,
    repair_calls,
)


def piece(index: int | None = None, call_id: str | None = None, **function: Any) -> CallPiece:
    return CallPiece(index=index, id=call_id, function=Function(**function))


def build(*pieces: CallPiece, **names: str) -> tuple[list[dict[str, Any]], list[ReplyEvent]]:
    builder, events = ToolCallBuilder(names), list[ReplyEvent]()
    for one in pieces:
        builder.add(one, events)
    return builder.fields(), events


def functions(calls: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    return [(c["id"], c["function"]["name"], c["function"]["arguments"]) for c in calls]


def test_pieces_with_one_index_are_one_call():
    calls, events = build(
        piece(0, "a", name="f"), piece(0, arguments='{"x"'), piece(0, arguments=":1}")
    )

    assert functions(calls) == [("a", "f", '{"x":1}')]
    assert [event.index for event in events if isinstance(event, ToolCallDelta)] == [0, 0, 0]


def test_a_missing_id_is_generated_and_the_alias_is_replaced():
    calls, events = build(piece(0, name="f_1", arguments="{}"), f_1="my.f")

    call_id = make_call_id(b"", 0)
    assert functions(calls) == [(call_id, "my.f", "{}")]
    assert events == [ToolCallDelta(index=0, id=call_id, name="my.f", arguments="{}")]


def test_calls_without_ids_have_different_ids_in_every_reply():
    ids = {make_call_id(reply, index) for reply in (b"a", b"b") for index in (0, 1)}

    assert len(ids) == 4
    assert make_call_id(b"a", 0) in ids
    assert all(len(call_id) <= 40 for call_id in ids)


def test_equal_indexes_with_new_ids_are_separate_calls():
    calls, _ = build(
        piece(0, "a", name="f", arguments='{"x":1}'), piece(0, "b", name="f", arguments='{"x":2}')
    )

    assert functions(calls) == [("a", "f", '{"x":1}'), ("b", "f", '{"x":2}')]


def test_a_name_after_complete_arguments_starts_a_call():
    calls, _ = build(
        piece(0, name="f", arguments='{"x":1}'), piece(0, name="g", arguments='{"y":2}')
    )

    assert [name for _, name, _ in functions(calls)] == ["f", "g"]


def test_a_repeated_name_within_arguments_continues_the_call():
    calls, _ = build(piece(0, "a", name="f", arguments='{"x"'), piece(0, name="f", arguments=":1}"))

    assert functions(calls) == [("a", "f", '{"x":1}')]


def test_a_piece_without_index_is_assigned_by_its_id():
    calls, _ = build(
        piece(None, "a", name="f"), piece(None, "b", name="g"), piece(None, "a", arguments="{}")
    )

    assert functions(calls) == [("a", "f", "{}"), ("b", "g", "{}")]


def test_arguments_sent_as_an_object_become_text():
    calls, _ = build(piece(0, "a", name="f", arguments={"x": 1}))

    assert functions(calls) == [("a", "f", '{"x":1}')]


def test_a_custom_call_is_preserved():
    fields = {"index": 0, "id": "a", "type": "custom", "custom": {"name": "sql", "input": "SELECT"}}
    more = {"index": 0, "custom": {"input": " 1"}}

    calls, events = build(extended_piece(fields), extended_piece(more))

    assert calls == [{"id": "a", "type": "custom", "custom": {"name": "sql", "input": "SELECT 1"}}]
    assert all(isinstance(event, PartAdded) for event in events)


def test_extra_fields_of_a_function_call_are_preserved():
    fields = {"index": 0, "id": "a", "function": {"name": "f"}, "signature": "s"}

    calls, events = build(extended_piece(fields))

    assert calls[0]["signature"] == "s"
    assert [type(event) for event in events] == [ToolCallDelta, PartAdded]


def test_whole_calls_are_one_event_each():
    events = list(
        call_events(
            [
                {"id": "a", "type": "function", "function": {"name": "f", "arguments": {"x": 1}}},
                {"id": "b", "type": "custom", "custom": {"name": "sql"}},
            ]
        )
    )

    assert events[0] == ToolCallDelta(index=0, id="a", name="f", arguments='{"x":1}')
    assert isinstance(events[1], PartAdded)
    assert list(call_events(None)) == []


@pytest.mark.parametrize("value", ["x", [1], [{"function": 1}]])
def test_invalid_calls_are_malformed(value):
    with pytest.raises(MalformedError, match="tool call"):
        list(call_events(value))


def test_calls_of_a_whole_answer_are_repaired():
    message = {"tool_calls": [{"function": {"name": "f_1", "arguments": {"x": 1}}}, "junk"]}

    assert repair_calls(message, {"f_1": "my.f"}, reply=b"{}") is True
    assert message["tool_calls"][0] == {
        "id": make_call_id(b"{}", 0),
        "function": {"name": "my.f", "arguments": '{"x":1}'},
    }


def test_valid_calls_are_not_changed():
    message = {
        "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": "{}"}}, {"id": "b"}]
    }

    assert repair_calls(message, {}) is False
    assert repair_calls({"tool_calls": None}, {}) is False

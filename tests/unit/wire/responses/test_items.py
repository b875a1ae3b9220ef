"""The items of a stream while they are built."""

from typing import Any

import pytest

from cllm.wire.responses.items import ContentBlock, StreamedItem


def make_item(kind: str, *pieces: str, **fields: Any) -> dict[str, Any]:
    item = StreamedItem(kind=kind, output_index=0, id="x_1", index=0, pieces=list(pieces), **fields)
    return item.fields("completed")


def test_a_message():
    blocks = [
        ContentBlock(kind="output_text", index=0, pieces=["Hel", "lo"]),
        ContentBlock(kind="refusal", index=1, pieces=["No."]),
    ]

    assert make_item("message", blocks=blocks) == {
        "id": "x_1",
        "type": "message",
        "status": "completed",
        "role": "assistant",
        "content": [
            {"type": "output_text", "text": "Hello", "annotations": [], "logprobs": []},
            {"type": "refusal", "refusal": "No."},
        ],
    }


@pytest.mark.parametrize(
    ("pieces", "encrypted", "summary", "has_content"),
    [(("Hm", "."), [], [{"type": "summary_text", "text": "Hm."}], False), ((), ["s"], [], True)],
)
def test_reasoning(pieces, encrypted, summary, has_content):
    item = make_item("reasoning", *pieces, encrypted=encrypted)

    assert item["summary"] == summary
    assert ("encrypted_content" in item) is has_content


def test_calls():
    call = make_item("function_call", "{", "}", call_id="c", name="look")
    custom = make_item("custom_tool_call", '{"input":', '"-a"}', call_id="c", name="patch")

    assert (call["arguments"], call["status"]) == ("{}", "completed")
    assert custom == {
        "id": "x_1",
        "type": "custom_tool_call",
        "call_id": "c",
        "name": "patch",
        "input": "-a",
    }

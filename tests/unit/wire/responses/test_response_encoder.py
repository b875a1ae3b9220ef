"""Replies encoded for clients of the Responses API, whole and streamed."""

import json
from typing import Any

import pytest

from cllm.core.message import (
    Image,
    RedactedThinking,
    Refusal,
    Text,
    Thinking,
    ToolCall,
    Unknown,
    plain_message,
)
from cllm.core.notice import Notice
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
from cllm.wire.responses.response_encoder import (
    ResponsesStreamEncoder,
    encode_answer,
    visible_part,
)
from cllm.wire.responses.response_fields import ResponseFields
from cllm.wire.sse import SseDecoder

FIELDS = ResponseFields(id="resp_1", model="m", created=7, parameters={"temperature": 0.5})
FINISHED = ReplyFinished(message=plain_message("assistant", "Hi"), stop_reason="end")
ITEM = Unknown(dialect="responses", raw=b'{"type":"web_search_call","id":"ws_1"}', field="items")


def stream(*events: ReplyEvent) -> list[dict[str, Any]]:
    encoder = ResponsesStreamEncoder(FIELDS)
    data = b"".join(map(encoder.encode, events))
    return [json.loads(event.data) for event in SseDecoder().feed(data)]


def types(events: list[dict[str, Any]]) -> list[str]:
    return [event["type"].removeprefix("response.") for event in events]


def output(*events: ReplyEvent) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = stream(*events, FINISHED)[-1]["response"]["output"]
    return items


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (Text(text="a", extra={"odd": 1}), Text(text="a")),
        (ToolCall(id="c", name="f", arguments=""), ToolCall(id="c", name="f", arguments="{}")),
        (Thinking(text="t", extra={"odd": 1}), Thinking(text="t")),
        (ITEM, ITEM),
        (Unknown(dialect="anthropic", raw=b"{}"), None),
        (Image(url="https://x/y"), None),
    ],
)
def test_clients_receive_only_parts_of_this_api(part, expected):
    assert visible_part(part) == expected


def test_a_whole_answer_has_items_and_the_clients_parameters():
    parts = (
        Thinking(text="hm"),
        Text(text="a"),
        Refusal(text="no"),
        ToolCall(id="c", name="f", arguments=""),
    )

    body = json.loads(encode_answer(parts, stop_reason="length", usage=None, heading=FIELDS))

    assert [item["type"] for item in body["output"]] == ["reasoning", "message", "function_call"]
    assert [item["id"] for item in body["output"]] == ["rs_cllm_1_0", "msg_1_0", "fc_1_0"]
    assert body["output"][2]["status"] == body["status"] == "incomplete"
    assert (body["temperature"], body["truncation"]) == (0.5, "disabled")


def test_an_empty_answer_has_an_empty_message():
    body = json.loads(encode_answer((), stop_reason="end", usage=None, heading=FIELDS))

    assert body["output"][0]["content"][0]["text"] == ""


def test_text_is_streamed_and_repeated_when_it_is_done():
    events = stream(TextDelta(text="H"), TextDelta(text="i"), FINISHED)

    assert types(events) == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    assert [event["sequence_number"] for event in events] == list(range(10))
    assert events[6]["text"] == "Hi"


def test_interleaved_calls_stay_open_to_the_end():
    first, second = output(
        ToolCallDelta(index=0, id="a", name="f"),
        ToolCallDelta(index=1, id="b", name="g"),
        ToolCallDelta(index=0, arguments='{"x":1}'),
    )

    assert (first["call_id"], first["arguments"]) == ("a", '{"x":1}')
    assert (second["call_id"], second["arguments"]) == ("b", "{}")


def test_thinking_has_a_summary_and_its_signature():
    (item, _) = output(ThinkingDelta(text="hm"), ThinkingDelta(signature="s"), TextDelta(text="a"))

    assert item["summary"] == [{"type": "summary_text", "text": "hm"}]
    assert item["encrypted_content"] == "s"


def test_whole_parts_are_items():
    items = output(
        PartAdded(part=Text(text="a", extra={"annotations": [{"type": "url_citation"}]})),
        PartAdded(part=RedactedThinking(data="x", extra={"id": "rs_9"}), index=1),
        PartAdded(part=ITEM, index=2),
        PartAdded(part=Refusal(text="no"), index=3),
        PartAdded(part=Image(url="https://x/y"), index=4),
    )

    assert [item["type"] for item in items] == [
        "message",
        "reasoning",
        "web_search_call",
        "message",
    ]
    assert items[0]["content"][0]["annotations"] == [{"type": "url_citation"}]
    assert items[1]["id"] == "rs_9"


def test_a_refusal_with_text_is_completed():
    refused = ReplyFinished(message=plain_message("assistant", ""), stop_reason="refusal")

    assert types(stream(RefusalDelta(text="no"), refused))[-1] == "completed"
    assert types(stream(refused))[-1] == "incomplete"


def test_nothing_follows_an_error_and_notices_are_not_sent():
    encoder = ResponsesStreamEncoder(FIELDS)
    notice = Noticed(notice=Notice(code="c", path="p", message="m"))

    assert encoder.encode(notice) == b""
    assert b'"code":"x"' in encoder.error("no", type="t", code="x")
    assert encoder.error("no", type="t") == encoder.encode(TextDelta(text="a")) == b""

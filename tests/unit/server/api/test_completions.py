"""The response encoder of chat completions: tools, and the older functions."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from cllm.core.message import Message
from cllm.core.reply import ReplyFinished, ToolCallDelta
from cllm.server.api.completions import OpenAIResponseEncoder

FUNCTION = {"name": "find", "parameters": {"type": "object"}}
CALL = {"name": "find", "arguments": '{"a":1}'}
CALLED = Message(
    role="assistant",
    dialect="anthropic",
    raw=b'{"role":"assistant","content":'
    b'[{"type":"tool_use","id":"toolu_1","name":"find","input":{"a":1}}]}',
)
FINISHED = ReplyFinished(message=CALLED, stop_reason="tool_calls")


def make_encoder(**parameters: Any) -> OpenAIResponseEncoder:
    return OpenAIResponseEncoder(
        model="m",
        new_id=lambda: "x",
        clock=lambda: datetime(2026, 11, 15, tzinfo=UTC),
        parameters=parameters,
    )


def stream_choices(encoder: OpenAIResponseEncoder) -> list[dict[str, Any]]:
    delta = ToolCallDelta(index=0, id="toolu_1", name="find", arguments='{"a":1}')
    sent = (encoder.encode_event(delta) + encoder.encode_event(FINISHED)).decode()
    events = [line.removeprefix("data: ") for line in sent.split("\n\n")]
    return [json.loads(data)["choices"][0] for data in events if data.startswith("{")]


@pytest.mark.parametrize(
    ("parameters", "field", "reason"),
    [
        ({"functions": [FUNCTION]}, "function_call", "function_call"),
        ({"tools": [{"type": "function", "function": FUNCTION}]}, "tool_calls", "tool_calls"),
    ],
)
class TestFunctionCalls:
    def test_a_streamed_call_uses_the_format_of_the_request(self, parameters, field, reason):
        first, *_, last = stream_choices(make_encoder(**parameters))

        assert set(first["delta"]) == {"role", field}
        assert last["finish_reason"] == reason

    def test_a_whole_response_uses_the_format_of_the_request(self, parameters, field, reason):
        (choice,) = json.loads(make_encoder(**parameters).encode_response(FINISHED))["choices"]

        calls = choice["message"][field]
        assert (calls if field == "function_call" else calls[0]["function"]) == CALL
        assert choice["finish_reason"] == reason

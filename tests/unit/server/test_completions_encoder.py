"""How a protocol answers, in the words that its client asked in."""

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


def encoder(**parameters: Any) -> OpenAIResponseEncoder:
    return OpenAIResponseEncoder(
        model="m",
        new_id=lambda: "x",
        clock=lambda: datetime(2026, 11, 15, tzinfo=UTC),
        parameters=parameters,
    )


def streamed(made: OpenAIResponseEncoder) -> list[dict[str, Any]]:
    begun = ToolCallDelta(index=0, id="toolu_1", name="find", arguments='{"a":1}')
    sent = (made.encode_event(begun) + made.encode_event(FINISHED)).decode()
    datas = [line.removeprefix("data: ") for line in sent.split("\n\n")]
    return [json.loads(data)["choices"][0] for data in datas if data.startswith("{")]


@pytest.mark.parametrize(
    ("offered", "field", "reason"),
    [
        ({"functions": [FUNCTION]}, "function_call", "function_call"),
        ({"tools": [{"type": "function", "function": FUNCTION}]}, "tool_calls", "tool_calls"),
    ],
)
class TestOpenAI:
    def test_a_streamed_call_is_in_the_words_of_the_offer(self, offered, field, reason):
        first, *_, last = streamed(encoder(**offered))

        assert set(first["delta"]) == {"role", field}
        assert last["finish_reason"] == reason

    def test_a_whole_answer_is_in_the_words_of_the_offer(self, offered, field, reason):
        (choice,) = json.loads(encoder(**offered).encode_response(FINISHED))["choices"]

        called = choice["message"][field]
        assert (called if field == "function_call" else called[0]["function"]) == CALL
        assert choice["finish_reason"] == reason

"""The processor time of an answer grows with its length, and never with the square of its length.

Each dimension is one thing of which a provider can stream much. Half of the size and twice the size
are compared, for a client of each protocol.
"""

import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Any

import pytest
import pytest_asyncio
from tests.cpu_growth import (
    MAX_LINEAR_GROWTH,
    MODELS,
    RESPONSE,
    STREAM,
    MeasuredServer,
    encode_sse,
    start_measured_server,
)
from tests.fake_provider import event_frame

pytestmark = pytest.mark.asyncio(loop_scope="module")

Event = dict[str, Any]
Make = Callable[[int], bytes]
DIMENSIONS: dict[str, tuple[str, Make, int]] = {}
FRAMES = "application/vnd.amazon.eventstream"
JSON = "application/json"
LONG = "x" * 200
WAYS: dict[str, Mapping[str, str]] = {"chat": {}, "messages": {"X-Conversation-ID": ""}}
"""The clients, one of a stateless turn and one of a saved one, by their headers."""


def streamed(size: int) -> Callable[[Callable[[int], Iterable[Any]]], None]:
    """A dimension of a provider's stream: the events between its beginning and its end."""

    def register(make: Callable[[int], Iterable[Any]]) -> None:
        provider = make.__name__.partition("_")[0]
        write = WRITERS[provider]
        DIMENSIONS[make.__name__] = (provider, lambda n: write(make(n)), size)

    return register


def write_chat(deltas: Iterable[Event]) -> bytes:
    chunks = ({"choices": [{"index": 0, "delta": delta}]} for delta in deltas)
    last = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    return encode_sse(*chunks, last, "[DONE]")


def write_anthropic(events: Iterable[Event]) -> bytes:
    usage = {"input_tokens": 1, "output_tokens": 1}
    message = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": []}
    return encode_sse(
        {"type": "message_start", "message": {**message, "usage": usage}},
        *events,
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage},
        {"type": "message_stop"},
    )


def write_bedrock(events: Iterable[tuple[str, Event]]) -> bytes:
    frames = [event_frame(name, event) for name, event in events]
    return b"".join((*frames, event_frame("messageStop", {"stopReason": "end_turn"})))


def write_responses(events: Iterable[Event]) -> bytes:
    return encode_sse(*events, {"type": "response.completed", "response": RESPONSE})


WRITERS: dict[str, Callable[[Iterable[Any]], bytes]] = {
    "chat": write_chat,
    "anthropic": write_anthropic,
    "bedrock": write_bedrock,
    "responses": write_responses,
}


def piece(index: int, arguments: str, **more: Any) -> Event:
    return {"tool_calls": [{"index": index, "function": {"arguments": arguments}, **more}]}


def begun(index: int, arguments: str = "", call_id: str | None = None) -> Event:
    function = {"name": "t", "arguments": arguments}
    call = {"index": index, "id": call_id or f"c{index}", "type": "function", "function": function}
    return {"tool_calls": [call]}


def block(index: int, start: Event, *deltas: Event) -> list[Event]:
    at = {"index": index}
    return [
        {"type": "content_block_start", **at, "content_block": start},
        *({"type": "content_block_delta", **at, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", **at},
    ]


def frames(*deltas: Event, index: int = 0, start: Event | None = None) -> list[tuple[str, Event]]:
    at = {"contentBlockIndex": index}
    opening = [] if start is None else [("contentBlockStart", {**at, "start": start})]
    said = [("contentBlockDelta", {**at, "delta": delta}) for delta in deltas]
    return [*opening, *said, ("contentBlockStop", at)]


@streamed(800)
def chat_texts(n: int) -> list[Event]:
    return [{"content": "word "}] * n


@streamed(800)
def chat_thoughts(n: int) -> list[Event]:
    return [{"reasoning_content": "word "}] * n


@streamed(800)
def chat_pieces_of_a_call(n: int) -> list[Event]:
    return [begun(0, '{"a":"'), *[piece(0, "word ")] * n, piece(0, '"}')]


@streamed(400)
def chat_calls(n: int) -> list[Event]:
    return [begun(index, "{}") for index in range(n)]


@streamed(800)
def chat_calls_of_one_number(n: int) -> list[Event]:
    return [begun(0, "{}", f"c{number}") for number in range(n)]


@streamed(250)
def chat_calls_by_turns(n: int) -> list[Event]:
    indexes = range(n)
    return [*(begun(i, '{"a":') for i in indexes), *(piece(i, "1}") for i in indexes)]


@streamed(800)
def chat_pieces_behind_a_call_that_seems_whole(n: int) -> list[Event]:
    return [begun(0, '{"a":"' + "}" * 50 * n), begun(1, '{"a":"'), *[piece(1, "}")] * n]


@streamed(1500)
def chat_pieces_that_repeat_a_name(n: int) -> list[Event]:
    function = {"name": "t", "arguments": "}" * 50}
    return [begun(0, '{"a":"'), *[{"tool_calls": [{"index": 0, "function": function}]}] * n]


@streamed(4000)
def chat_pieces_of_a_function_call(n: int) -> list[Event]:
    return [{"function_call": {"name": "t"}}, *[{"function_call": {"arguments": LONG}}] * n]


@streamed(3000)
def chat_details(n: int) -> list[Event]:
    return [{"reasoning_details": [{"type": "x", "text": "y"}]}] * n


@streamed(800)
def chat_fields_without_a_name(n: int) -> list[Event]:
    return [{"content": "a", f"x{number}": [1]} for number in range(n)]


def write_choices(n: int) -> bytes:
    choices = [{"index": number, "delta": {"content": "a"}} for number in range(n)]
    return encode_sse({"choices": choices}) + write_chat([{"content": "b"}])


def write_one_text(n: int) -> bytes:
    return write_chat([{"content": "a b " * n}])


DIMENSIONS["chat_choices_in_one_chunk"] = ("chat", write_choices, 500)
DIMENSIONS["chat_characters_of_one_chunk"] = ("chat", write_one_text, 100_000)


@streamed(800)
def anthropic_texts(n: int) -> list[Event]:
    return block(0, {"type": "text", "text": ""}, *[{"type": "text_delta", "text": "word "}] * n)


@streamed(4000)
def anthropic_pieces_of_a_signature(n: int) -> list[Event]:
    pieces = [{"type": "signature_delta", "signature": LONG}] * n
    return block(0, {"type": "thinking", "thinking": ""}, *pieces)


@streamed(800)
def anthropic_pieces_of_an_input(n: int) -> list[Event]:
    start = {"type": "tool_use", "id": "c", "name": "t", "input": {}}
    pieces = [{"type": "input_json_delta", "partial_json": "1,"}] * n
    return block(0, start, {"type": "input_json_delta", "partial_json": '{"a":['}, *pieces)


@streamed(300)
def anthropic_blocks(n: int) -> list[Event]:
    start = {"type": "text", "text": ""}
    delta = {"type": "text_delta", "text": "a"}
    return [event for index in range(n) for event in block(index, start, delta)]


@streamed(3000)
def anthropic_pieces_of_an_unknown_list(n: int) -> list[Event]:
    return block(0, {"type": "novel"}, *[{"type": "novel_delta", "found": [{"a": 1}]}] * n)


@streamed(800)
def bedrock_texts(n: int) -> list[tuple[str, Event]]:
    return frames(*[{"text": "word "}] * n)


@streamed(4000)
def bedrock_pieces_of_a_signature(n: int) -> list[tuple[str, Event]]:
    return frames(
        {"reasoningContent": {"text": "a"}}, *[{"reasoningContent": {"signature": LONG}}] * n
    )


@streamed(800)
def bedrock_pieces_of_an_input(n: int) -> list[tuple[str, Event]]:
    start = {"toolUse": {"toolUseId": "c", "name": "t"}}
    return frames(
        {"toolUse": {"input": '{"a":['}}, *[{"toolUse": {"input": "1,"}}] * n, start=start
    )


@streamed(400)
def bedrock_blocks(n: int) -> list[tuple[str, Event]]:
    return [event for index in range(n) for event in frames({"text": "a"}, index=index)]


@streamed(800)
def responses_texts(n: int) -> list[Event]:
    return [{"type": "response.output_text.delta", "delta": "word "}] * n


@streamed(800)
def responses_pieces_of_thinking(n: int) -> list[Event]:
    return [{"type": "response.reasoning_summary_text.delta", "delta": "word "}] * n


@streamed(400)
def responses_items(n: int) -> list[Event]:
    item = {"type": "function_call", "name": "t", "arguments": "{}"}
    return [
        {
            "type": "response.output_item.done",
            "output_index": index,
            "item": {**item, "call_id": f"c{index}"},
        }
        for index in range(n)
    ]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scaled(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[MeasuredServer]:
    async with start_measured_server(tmp_path_factory.mktemp("scaled")) as server:
        yield server


@pytest.mark.parametrize("name", list(DIMENSIONS))
async def test_the_time_of_a_stream_grows_with_its_length(scaled: MeasuredServer, name: str):
    provider, make, size = DIMENSIONS[name]
    scaled.http.content_type = FRAMES if provider == "bedrock" else STREAM
    found = {}
    for client, headers in WAYS.items():
        asked = {"model": MODELS[provider], "messages": [{"role": "user", "content": "Hello"}]}
        request = json.dumps({**asked, "max_tokens": 99, "stream": True}).encode()

        async def send(
            body: bytes,
            client: str = client,
            request: bytes = request,
            headers: Mapping[str, str] = headers,
        ) -> Any:
            scaled.http.body = body
            answer = await scaled.send(client, request, headers)
            assert b'"error":' not in answer.content
            return answer

        found[client] = await scaled.growth(make(size // 2), make(2 * size), send)

    assert {client: growth for client, growth in found.items() if growth > MAX_LINEAR_GROWTH} == {}

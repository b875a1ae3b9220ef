"""Answers of providers, chunk by chunk: steps for the fake provider in each protocol.

For shapes that `Reply` of the fake provider has no field for. Nothing is checked here, so a test
can send invalid answers.
"""

import json
from typing import Any

from tests.fake_provider import Head, Send, Step, event_frame, response_steps

Json = dict[str, Any]
SSE = Head(headers={"Content-Type": "text/event-stream"}, chunked=True)
FRAMES = Head(headers={"Content-Type": "application/vnd.amazon.eventstream"}, chunked=True)
COUNTED = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}


def in_packets(steps: tuple[Step, ...], size: int) -> tuple[Step, ...]:
    """The same bytes in packets of that size, which end wherever they end."""
    head, *sends = steps
    data = b"".join(step.data for step in sends if isinstance(step, Send))
    return (head, *(Send(data[at : at + size]) for at in range(0, len(data), size)))


def openai_stream(
    *deltas: Json, finish: str | None = "stop", usage: Json | None = COUNTED
) -> tuple[Step, ...]:
    """Chunks of these deltas, the finish reason, the usage, `[DONE]`."""
    frame = {"id": "chatcmpl-9", "object": "chat.completion.chunk", "created": 9, "model": "gpt"}
    choices: list[Json] = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    choices.append({"index": 0, "delta": {}, "finish_reason": finish})
    chunks: list[Json] = [frame | {"choices": [choice]} for choice in choices]
    if usage is not None:
        chunks.append(frame | {"choices": [], "usage": usage})
    lines = [json.dumps(chunk, ensure_ascii=False) for chunk in chunks]
    return (SSE, *(Send(f"data: {line}\n\n".encode()) for line in (*lines, "[DONE]")))


def openai_call(index: int, arguments: str = "", **first: str | None) -> Json:
    """A delta of one tool call; `id` and `name` with its first piece."""
    function: Json = {"arguments": arguments}
    function |= {"name": first["name"]} if "name" in first else {}
    named = {"id": first["id"], "type": "function"} if "id" in first else {}
    return {"tool_calls": [{"index": index, **named, "function": function}]}


def openai_whole(message: Json, finish: str | None = "stop", usage: Any = None) -> tuple[Step, ...]:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    body = {"id": "c", "object": "chat.completion", "created": 9, "model": "gpt"}
    counts = {} if usage is None else {"usage": usage}
    return response_steps(200, json.dumps(body | {"choices": [choice]} | counts).encode())


def sse(*events: Json) -> tuple[Step, ...]:
    """Anthropic's events by their types, as they are given."""
    frames = [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events]
    return (SSE, *(Send(text.encode()) for text in frames))


def anthropic_head(usage: Any = None) -> Json:
    message: Json = {
        "id": "msg_9",
        "type": "message",
        "role": "assistant",
        "model": "claude",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage or {"input_tokens": 11, "output_tokens": 1},
    }
    return {"type": "message_start", "message": message}


def anthropic_block(index: int, block: Json, *deltas: Json) -> list[Json]:
    """A block from its start to its stop."""
    at = {"index": index}
    return [
        {"type": "content_block_start", **at, "content_block": block},
        *({"type": "content_block_delta", **at, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", **at},
    ]


def anthropic_stream(
    *blocks: list[Json], stop: Any = "end_turn", usage: Any = None, **ending: Any
) -> tuple[Step, ...]:
    delta = {"stop_reason": stop, "stop_sequence": None} | ending
    end = {"type": "message_delta", "delta": delta, "usage": usage or {"output_tokens": 7}}
    inner = [event for block in blocks for event in block]
    return sse(anthropic_head(), {"type": "ping"}, *inner, end, {"type": "message_stop"})


def anthropic_whole(*content: Json, stop: Any = "end_turn", usage: Any = None) -> tuple[Step, ...]:
    message = anthropic_head(usage)["message"]
    return response_steps(
        200, json.dumps(message | {"content": content, "stop_reason": stop}).encode()
    )


def text_block(index: int, text: str) -> list[Json]:
    return anthropic_block(
        index, {"type": "text", "text": ""}, {"type": "text_delta", "text": text}
    )


def tool_block(index: int, *pieces: str, call: str = "toolu_1", name: str = "f") -> list[Json]:
    start = {"type": "tool_use", "id": call, "name": name, "input": {}}
    deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
    return anthropic_block(index, start, *deltas)


def thinking_block(index: int, *pieces: str, signature: str = "sig") -> list[Json]:
    deltas = [{"type": "thinking_delta", "thinking": piece} for piece in pieces]
    start = {"type": "thinking", "thinking": "", "signature": ""}
    signed = {"type": "signature_delta", "signature": signature}
    return anthropic_block(index, start, *deltas, signed)


def converse_block(index: int, *deltas: Json, start: Json | None = None) -> list[tuple[str, Json]]:
    """A block of a Converse stream; text and reasoning have no start event."""
    at = {"contentBlockIndex": index}
    begun = [] if start is None else [("contentBlockStart", at | {"start": start})]
    frames = [("contentBlockDelta", at | {"delta": delta}) for delta in deltas]
    return [*begun, *frames, ("contentBlockStop", at)]


def converse_tool(index: int, *pieces: str, call: str = "tooluse_1") -> list[tuple[str, Json]]:
    deltas = [{"toolUse": {"input": piece}} for piece in pieces]
    return converse_block(index, *deltas, start={"toolUse": {"toolUseId": call, "name": "f"}})


def converse_stream(
    *blocks: list[tuple[str, Json]],
    stop: str = "end_turn",
    usage: Json | None = None,
    fields: Json | None = None,
) -> tuple[Step, ...]:
    counts = usage or {"inputTokens": 11, "outputTokens": 7, "totalTokens": 18}
    more = {} if fields is None else {"additionalModelResponseFields": fields}
    events = [
        ("messageStart", {"role": "assistant"}),
        *(event for block in blocks for event in block),
        ("messageStop", {"stopReason": stop, **more}),
        ("metadata", {"usage": counts, "metrics": {"latencyMs": 1}}),
    ]
    return (FRAMES, *(Send(event_frame(name, event)) for name, event in events))


def converse_whole(
    *content: Json,
    stop: str = "end_turn",
    usage: Json | None = None,
    fields: Json | None = None,
) -> tuple[Step, ...]:
    counts = usage or {"inputTokens": 11, "outputTokens": 7, "totalTokens": 18}
    message = {"role": "assistant", "content": content}
    body: Json = {"output": {"message": message}, "stopReason": stop, "usage": counts}
    body |= {} if fields is None else {"additionalModelResponseFields": fields}
    return response_steps(200, json.dumps(body | {"metrics": {"latencyMs": 1}}).encode())

"""Sample requests and streams for `wire.py`: a long conversation with tools, and streamed replies.

An agent at an airline's desk: a question, two parallel tool calls, results of about 1 KB of JSON, a
reply. The content is the same in every run: nothing is random or read from a file.
"""

import json
import struct
import zlib
from collections.abc import Iterator
from typing import Any, Literal

Client = Literal["openai", "anthropic"]
Protocol = Literal["openai", "anthropic", "bedrock"]
Kind = Literal["text", "thinking", "arguments"]
Fields = dict[str, Any]

CLIENTS: tuple[Client, ...] = ("openai", "anthropic")
PROTOCOLS: tuple[Protocol, ...] = ("openai", "anthropic", "bedrock")
KINDS: tuple[Kind, ...] = ("text", "thinking", "arguments")
MODELS: dict[Protocol, str] = {
    "openai": "gpt-4o",
    "anthropic": "claude-sonnet-4-5-20250929",
    "bedrock": "claude-sonnet-4-5-20250929",
}
MESSAGES = 200
# A question, two calls, their results and a reply. The results are two messages in OpenAI's
# protocol and one in Anthropic's.
MESSAGES_PER_EXCHANGE: dict[Client, int] = {"openai": 5, "anthropic": 4}
RULES = (
    "Confirm what you are about to change, and wait for a yes.\n"
    "Never promise a refund that the fare's rules do not give.\n"
    "Look a reservation up before you speak about it; times are local to the airport.\n"
)
SYSTEM = "You help the passengers of an airline at its desk.\n\n" + RULES * 20
TOOLS = (
    "find_reservation",
    "find_passenger",
    "search_flights",
    "change_flight",
    "cancel_flight",
    "add_baggage",
    "choose_seat",
    "issue_voucher",
    "price_of_change",
    "hand_over",
)
CITIES = ("Zürich", "São Paulo", "Kraków", "Denver", "東京", "Nairobi")
SIGNATURE = "EqoBCkgIARABGAIiQL8x" * 12
DELTAS = 400
WORDS = (
    " the",
    " reservation",
    " of",
    " Zoë",
    " is",
    ' "LX 18"',
    " at",
    " 9:40,\n",
    " gate",
    " B4",
)


def schema(number: int) -> Fields:
    """Return the JSON schema of a tool's arguments."""
    return {
        "type": "object",
        "properties": {
            "reservation": {"type": "string", "description": "Six letters, as on the ticket."},
            "date": {"type": "string", "description": "The day of the flight, as 2026-11-15."},
            "seats": {"type": "array", "items": {"type": "string"}},
            "options": {
                "type": "object",
                "properties": {"cabin": {"type": "string", "enum": ["economy", "business"]}},
            },
        },
        "required": ["reservation", "date"][: 1 + number % 2],
    }


def arguments(number: int) -> Fields:
    return {
        "reservation": f"RES{number:03}",
        "date": f"2026-11-{number % 28 + 1:02}",
        "seats": [f"{number % 30}A", f"{number % 30}B"],
        "options": {"cabin": "economy"},
    }


def result(number: int) -> str:
    """Return the result of a tool: JSON in a string."""
    flights = [
        {
            "flight": f"LX{number * 7 + leg}",
            "from": CITIES[(number + leg) % len(CITIES)],
            "to": CITIES[(number + leg + 1) % len(CITIES)],
            "departs": f"2026-11-{number % 28 + 1:02}T0{leg}:40:00",
            "fare": {"cabin": "economy", "price": 120 + number, "refundable": number % 3 == 0},
            "seats": [f"{row}{letter}" for row in range(leg + 10, leg + 13) for letter in "ABF"],
        }
        for leg in range(4)
    ]
    return json.dumps({"reservation": f"RES{number:03}", "flights": flights}, ensure_ascii=False)


def question(number: int) -> str:
    city = CITIES[number % len(CITIES)]
    return (
        f"My flight to {city} is under RES{number:03}. Can you see whether there is an earlier "
        "one that day, and what it would cost to change? I would like two seats side by side."
    )


def reply(number: int) -> str:
    return (
        f"I found RES{number:03}: it leaves at 9:40.\n\n- An earlier flight leaves at 6:40.\n"
        f'- The change costs {number} EUR, and the fare is "light", so it is not given back.\n\n'
        "Shall I change it? The seats beside each other, 12A and 12B, are still free."
    )


def request_body(
    client: Client, model: str, *, stream: bool = True, conversation: int = 0
) -> bytes:
    """Return a request of 200 messages in the client's protocol.

    Different conversations share the system prompt and the tools, but no message.
    """
    return _encode(_request(client, model, stream=stream, conversation=conversation))


def agent_requests(
    client: Client,
    model: str,
    *,
    stream: bool = True,
    conversation: int = 0,
) -> Iterator[bytes]:
    """Yield the requests of the same conversation, each with all messages so far.

    The agent calls the model after every question and after the results of its tool calls.
    """
    request = _request(client, model, stream=stream, conversation=conversation)
    messages = request["messages"]
    for index, message in enumerate(messages):
        if message["role"] == "assistant":
            yield _encode(request | {"messages": messages[:index]})


def _encode(body: Fields) -> bytes:
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def _request(client: Client, model: str, *, stream: bool, conversation: int) -> Fields:
    count = MESSAGES // MESSAGES_PER_EXCHANGE[client]
    exchanges = range(conversation * count, (conversation + 1) * count)
    if client == "openai":
        messages: list[Fields] = [{"role": "system", "content": SYSTEM}]
        for number in exchanges:
            messages.extend(_openai_exchange(number))
        body: Fields = {
            "model": model,
            "messages": messages,
            "tools": [_openai_tool(number, name) for number, name in enumerate(TOOLS)],
            "tool_choice": "auto",
            "max_tokens": 2048,
        }
    else:
        block = {"type": "text", "text": SYSTEM, "cache_control": {"type": "ephemeral"}}
        body = {
            "model": model,
            "max_tokens": 2048,
            "system": [block],
            "messages": [
                message for number in exchanges for message in _anthropic_exchange(number)
            ],
            "tools": [_anthropic_tool(number, name) for number, name in enumerate(TOOLS)],
            "tool_choice": {"type": "auto"},
        }
    return body | {"temperature": 0.2, "stream": stream}


def _call_ids(number: int) -> tuple[tuple[str, str, int], ...]:
    """Return the ID, the tool and the number of each call of an exchange."""
    numbers = (2 * number, 2 * number + 1)
    return tuple((f"call_{n:024}", TOOLS[n % len(TOOLS)], n) for n in numbers)


def _openai_exchange(number: int) -> Iterator[Fields]:
    yield {"role": "user", "content": question(number)}
    calls = [
        {"id": id_, "type": "function", "function": {"name": tool, "arguments": json.dumps(value)}}
        for id_, tool, n in _call_ids(number)
        for value in (arguments(n),)
    ]
    yield {"role": "assistant", "content": "Let me look that up.", "tool_calls": calls}
    for id_, _, n in _call_ids(number):
        yield {"role": "tool", "tool_call_id": id_, "content": result(n)}
    yield {"role": "assistant", "content": reply(number)}


def _anthropic_exchange(number: int) -> Iterator[Fields]:
    yield {"role": "user", "content": [{"type": "text", "text": question(number)}]}
    calls: list[Fields] = [
        {"type": "tool_use", "id": id_, "name": tool, "input": arguments(n)}
        for id_, tool, n in _call_ids(number)
    ]
    yield {"role": "assistant", "content": [{"type": "text", "text": "Let me look."}, *calls]}
    results = [
        {"type": "tool_result", "tool_use_id": id_, "content": result(n)}
        for id_, _, n in _call_ids(number)
    ]
    yield {"role": "user", "content": results}
    yield {"role": "assistant", "content": [{"type": "text", "text": reply(number)}]}


def _openai_tool(number: int, name: str) -> Fields:
    function = {"name": name, "description": RULES, "parameters": schema(number)}
    return {"type": "function", "function": function}


def _anthropic_tool(number: int, name: str) -> Fields:
    return {"name": name, "description": RULES, "input_schema": schema(number)}


def deltas(kind: Kind) -> list[str]:
    """Return the deltas of a reply, one or two tokens each; for arguments, a JSON object."""
    words = [WORDS[number % len(WORDS)] for number in range(DELTAS)]
    if kind != "arguments":
        return words
    escaped = [json.dumps(word, ensure_ascii=False)[1:-1] for word in words[2:]]
    return ['{"notes":"', *escaped, '"}']


def stream(protocol: Protocol, kind: Kind) -> list[bytes]:
    """Return a reply as the provider streams it, one event per item."""
    encoders = {
        "openai": _openai_stream,
        "anthropic": _anthropic_stream,
        "bedrock": _bedrock_stream,
    }
    return list(encoders[protocol](kind))


def _openai_stream(kind: Kind) -> Iterator[bytes]:
    def chunk(delta: Fields, finish_reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return _data({**OPENAI_HEAD, "choices": [choice]})

    yield chunk({"role": "assistant", "content": None if kind == "arguments" else ""})
    if kind == "arguments":
        function = {"name": "hand_over", "arguments": ""}
        yield chunk(
            {"tool_calls": [{"index": 0, "id": "call_1", "type": "function", "function": function}]}
        )
    for text in deltas(kind):
        match kind:
            case "text":
                yield chunk({"content": text})
            case "thinking":
                yield chunk({"reasoning_content": text})
            case "arguments":
                yield chunk({"tool_calls": [{"index": 0, "function": {"arguments": text}}]})
    yield chunk({}, "tool_calls" if kind == "arguments" else "stop")
    usage = {"prompt_tokens": 1200, "completion_tokens": DELTAS, "total_tokens": 1200 + DELTAS}
    yield _data({**OPENAI_HEAD, "choices": [], "usage": usage})
    yield b"data: [DONE]\n\n"


OPENAI_HEAD = {
    "id": "chatcmpl-BcQ1",
    "object": "chat.completion.chunk",
    "created": 1763186400,
    "model": MODELS["openai"],
    "system_fingerprint": "fp_1",
}


def _data(fields: Fields) -> bytes:
    return b"data: " + json.dumps(fields, ensure_ascii=False).encode() + b"\n\n"


ANTHROPIC_OPENINGS: dict[Kind, Fields] = {
    "text": {"type": "text", "text": ""},
    "thinking": {"type": "thinking", "thinking": "", "signature": ""},
    "arguments": {"type": "tool_use", "id": "toolu_1", "name": "hand_over", "input": {}},
}
ANTHROPIC_DELTAS: dict[Kind, tuple[str, str]] = {
    "text": ("text_delta", "text"),
    "thinking": ("thinking_delta", "thinking"),
    "arguments": ("input_json_delta", "partial_json"),
}


def _anthropic_stream(kind: Kind) -> Iterator[bytes]:
    def event(name: str, **fields: Any) -> bytes:
        return f"event: {name}\n".encode() + _data({"type": name, **fields})

    usage = {"input_tokens": 1200, "output_tokens": 1}
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": MODELS["anthropic"]}
    no_stop = {"stop_reason": None, "stop_sequence": None}
    yield event("message_start", message={**head, "content": [], **no_stop, "usage": usage})
    yield event("content_block_start", index=0, content_block=ANTHROPIC_OPENINGS[kind])
    delta, field = ANTHROPIC_DELTAS[kind]
    for text in deltas(kind):
        yield event("content_block_delta", index=0, delta={"type": delta, field: text})
    if kind == "thinking":
        signature = {"type": "signature_delta", "signature": SIGNATURE}
        yield event("content_block_delta", index=0, delta=signature)
    yield event("content_block_stop", index=0)
    reason = "tool_use" if kind == "arguments" else "end_turn"
    stop = {"stop_reason": reason, "stop_sequence": None}
    yield event("message_delta", delta=stop, usage={"output_tokens": DELTAS})
    yield event("message_stop")


def _bedrock_stream(kind: Kind) -> Iterator[bytes]:
    yield encode_frame("messageStart", {"role": "assistant"})
    if kind == "arguments":
        start = {"toolUse": {"toolUseId": "tooluse_1", "name": "hand_over"}}
        yield encode_frame("contentBlockStart", {"contentBlockIndex": 0, "start": start})
    for text in deltas(kind):
        match kind:
            case "text":
                delta: Fields = {"text": text}
            case "thinking":
                delta = {"reasoningContent": {"text": text}}
            case "arguments":
                delta = {"toolUse": {"input": text}}
        yield encode_frame("contentBlockDelta", {"contentBlockIndex": 0, "delta": delta})
    if kind == "thinking":
        signature = {"reasoningContent": {"signature": SIGNATURE}}
        yield encode_frame("contentBlockDelta", {"contentBlockIndex": 0, "delta": signature})
    yield encode_frame("contentBlockStop", {"contentBlockIndex": 0})
    yield encode_frame(
        "messageStop", {"stopReason": "tool_use" if kind == "arguments" else "end_turn"}
    )
    usage = {"inputTokens": 1200, "outputTokens": DELTAS, "totalTokens": 1200 + DELTAS}
    yield encode_frame("metadata", {"usage": usage, "metrics": {"latencyMs": 900}})


def encode_frame(name: str, payload: Fields) -> bytes:
    """Return an event as a frame of the AWS event stream encoding."""
    headers = b"".join(
        struct.pack("!B", len(key)) + key + struct.pack("!BH", 7, len(value)) + value
        for key, value in (
            (b":event-type", name.encode()),
            (b":content-type", b"application/json"),
            (b":message-type", b"event"),
        )
    )
    # Bedrock pads its payloads, so that their length does not reveal the text.
    body = json.dumps({**payload, "p": "abcdefghijklmnopqrst"}, ensure_ascii=False).encode()
    prelude = struct.pack("!II", 16 + len(headers) + len(body), len(headers))
    message = prelude + struct.pack("!I", zlib.crc32(prelude)) + headers + body
    return message + struct.pack("!I", zlib.crc32(message))


def response_body(protocol: Protocol) -> bytes:
    """Return a short complete response."""
    return json.dumps(RESPONSES[protocol]).encode()


RESPONSES: dict[Protocol, Fields] = {
    "openai": {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1763186400,
        "model": MODELS["openai"],
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Yes."},
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 1200, "completion_tokens": 2, "total_tokens": 1202},
    },
    "anthropic": {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": MODELS["anthropic"],
        "content": [{"type": "text", "text": "Yes."}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 1200, "output_tokens": 2},
    },
    "bedrock": {
        "output": {"message": {"role": "assistant", "content": [{"text": "Yes."}]}},
        "stopReason": "end_turn",
        "usage": {"inputTokens": 1200, "outputTokens": 2, "totalTokens": 1202},
        "metrics": {"latencyMs": 900},
    },
}

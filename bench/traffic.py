"""The traffic that `wire.py` measures with: a long conversation with tools, and streamed answers.

An agent at an airline's desk: questions, two calls at once, results of about a kilobyte of JSON, an
answer. The same for everybody and every time: nothing here is random or read from a file.
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
# A question, two calls, their results and an answer: results are two messages to one protocol
# and one to the other.
MESSAGES_OF_EXCHANGE: dict[Client, int] = {"openai": 5, "anthropic": 4}
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
    """What a tool is called with."""
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
    """What a tool answers: JSON in a text, as tools do."""
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


def answer(number: int) -> str:
    return (
        f"I found RES{number:03}: it leaves at 9:40.\n\n- An earlier flight leaves at 6:40.\n"
        f'- The change costs {number} EUR, and the fare is "light", so it is not given back.\n\n'
        "Shall I change it? The seats beside each other, 12A and 12B, are still free."
    )


def request_body(
    client: Client, model: str, *, stream: bool = True, conversation: int = 0
) -> bytes:
    """A request of 200 messages, as a client of that protocol sends it.

    No message of one `conversation` is in another one; system prompt and tools are.
    """
    return _written(_request(client, model, stream=stream, conversation=conversation))


def requests_of_agent(
    client: Client,
    model: str,
    *,
    stream: bool = True,
    conversation: int = 0,
) -> Iterator[bytes]:
    """The requests by which the same conversation came to be, each with all that was said before.

    The model is asked after every question, and after the results of its calls.
    """
    whole = _request(client, model, stream=stream, conversation=conversation)
    messages = whole["messages"]
    places = [place for place, message in enumerate(messages) if message["role"] == "assistant"]
    for place in places:
        yield _written(whole | {"messages": messages[:place]})


def _written(body: Fields) -> bytes:
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def _request(client: Client, model: str, *, stream: bool, conversation: int) -> Fields:
    count = MESSAGES // MESSAGES_OF_EXCHANGE[client]
    exchanges = range(conversation * count, (conversation + 1) * count)
    if client == "openai":
        said: list[Fields] = [{"role": "system", "content": SYSTEM}]
        for number in exchanges:
            said.extend(_openai_exchange(number))
        body: Fields = {
            "model": model,
            "messages": said,
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
            "messages": [said for number in exchanges for said in _anthropic_exchange(number)],
            "tools": [_anthropic_tool(number, name) for number, name in enumerate(TOOLS)],
            "tool_choice": {"type": "auto"},
        }
    return body | {"temperature": 0.2, "stream": stream}


def _call_ids(number: int) -> tuple[tuple[str, str, int], ...]:
    """The id, the tool and the number of each call of an exchange."""
    numbers = (2 * number, 2 * number + 1)
    return tuple((f"call_{n:024}", TOOLS[n % len(TOOLS)], n) for n in numbers)


def _openai_exchange(number: int) -> Iterator[Fields]:
    yield {"role": "user", "content": question(number)}
    calls = [
        {"id": id_, "type": "function", "function": {"name": tool, "arguments": json.dumps(said)}}
        for id_, tool, n in _call_ids(number)
        for said in (arguments(n),)
    ]
    yield {"role": "assistant", "content": "Let me look that up.", "tool_calls": calls}
    for id_, _, n in _call_ids(number):
        yield {"role": "tool", "tool_call_id": id_, "content": result(n)}
    yield {"role": "assistant", "content": answer(number)}


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
    yield {"role": "assistant", "content": [{"type": "text", "text": answer(number)}]}


def _openai_tool(number: int, name: str) -> Fields:
    described = {"name": name, "description": RULES, "parameters": schema(number)}
    return {"type": "function", "function": described}


def _anthropic_tool(number: int, name: str) -> Fields:
    return {"name": name, "description": RULES, "input_schema": schema(number)}


def pieces(kind: Kind) -> list[str]:
    """The words of an answer, a token or two each; of arguments, the JSON of one text."""
    words = [WORDS[number % len(WORDS)] for number in range(DELTAS)]
    if kind != "arguments":
        return words
    escaped = [json.dumps(word, ensure_ascii=False)[1:-1] for word in words[2:]]
    return ['{"notes":"', *escaped, '"}']


def stream(protocol: Protocol, kind: Kind) -> list[bytes]:
    """An answer as the provider streams it, an event to a piece."""
    makers = {"openai": _openai_stream, "anthropic": _anthropic_stream, "bedrock": _bedrock_stream}
    return list(makers[protocol](kind))


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
    for piece in pieces(kind):
        match kind:
            case "text":
                yield chunk({"content": piece})
            case "thinking":
                yield chunk({"reasoning_content": piece})
            case "arguments":
                yield chunk({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]})
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
    ending = {"stop_reason": None, "stop_sequence": None}
    yield event("message_start", message={**head, "content": [], **ending, "usage": usage})
    yield event("content_block_start", index=0, content_block=ANTHROPIC_OPENINGS[kind])
    delta, field = ANTHROPIC_DELTAS[kind]
    for piece in pieces(kind):
        yield event("content_block_delta", index=0, delta={"type": delta, field: piece})
    if kind == "thinking":
        signed = {"type": "signature_delta", "signature": SIGNATURE}
        yield event("content_block_delta", index=0, delta=signed)
    yield event("content_block_stop", index=0)
    reason = "tool_use" if kind == "arguments" else "end_turn"
    ended = {"stop_reason": reason, "stop_sequence": None}
    yield event("message_delta", delta=ended, usage={"output_tokens": DELTAS})
    yield event("message_stop")


def _bedrock_stream(kind: Kind) -> Iterator[bytes]:
    yield frame("messageStart", {"role": "assistant"})
    if kind == "arguments":
        start = {"toolUse": {"toolUseId": "tooluse_1", "name": "hand_over"}}
        yield frame("contentBlockStart", {"contentBlockIndex": 0, "start": start})
    for piece in pieces(kind):
        match kind:
            case "text":
                delta: Fields = {"text": piece}
            case "thinking":
                delta = {"reasoningContent": {"text": piece}}
            case "arguments":
                delta = {"toolUse": {"input": piece}}
        yield frame("contentBlockDelta", {"contentBlockIndex": 0, "delta": delta})
    if kind == "thinking":
        signed = {"reasoningContent": {"signature": SIGNATURE}}
        yield frame("contentBlockDelta", {"contentBlockIndex": 0, "delta": signed})
    yield frame("contentBlockStop", {"contentBlockIndex": 0})
    yield frame("messageStop", {"stopReason": "tool_use" if kind == "arguments" else "end_turn"})
    usage = {"inputTokens": 1200, "outputTokens": DELTAS, "totalTokens": 1200 + DELTAS}
    yield frame("metadata", {"usage": usage, "metrics": {"latencyMs": 900}})


def frame(name: str, payload: Fields) -> bytes:
    """An event in the frame that AWS streams are made of."""
    headers = b"".join(
        struct.pack("!B", len(key)) + key + struct.pack("!BH", 7, len(value)) + value
        for key, value in (
            (b":event-type", name.encode()),
            (b":content-type", b"application/json"),
            (b":message-type", b"event"),
        )
    )
    # Bedrock pads its payloads, so that their length does not give the words away.
    body = json.dumps({**payload, "p": "abcdefghijklmnopqrst"}, ensure_ascii=False).encode()
    prelude = struct.pack("!II", 16 + len(headers) + len(body), len(headers))
    message = prelude + struct.pack("!I", zlib.crc32(prelude)) + headers + body
    return message + struct.pack("!I", zlib.crc32(message))


def whole_answer(protocol: Protocol) -> bytes:
    """A short answer in one piece."""
    return json.dumps(WHOLE_ANSWERS[protocol]).encode()


WHOLE_ANSWERS: dict[Protocol, Fields] = {
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

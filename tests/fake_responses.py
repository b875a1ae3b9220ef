"""OpenAI's Responses API for the fake provider, checked against the types of OpenAI's SDK.

Importing this module adds the route to the fake provider. A test builds a response from items
(`make_response`) and queues it with `stream_steps` or `json_response_steps`. The SDK's models
validate every response and event.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter
from tests.fake_provider import (
    PROTOCOLS,
    Cut,
    Head,
    Hold,
    OpenAIChat,
    Reply,
    Request,
    Send,
    Step,
    ToolCall,
    response_steps,
)
from tests.fake_provider.steps import split_text

PATH = "/v1/responses"
EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
STREAM = {"Content-Type": "text/event-stream; charset=utf-8"}
Item = dict[str, Any]


def message_item(text: str, item_id: str = "msg_1", **block: Any) -> Item:
    content = {"type": "output_text", "text": text, "annotations": [], "logprobs": []} | block
    return {
        "id": item_id,
        "type": "message",
        "status": "completed",
        "role": "assistant",
        "content": [content],
    }


def refusal_item(text: str, item_id: str = "msg_1") -> Item:
    return message_item("", item_id) | {"content": [{"type": "refusal", "refusal": text}]}


def reasoning_item(
    *summaries: str, item_id: str = "rs_1", sealed: str | None = "gAAAA-sealed"
) -> Item:
    texts = [{"type": "summary_text", "text": text} for text in summaries]
    return {"id": item_id, "type": "reasoning", "summary": texts, "encrypted_content": sealed}


def function_call_item(call_id: str, name: str, arguments: str, item_id: str = "fc_1") -> Item:
    return {
        "id": item_id,
        "type": "function_call",
        "status": "completed",
        "call_id": call_id,
        "name": name,
        "arguments": arguments,
    }


def custom_call_item(call_id: str, name: str, text: str, item_id: str = "ctc_1") -> Item:
    return {
        "id": item_id,
        "type": "custom_tool_call",
        "status": "completed",
        "call_id": call_id,
        "name": name,
        "input": text,
    }


def web_search_item(item_id: str = "ws_1") -> Item:
    action = {"type": "search", "query": "cats", "queries": ["cats"]}
    return {"id": item_id, "type": "web_search_call", "status": "completed", "action": action}


def make_response(
    *items: Item, usage: tuple[int, int, int, int, int] | None = None, **fields: Any
) -> Item:
    """Return a response of these items; `usage`: input, cached, cache write, output, reasoning."""
    body: Item = {
        "id": "resp_1",
        "object": "response",
        "created_at": 1_800_000_000,
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "model": "gpt-5-codex-1",
        "output": list(items),
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": _usage(usage or (11, 0, 0, 7, 0)),
    } | fields
    Response.model_validate(body)
    return body


def _usage(counts: tuple[int, int, int, int, int]) -> Item:
    input_tokens, cached, written, output_tokens, reasoning = counts
    return {
        "input_tokens": input_tokens,
        "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": written},
        "output_tokens": output_tokens,
        "output_tokens_details": {"reasoning_tokens": reasoning},
        "total_tokens": input_tokens + output_tokens,
    }


def make_events(response: Item, pieces: Sequence[str] = ()) -> list[Item]:
    """Return the stream events of a response, by default with each text in two pieces."""
    initial = response | {"status": "in_progress", "output": [], "usage": None}
    kinds = {"completed": "completed", "failed": "failed", "incomplete": "incomplete"}
    events: list[Item] = [
        {"type": "response.created", "response": initial},
        {"type": "response.in_progress", "response": initial},
        *(
            event
            for index, item in enumerate(response["output"])
            for event in _item_events(item, index, pieces)
        ),
        {"type": f"response.{kinds[response['status']]}", "response": response},
    ]
    numbered = [event | {"sequence_number": n} for n, event in enumerate(events)]
    for event in numbered:
        EVENT.validate_python(event)
    return numbered


def _item_events(item: Item, index: int, pieces: Sequence[str]) -> Iterator[Item]:
    at = {"output_index": index, "item_id": item["id"]}
    initial: dict[str, Item] = {
        "message": {"content": [], "status": "in_progress"},
        "reasoning": {"summary": [], "encrypted_content": "gAAAA-begun"},
        "function_call": {"arguments": "", "status": "in_progress"},
        "custom_tool_call": {"input": "", "status": "in_progress"},
    }
    started = item | initial.get(item["type"], {})
    yield {"type": "response.output_item.added", "output_index": index, "item": started}
    match item["type"]:
        case "message":
            for inner, block in enumerate(item["content"]):
                yield from _block_events(block, at | {"content_index": inner}, pieces)
        case "reasoning":
            for inner, summary in enumerate(item["summary"]):
                yield from _summary_events(summary, at | {"summary_index": inner})
        case "function_call":
            name = "response.function_call_arguments"
            yield from _pieces(f"{name}.delta", item["arguments"], at)
            whole_call = {"name": item["name"], "arguments": item["arguments"]}
            yield {"type": f"{name}.done", **at, **whole_call}
        case "custom_tool_call":
            name = "response.custom_tool_call_input"
            yield from _pieces(f"{name}.delta", item["input"], at)
            yield {"type": f"{name}.done", **at, "input": item["input"]}
    yield {"type": "response.output_item.done", "output_index": index, "item": item}


def _block_events(block: Item, at: Item, pieces: Sequence[str]) -> Iterator[Item]:
    field = "refusal" if block["type"] == "refusal" else "text"
    empty = block | {field: ""} | ({} if field == "refusal" else {"annotations": []})
    yield {"type": "response.content_part.added", **at, "part": empty}
    more: Item = {} if field == "refusal" else {"logprobs": []}
    yield from _pieces(f"response.{block['type']}.delta", block[field], at | more, pieces)
    for number, annotation in enumerate(block.get("annotations", [])):
        yield {
            "type": "response.output_text.annotation.added",
            **at,
            "annotation_index": number,
            "annotation": annotation,
        }
    yield {"type": f"response.{block['type']}.done", **at, **more, field: block[field]}
    yield {"type": "response.content_part.done", **at, "part": block}


def _summary_events(summary: Item, at: Item) -> Iterator[Item]:
    name = "response.reasoning_summary"
    yield {"type": f"{name}_part.added", **at, "part": summary | {"text": ""}}
    yield from _pieces(f"{name}_text.delta", summary["text"], at)
    yield {"type": f"{name}_text.done", **at, "text": summary["text"]}
    yield {"type": f"{name}_part.done", **at, "part": summary}


def _pieces(name: str, text: str, at: Item, pieces: Sequence[str] = ()) -> Iterator[Item]:
    for piece in filter(None, pieces or split_text(text)):
        yield {"type": name, **at, "delta": piece}


def encode_events(sent: Iterable[Item]) -> bytes:
    return b"".join(
        f"event: {event['type']}\ndata: {json.dumps(event, ensure_ascii=False)}\n\n".encode()
        for event in sent
    )


def stream_steps(
    sent: Sequence[Item], *, packet: int | None = None, cut: bool = False
) -> tuple[Step, ...]:
    """Return the steps that send these events in packets; `cut` closes the connection early."""
    data = encode_events(sent)
    size = packet or len(data) or 1
    packets = (Send(data[start : start + size]) for start in range(0, len(data), size))
    return (Head(headers=STREAM, chunked=True), *packets, *((Cut(),) if cut else ()))


def json_response_steps(response: Item) -> tuple[Step, ...]:
    return response_steps(200, json.dumps(response, ensure_ascii=False, indent=2).encode())


class OpenAIResponses(OpenAIChat):
    """The route. Errors are the same as in Chat Completions."""

    def echo(self, request: Request) -> Reply:
        value = (request.json or {}).get("input")
        return Reply(pieces=("echo: ", value if isinstance(value, str) else json.dumps(value)))

    def steps(self, reply: Reply, request: Request, number: int) -> tuple[Step, ...]:
        response = make_response(*_reply_items(reply, number), id=f"resp_{number}")
        if not request.json.get("stream"):
            return json_response_steps(response)
        events = make_events(response, reply.pieces)
        if not reply.hold:
            return stream_steps(events, packet=reply.packet)
        return (Head(headers=STREAM, chunked=True), *_held_steps(reply, events))


def _reply_items(reply: Reply, number: int) -> Iterator[Item]:
    """Yield the items of a reply: reasoning, a message, and calls."""
    if reply.reasoning:
        yield reasoning_item(*reply.reasoning, item_id=f"rs_{number}", sealed=reply.signature)
    if reply.pieces or not reply.tool_calls:
        yield message_item(reply.text, f"msg_{number}")
    for index, call in enumerate(reply.tool_calls):
        yield _call_item(call, f"{number}_{index}")


def _call_item(call: ToolCall, suffix: str) -> Item:
    if call.is_custom:
        return custom_call_item(call.id, call.name, call.arguments, f"ctc_{suffix}")
    return function_call_item(call.id, call.name, call.arguments, f"fc_{suffix}")


def _held_steps(reply: Reply, events: Sequence[Item]) -> Iterator[Step]:
    """Yield the events one by one, with the gates before the pieces of the text."""
    index = 0
    for event in events:
        if event["type"] in ("response.output_text.delta", "response.output_text.done"):
            if index in reply.hold:
                yield Hold(reply.hold[index])
            index += 1
        yield Send(encode_events([event]))


PROTOCOLS[PATH] = OpenAIResponses()

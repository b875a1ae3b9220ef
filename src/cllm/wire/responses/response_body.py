"""Whole answers of any provider as Responses API bodies.

An incomplete answer is never `completed`. Thinking is a reasoning item, never text. The id and the
time come from the caller.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec

from cllm.core.message import (
    AnyPart,
    RedactedThinking,
    Refusal,
    Text,
    Thinking,
    ToolCall,
    Unknown,
)
from cllm.core.reply import StopReason, Usage
from cllm.wire.openai.options import Fields
from cllm.wire.responses.parts import (
    DIALECT,
    ITEMS,
    LENT_NAME,
    Item,
    encode_block,
    encode_item,
    is_word,
)

Status = Literal["completed", "incomplete"]
NO_ARGUMENTS = "{}"
PREFIX = "resp_"
TEXT_FIELDS = frozenset({"annotations", "logprobs"})
# Request parameters that an answer repeats, with their defaults.
ECHOED: Fields = {
    "instructions": None,
    "max_output_tokens": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "reasoning": {"effort": None, "summary": None},
    "store": False,
    "temperature": None,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_p": None,
    "truncation": "disabled",
    "user": None,
}


class Heading(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of an answer beside its output; `asked` are the client's parameters."""

    id: str
    model: str
    created: int
    asked: Mapping[str, Any] = msgspec.field(default_factory=dict)

    def item_id(self, prefix: str, place: int) -> str:
        return f"{prefix}_{self.id.removeprefix(PREFIX)}_{place}"

    def response(self, status: str, **fields: Any) -> Fields:
        """Return the response object; `fields` are output, usage and error."""
        said = {
            name: default if self.asked.get(name) is None else self.asked[name]
            for name, default in ECHOED.items()
        }
        head = {"id": self.id, "object": "response", "created_at": self.created, "status": status}
        nothing: Fields = {"error": None, "incomplete_details": None, "output": [], "usage": None}
        return {**head, "model": self.model, **said, **nothing, **fields}


def ending(stop_reason: StopReason, *, refused: bool) -> tuple[Status, Fields | None]:
    """Return status and details; a refusal with text is complete, one without was filtered."""
    if stop_reason in ("end", "stop_sequence", "tool_calls"):
        return "completed", None
    if stop_reason == "refusal" and refused:
        return "completed", None
    filtered = stop_reason in ("content_filter", "refusal")
    return "incomplete", {"reason": "content_filter" if filtered else "max_output_tokens"}


def encode_usage(usage: Usage | None) -> Fields | None:
    """Encode token counts; OpenAI's totals include the details."""
    if usage is None:
        return None
    given = usage.input + usage.cache_read + usage.cache_write
    made = usage.output + usage.reasoning
    return {
        "input_tokens": given,
        "input_tokens_details": {
            "cached_tokens": usage.cache_read,
            "cache_write_tokens": usage.cache_write,
        },
        "output_tokens": made,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": given + made,
    }


def encode_answer(
    parts: Sequence[AnyPart],
    *,
    stop_reason: StopReason,
    usage: Usage | None,
    heading: Heading,
) -> bytes:
    """Encode a whole answer, without parts that are not `shown`."""
    refused = any(isinstance(part, Refusal) for part in parts)
    status, details = ending(stop_reason, refused=refused)
    output = list(encode_output(parts, heading, status))
    fields = {"incomplete_details": details, "output": output, "usage": encode_usage(usage)}
    return msgspec.json.encode(heading.response(status, **fields))


def encode_output(parts: Sequence[AnyPart], heading: Heading, status: Status) -> Iterator[Item]:
    """Yield the output items, at least one; adjacent texts are one message."""
    runs = _runs([part for part in map(shown, parts) if part is not None])
    for place, run in enumerate(runs):
        ended: Status = status if place == len(runs) - 1 else "completed"
        yield _output_item(run, place, heading, ended)


def _runs(parts: Sequence[AnyPart]) -> list[list[AnyPart]]:
    runs: list[list[AnyPart]] = []
    for part in parts:
        if runs and is_word(part) and is_word(runs[-1][0]):
            runs[-1].append(part)
        else:
            runs.append([part])
    return runs or [[Text(text="")]]


def shown(part: AnyPart) -> AnyPart | None:
    """Return the part as clients of this API receive it, or None."""
    match part:
        case Text():
            extra = {name: part.extra[name] for name in part.extra if name in TEXT_FIELDS}
            return Text(text=part.text, extra=extra)
        case Refusal():
            return Refusal(text=part.text)
        case ToolCall():
            return ToolCall(id=part.id, name=part.name, arguments=part.arguments or NO_ARGUMENTS)
        case Thinking() | RedactedThinking():
            extra = part.extra if "id" in part.extra else {}
            return msgspec.structs.replace(part, extra=extra, cache=None)
        case Unknown():
            return part if part.dialect == DIALECT and part.field == ITEMS else None
        case _:
            return None


def _output_item(run: Sequence[AnyPart], place: int, heading: Heading, status: Status) -> Item:
    first = run[0]
    if is_word(first):
        blocks = [encode_block(part, "assistant") for part in run]
        return message_item(heading.item_id("msg", place), blocks, status)
    item = encode_item(first)
    if isinstance(item, msgspec.Raw):
        return item
    if isinstance(first, ToolCall):
        return {"id": heading.item_id("fc", place), **item, "status": status}
    return {"id": heading.item_id(LENT_NAME, place), **item}


def message_item(item_id: str, blocks: list[Any], status: str) -> Fields:
    head = {"id": item_id, "type": "message", "status": status, "role": "assistant"}
    return {**head, "content": blocks}

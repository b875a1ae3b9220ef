"""What was said in one message, as clients of the server see it. Pure."""

from typing import Any

import msgspec

from cllm.core.message import AnyPart, Message, ToolCall, ToolResult, Unknown
from cllm.wire.malformed import MalformedError
from cllm.wire.translate import parts_of


def view_content(message: Message) -> dict[str, Any]:
    """What was said: an OpenAI message as it is, another one by its text and its calls."""
    parts = _parts_of(message)
    shown = {"parts": list(map(_view_part, parts))}
    if message.dialect == "openai":
        fields = message.json()
        return {**shown, "content": fields.get("content"), **_tools_in(fields)}
    calls = [part for part in parts if isinstance(part, ToolCall)]
    results = [part for part in parts if isinstance(part, ToolResult)]
    beside: dict[str, Any] = {"tool_calls": list(map(_view_call, calls))} if calls else {}
    if len(results) == 1:
        beside["tool_call_id"] = results[0].call_id
    return {**shown, "content": message.text or None, **beside}


def _tools_in(fields: dict[str, Any]) -> dict[str, Any]:
    """Calls and the id of a call as they were kept; in an imported file they may be none."""
    calls, call_id = fields.get("tool_calls"), fields.get("tool_call_id")
    shown: dict[str, Any] = {}
    if calls and isinstance(calls, list) and all(isinstance(call, dict) for call in calls):
        shown["tool_calls"] = calls
    if call_id and isinstance(call_id, str):
        shown["tool_call_id"] = call_id
    return shown


def _parts_of(message: Message) -> tuple[AnyPart, ...]:
    try:
        return parts_of(message)
    except MalformedError:
        return (Unknown(dialect=message.dialect, raw=message.raw, field="message"),)


def _view_call(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function}


def _view_part(part: AnyPart) -> dict[str, Any]:
    """A part as JSON, without what it does not say."""
    encoded: dict[str, Any] = msgspec.to_builtins(part, enc_hook=str)
    if isinstance(part, Unknown):
        encoded["raw"] = msgspec.json.decode(part.raw)
    elif isinstance(part, ToolResult):
        encoded["content"] = list(map(_view_part, part.content))
    return {name: value for name, value in encoded.items() if value not in (None, {})}

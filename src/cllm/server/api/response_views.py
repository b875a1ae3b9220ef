"""Stored turns as responses of the Responses API. They have no system prompt."""

from collections.abc import Iterator, Sequence
from typing import Any, cast

import msgspec

from cllm.core.conversation import CANCELLATION, Turn
from cllm.core.message import Message
from cllm.core.notice import REPLY_CUT
from cllm.core.reply import ReplyFinished, StopReason
from cllm.server.api.response_parameters import NAMES_CONVERSATION, read_parameters
from cllm.server.turns.previous_response import StoredResponse
from cllm.wire.convert import parts_of
from cllm.wire.messages import to_delta
from cllm.wire.openai.options import Fields
from cllm.wire.responses.ids import (
    make_conversation_id,
    make_item_id,
    make_response_id,
)
from cllm.wire.responses.parts import DIALECT, encode_items, item_kind
from cllm.wire.responses.passthrough import rename_item
from cllm.wire.responses.response_encoder import ResponsesStreamEncoder, encode_output
from cllm.wire.responses.response_fields import ResponseFields, encode_usage, response_status

ITEM_PREFIXES = {
    "custom_tool_call": "ctc",
    "custom_tool_call_output": "ctco",
    "function_call": "fc",
    "function_call_output": "fco",
    "reasoning": "rs",
}
BLOCK_DEFAULTS: dict[Any, tuple[tuple[str, Any], ...]] = {
    "input_image": (("detail", "auto"),),
    "output_text": (("annotations", ()),),
}
ERROR_CODES = {"RateLimitedError": "rate_limited", "QuotaExceededError": "insufficient_quota"}
"""The codes of the errors that OpenAI distinguishes, by the code of a turn's failure."""
STOP_REASONS: dict[str, StopReason] = {
    "content_filter": "content_filter",
    "max_output_tokens": "length",
}


def view_response(found: StoredResponse) -> Fields:
    turn, heading = found.turn, _heading(found)
    output, usage = list_output(found), encode_usage(turn.usage)
    if turn.state == "running":
        return heading.response("in_progress")
    fields: Fields = {"output": output, "usage": usage}
    if turn.failure is not None and turn.failure.code == CANCELLATION.code:
        return heading.response("cancelled", **fields)
    if turn.failure is not None or turn.state == "failed":
        message = "The turn failed." if turn.failure is None else turn.failure.message
        code = "" if turn.failure is None else ERROR_CODES.get(turn.failure.code, "")
        return {**heading.failed_response(message, code=code), **fields}
    status, details = response_status(_stop_reason(turn), refused=True)
    completed = None if turn.ended_at is None else int(turn.ended_at.timestamp())
    return heading.response(status, incomplete_details=details, completed_at=completed, **fields)


def stream_response(found: StoredResponse) -> bytes:
    """Return the events of a response whose own events are not stored any more."""
    turn, encoder = found.turn, ResponsesStreamEncoder(_heading(found))
    reply = _find_reply(turn)
    if reply is None or turn.failure is not None:
        return encode_end(found, 0)
    pieces = [encoder.encode(to_delta(part, index)) for index, part in enumerate(parts_of(reply))]
    finished = ReplyFinished(message=reply, stop_reason=_stop_reason(turn), usage=turn.usage)
    return b"".join((*pieces, encoder.encode(finished)))


def encode_end(found: StoredResponse, number: int) -> bytes:
    """Return the last events of a turn without a complete reply, from a sequence number on."""
    encoder = ResponsesStreamEncoder(_heading(found))
    encoder.sequence = number
    view = view_response(found)
    error = view["error"] or {"message": f"The response is {view['status']}.", "code": None}
    return encoder.error(error["message"], type="api_error", code=error["code"], response=view)


def list_output(found: StoredResponse) -> list[Any]:
    """Return the items of the reply. Those of OpenAI have its ids at the end of theirs."""
    reply = _find_reply(found.turn)
    if reply is None:
        return []
    if reply.dialect == DIALECT:
        content = reply.json().get("content")
        if isinstance(content, list):
            response_id = _heading(found).id
            return [rename_item(item, response_id, n) for n, item in enumerate(content)]
    status, _ = response_status(_stop_reason(found.turn), refused=True)
    items = encode_output(parts_of(reply), _heading(found), status)
    return [msgspec.json.decode(msgspec.json.encode(item)) for item in items]


def list_input(found: StoredResponse) -> list[Fields]:
    """Return the items of the request that are stored, in order, each with an id."""
    response_id = _heading(found).id
    messages = found.turn.messages if _find_reply(found.turn) is None else found.turn.messages[:-1]
    items = (item for message in messages for item in _iterate_items(message))
    return [_complete_item(item, index, response_id) for index, item in enumerate(items)]


def list_items(found: StoredResponse) -> list[tuple[int, Any]]:
    """Return all items of the turn, each with the index of its message.

    A turn without a model was added by a client: its last reply is input too.
    """
    turn, response_id = found.turn, _heading(found).id
    has_output = turn.model is not None and _find_reply(turn) is not None
    messages = turn.messages[:-1] if has_output else turn.messages
    inputs = [(n, item) for n, message in enumerate(messages) for item in _iterate_items(message)]
    items: list[tuple[int, Any]] = [
        (ordinal, _complete_item(item, index, response_id))
        for index, (ordinal, item) in enumerate(inputs)
    ]
    if has_output:
        items.extend((len(messages), item) for item in _iterate_output(found, response_id))
    return items


def _iterate_output(found: StoredResponse, response_id: str) -> Iterator[Fields]:
    for index, item in enumerate(list_output(found)):
        # Servers with OpenAI's API can omit the id.
        prefix = ITEM_PREFIXES.get(item_kind(item), "msg")
        yield {"id": make_item_id(prefix, response_id, index), **item}


def find_item(found: StoredResponse, item_id: str, *, index: int | None = None) -> Any:
    """Return the item with this ID, or None; `index` is that of an item of the input.

    An item that was input is the last reply after later messages of its turn are deleted.
    """
    if index is not None:
        inputs = [item for _, item in list_items(found)]
        return inputs[index] if index < len(inputs) else None
    # Custom tools are not stored: their calls are those of functions.
    ids = (item_id, f"fc_{item_id.removeprefix('ctc_')}")
    return next((item for item in list_output(found) if item.get("id") in ids), None)


def _iterate_items(message: Message) -> Iterator[Fields]:
    fields = message.json()
    content = fields.get("content")
    if message.dialect == DIALECT:
        has_items = message.role in ("assistant", "tool") and isinstance(content, list)
        yield from cast("list[Fields]", content) if has_items else [fields]
        return
    for item in encode_items(message.role, parts_of(message)):
        yield msgspec.json.decode(msgspec.json.encode(item))


def _complete_item(item: Fields, index: int, response_id: str) -> Fields:
    kind = item_kind(item)
    item_id = make_item_id(ITEM_PREFIXES.get(kind, "msg"), response_id, index, is_input=True)
    item = {"id": item_id, "type": kind, **item}
    if kind != "reasoning":
        item.setdefault("status", "completed")
    content = item.get("content")
    if kind == "message" and isinstance(content, str):
        block_type = "output_text" if item.get("role") == "assistant" else "input_text"
        content = [{"type": block_type, "text": content}]
    if kind == "message" and isinstance(content, list):
        item["content"] = [_complete_block(block) for block in content]
    return item


def _complete_block(block: Any) -> Any:
    """Return the block with the fields that OpenAI's always have."""
    defaults = BLOCK_DEFAULTS.get(block.get("type")) if isinstance(block, dict) else None
    return block if defaults is None else {**block, **{k: block.get(k, v) for k, v in defaults}}


def _heading(found: StoredResponse) -> ResponseFields:
    conversation, turn = found.conversation, found.turn
    return ResponseFields(
        id=make_response_id(conversation.id, turn.id) or "",
        model=turn.model or "",
        created=int(turn.started_at.timestamp()),
        parameters=_list_parameters(found),
    )


def _list_parameters(found: StoredResponse) -> Fields:
    """Return the parameters that the response repeats; turns of other APIs have none."""
    stored = read_parameters(found.turn)
    if stored is None:
        return {"store": True, "previous_response_id": _find_previous(found)}
    is_named = stored.pop(NAMES_CONVERSATION, None) is True
    conversation = {"id": make_conversation_id(found.conversation.id)} if is_named else None
    return {**stored, "store": True, "conversation": conversation}


def _find_previous(found: StoredResponse) -> str | None:
    """Return the response that this one continues: the turn before it."""
    turns: Sequence[Turn] = found.conversation.turns
    places = [turn.place for turn in turns]
    if found.turn.place not in places:
        return None
    before = [turn for turn in turns[: places.index(found.turn.place)] if turn.is_history]
    return make_response_id(found.conversation.id, before[-1].id) if before else None


def _find_reply(turn: Turn) -> Message | None:
    last = turn.messages[-1] if turn.messages else None
    has_reply = last is not None and last.role == "assistant" and turn.state != "running"
    return last if has_reply and (turn.is_history or turn.failure is not None) else None


def _stop_reason(turn: Turn) -> StopReason:
    cut = next((notice.path for notice in turn.notices if notice.code == REPLY_CUT), None)
    if cut is not None:
        return STOP_REASONS.get(cut, "length")
    return "length" if turn.state == "incomplete" else "end"

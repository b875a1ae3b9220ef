"""The items of a response: whole ones, and those of a stream while they are built."""

from typing import Any

import msgspec

from cllm.core.message import ToolCall
from cllm.wire.openai.options import Fields
from cllm.wire.responses import custom_tools
from cllm.wire.responses.custom_tools import decode_input


def custom_call_item(item_id: str, call: ToolCall) -> Fields:
    head = {"id": item_id, "type": custom_tools.CALL, "call_id": call.id, "name": call.name}
    return {**head, "input": decode_input(call.arguments)}


def message_item(item_id: str, blocks: list[Any], status: str) -> Fields:
    head = {"id": item_id, "type": "message", "status": status, "role": "assistant"}
    return {**head, "content": blocks}


def summary_text(text: str) -> Fields:
    return {"type": "summary_text", "text": text}


class ContentBlock(msgspec.Struct):
    kind: str
    index: int
    pieces: list[str] = msgspec.field(default_factory=list)
    annotations: list[Any] = msgspec.field(default_factory=list)

    def block(self) -> Fields:
        text = "".join(self.pieces)
        if self.kind == "refusal":
            return {"type": "refusal", "refusal": text}
        lists: Fields = {"annotations": self.annotations, "logprobs": []}
        return {"type": "output_text", "text": text, **lists}


class StreamedItem(msgspec.Struct):
    kind: str
    output_index: int
    id: str
    index: int
    blocks: list[ContentBlock] = msgspec.field(default_factory=list)
    pieces: list[str] = msgspec.field(default_factory=list)
    encrypted: list[str] = msgspec.field(default_factory=list)
    call_id: str = ""
    name: str = ""
    head: bytes = b""

    def fields(self, status: str) -> Fields:
        text = "".join(self.pieces)
        if self.kind == "message":
            return message_item(self.id, [block.block() for block in self.blocks], status)
        if self.kind == "reasoning":
            summary = [summary_text(text)] if text else []
            item: Fields = {"id": self.id, "type": "reasoning", "summary": summary}
            encrypted = "".join(self.encrypted)
            return {**item, "encrypted_content": encrypted} if encrypted else item
        if self.kind == custom_tools.CALL:
            return custom_call_item(
                self.id, ToolCall(id=self.call_id, name=self.name, arguments=text)
            )
        call = {"id": self.id, "type": "function_call", "status": status}
        return {**call, "arguments": text, "call_id": self.call_id, "name": self.name}

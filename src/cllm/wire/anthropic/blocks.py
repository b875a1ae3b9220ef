"""Parts as blocks of a message in Anthropic's words; the way back is in `anthropic_parts`.

What such a message has no block for is an error that names it. Knows no request and no reply, and
looks at nothing that stands beside a part.
"""

from collections.abc import Callable
from typing import Any

import msgspec

from cllm.core.message import (
    AnyPart,
    CacheMark,
    Document,
    Image,
    RedactedThinking,
    Refusal,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Unknown,
)
from cllm.wire.anthropic.parts import DIALECT, Block, ResultPart
from cllm.wire.cut_calls import is_json, wrapped
from cllm.wire.malformed import NotExpressibleError


def encode_block(part: AnyPart) -> Block | msgspec.Raw:
    """A part as a block. A refusal, which has no block here, is a text."""
    block = ENCODERS[type(part)](part)
    if isinstance(block, dict):
        if part.extra:
            block.update(part.extra)
        if part.cache is not None:
            block["cache_control"] = _encode_mark(part.cache)
    return block


def _encode_mark(mark: CacheMark) -> Block:
    return {"type": "ephemeral"} if mark.ttl is None else {"type": "ephemeral", "ttl": mark.ttl}


def _encode_text(part: Text | Refusal) -> Block:
    return {"type": "text", "text": part.text}


def _encode_image(part: Image) -> Block:
    if part.data is not None:
        source = {"type": "base64", "media_type": part.media_type, "data": part.data}
    elif part.url is not None:
        source = {"type": "url", "url": part.url}
    else:
        raise NotExpressibleError("an image without data and without a URL")
    return {"type": "image", "source": source}


def _encode_document(part: Document) -> Block:
    block: Block = {"type": "document", "source": _encode_source(part)}
    if part.name is not None:
        block["title"] = part.name
    return block


def _encode_source(part: Document) -> Block:
    if part.text is not None:
        return {"type": "text", "media_type": part.media_type or "text/plain", "data": part.text}
    if part.data is not None:
        return {"type": "base64", "media_type": part.media_type, "data": part.data}
    if part.url is not None:
        return {"type": "url", "url": part.url}
    if part.file_id is not None:
        return {"type": "file", "file_id": part.file_id}
    raise NotExpressibleError("a document without data, text, URL or file id")


def _encode_call(part: ToolCall) -> Block:
    """A call; its arguments are wrapped if they are no JSON, as when they were cut off."""
    arguments = part.arguments or "{}"
    given = msgspec.Raw((arguments if is_json(arguments) else wrapped(arguments)).encode())
    return {"type": "tool_use", "id": part.id, "name": part.name, "input": given}


def _encode_result(part: ToolResult) -> Block:
    block: Block = {"type": "tool_result", "tool_use_id": part.call_id}
    if part.content:
        block["content"] = _encode_content(part.content)
    if part.is_error:
        block["is_error"] = True
    return block


def _encode_content(parts: tuple[ResultPart, ...]) -> str | list[Block | msgspec.Raw]:
    """One plain text as a string, anything else as blocks."""
    only = parts[0]
    plain = isinstance(only, Text) and only.text and not only.extra and only.cache is None
    if plain and len(parts) == 1 and isinstance(only, Text):
        return only.text
    return [encode_block(part) for part in parts]


def _encode_thinking(part: Thinking) -> Block:
    block = {"type": "thinking", "thinking": part.text}
    return block if part.signature is None else {**block, "signature": part.signature}


def _encode_redacted(part: RedactedThinking) -> Block:
    return {"type": "redacted_thinking", "data": part.data}


def _encode_unknown(part: Unknown) -> msgspec.Raw:
    if part.dialect != DIALECT:
        raise NotExpressibleError(f"a block that only {part.dialect} has")
    return msgspec.Raw(part.raw)


ENCODERS: dict[type, Callable[[Any], Block | msgspec.Raw]] = {
    Text: _encode_text,
    Refusal: _encode_text,
    Image: _encode_image,
    Document: _encode_document,
    ToolCall: _encode_call,
    ToolResult: _encode_result,
    Thinking: _encode_thinking,
    RedactedThinking: _encode_redacted,
    Unknown: _encode_unknown,
}

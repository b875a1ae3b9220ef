"""What the real providers refuse in a history, for the fake provider.

`refuse_request` returns the reason of a 400, or None. The types of the SDKs check the shape of a
request (`tests/request_validation.py`); here are the rules that no type expresses: attachments,
the order of messages, and the pairing of tool calls. Independent of cllm's own rules.
"""

import base64
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from tests.fake_provider import Request

Block = dict[str, Any]
IMAGES = {"image/jpeg", "image/png", "image/gif", "image/webp"}
BEDROCK_IMAGES = {"jpeg", "png", "gif", "webp"}
BEDROCK_DOCUMENTS = {"pdf", "csv", "doc", "docx", "xls", "xlsx", "html", "txt", "md"}
BEDROCK_TITLE = re.compile(r"[a-zA-Z0-9()\[\]\s-]{1,200}")
BEDROCK_ID = re.compile(r"[a-zA-Z0-9_.:-]{1,64}")
ANTHROPIC_ID = re.compile(r"[a-zA-Z0-9_-]+")
TEXT_SERVER = "text-only"
"""The models of a server that reads no attachments have this prefix."""


def refuse_request(request: Request) -> str | None:
    """Return why the provider of this path refuses the request."""
    if request.path == "/v1/messages":
        problems = _anthropic_problems(request.json)
    elif request.path.startswith("/model/"):
        problems = _bedrock_problems(request.json)
    elif request.path == "/v1/responses":
        problems = _responses_problems(request.json)
    else:
        problems = _chat_problems(request.json)
    return next(problems, None)


def _blocks(content: Any) -> list[Block]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content or ())


def _anthropic_problems(body: Block) -> Iterator[str]:
    messages = body["messages"]
    if messages[-1]["role"] == "assistant":
        yield "This model does not support assistant message prefill."
    for index, message in enumerate(messages):
        blocks = _blocks(message["content"])
        if not blocks:
            yield f"messages.{index}: content is empty"
        for block in blocks:
            yield from _anthropic_block_problems(block, message["role"], f"messages.{index}")
    yield from _call_problems(list(_merge_roles(messages)))


def _merge_roles(messages: list[Block]) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield the role, the calls and the results of each turn; the API merges equal roles."""
    merged: list[tuple[str, list[Block]]] = []
    for message in messages:
        if message["role"] == "system":
            continue
        if merged and merged[-1][0] == message["role"]:
            merged[-1][1].extend(_blocks(message["content"]))
        else:
            merged.append((message["role"], _blocks(message["content"])))
    for role, blocks in merged:
        calls = [block["id"] for block in blocks if block["type"] == "tool_use"]
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        yield role, calls, results


def _call_problems(turns: list[tuple[str, list[str], list[str]]]) -> Iterator[str]:
    for before, after in pairwise([("user", [], []), *turns, ("user", [], [])]):
        if sorted(before[1]) != sorted(after[2]):
            yield f"tool calls {before[1]} have the results {after[2]}"


def _anthropic_block_problems(  # noqa: C901, PLR0912 - one case per block
    block: Block, role: str, path: str
) -> Iterator[str]:
    match block["type"]:
        case "text":
            if not block["text"].strip():
                yield f"{path}: text content blocks must be non-empty"
        case "image":
            yield from _anthropic_source_problems(block["source"], IMAGES, path)
        case "document":
            yield from _anthropic_source_problems(block["source"], {"application/pdf"}, path)
        case "tool_use":
            if not ANTHROPIC_ID.fullmatch(block["id"]):
                yield f"{path}: invalid id {block['id']}"
        case "tool_result":
            for inner in _blocks(block.get("content")):
                yield from _anthropic_block_problems(inner, role, path)
        case "thinking":
            if not block.get("signature"):
                yield f"{path}: thinking.signature: Field required"
        case "redacted_thinking" | "container_upload":
            pass
        case other:
            yield f"{path}: Input tag '{other}' does not match any of the expected tags"
    if role == "assistant" and block["type"] in ("image", "document"):
        yield f"{path}: assistant messages contain no {block['type']}"


def _anthropic_source_problems(source: Block, types: set[str], path: str) -> Iterator[str]:
    match source["type"]:
        case "base64":
            if source["media_type"] not in types:
                yield f"{path}: media_type {source['media_type']} is not one of {sorted(types)}"
            base64.b64decode(source["data"], validate=True)
        case "url":
            if not source["url"].startswith("https://"):
                yield f"{path}: only HTTPS URLs are supported"
        case "file":
            if not source["file_id"].startswith("file_"):
                yield f"{path}: file not found: {source['file_id']}"


def _bedrock_problems(body: Block) -> Iterator[str]:
    messages = body["messages"]
    roles = [message["role"] for message in messages]
    if roles[0] != "user" or any(one == other for one, other in pairwise(roles)):
        yield f"A conversation must alternate between user and assistant roles: {roles}"
    if roles[-1] == "assistant":
        yield "This model does not support assistant message prefill."
    turns = []
    has_tools = False
    for index, message in enumerate(messages):
        content = message["content"]
        path = f"messages.{index}"
        if not content:
            yield f"{path}: The content field is empty"
        for block in content:
            yield from _bedrock_block_problems(block, path)
        kinds = {kind for block in content for kind in block}
        if "document" in kinds and "text" not in kinds:
            yield f"{path}: a document needs a text block"
        calls = [block["toolUse"]["toolUseId"] for block in content if "toolUse" in block]
        results = [block["toolResult"]["toolUseId"] for block in content if "toolResult" in block]
        has_tools = has_tools or bool(calls or results)
        if not all(BEDROCK_ID.fullmatch(call) for call in calls):
            yield f"{path}: invalid toolUseId in {calls}"
        turns.append((message["role"], calls, results))
    if has_tools and not body.get("toolConfig", {}).get("tools"):
        yield "The toolConfig field must be defined when using toolUse and toolResult blocks."
    yield from _call_problems(turns)


def _bedrock_block_problems(  # noqa: C901, PLR0912 - one case per block
    block: Block, path: str
) -> Iterator[str]:
    ((kind, value),) = block.items()
    match kind:
        case "text":
            if not value.strip():
                yield f"{path}: The text field is blank"
        case "image":
            if value["format"] not in BEDROCK_IMAGES:
                yield f"{path}: image format {value['format']}"
            yield from _bedrock_source_problems(value["source"], path)
        case "document":
            if value.get("format", "txt") not in BEDROCK_DOCUMENTS:
                yield f"{path}: document format {value['format']}"
            if not BEDROCK_TITLE.fullmatch(value["name"]):
                yield f"{path}: invalid document name {value['name']}"
            yield from _bedrock_source_problems(value["source"], path)
        case "toolResult":
            if not value["content"]:
                yield f"{path}: empty tool result"
            for inner in value["content"]:
                yield from _bedrock_block_problems(inner, path)
        case "reasoningContent":
            if not value.get("reasoningText", {"signature": "s"}).get("signature"):
                yield f"{path}: reasoning without a signature"
        case "toolUse" | "cachePoint" | "json":
            pass
        case _:
            yield f"{path}: unknown block {kind}"


def _bedrock_source_problems(source: Block, path: str) -> Iterator[str]:
    if "bytes" in source:
        base64.b64decode(source["bytes"], validate=True)
    elif "s3Location" in source and not source["s3Location"]["uri"].startswith("s3://"):
        yield f"{path}: not an S3 URI"


def _chat_problems(body: Block) -> Iterator[str]:
    model = body["model"]
    pending: list[str] = []
    for index, message in enumerate(body["messages"]):
        path = f"messages[{index}]"
        if message["role"] == "tool":
            if message["tool_call_id"] not in pending:
                yield f"{path}: 'tool' must be a response to a preceding message with 'tool_calls'"
            else:
                pending.remove(message["tool_call_id"])
        elif pending:
            yield f"{path}: tool_call_ids did not have response messages: {pending}"
        pending += [call["id"] for call in message.get("tool_calls") or ()]
        if message.get("content") is None and not message.get("tool_calls"):
            yield f"{path}: content: expected a string, got null"
        for block in _blocks(message.get("content")):
            yield from _chat_block_problems(block, message["role"], model, path)
    if pending:
        yield f"tool_call_ids did not have response messages: {pending}"


def _chat_block_problems(block: Block, role: str, model: str, path: str) -> Iterator[str]:
    kind = block["type"]
    if kind == "text" or (kind == "refusal" and role == "assistant"):
        return
    if role != "user" or model.startswith(TEXT_SERVER):
        yield f"{path}: Invalid value: '{kind}'. Supported values are: 'text'."
    if model.startswith("vision"):
        return
    if kind == "image_url" and "audio" not in model:
        url = block["image_url"]["url"]
        media_type = url.removeprefix("data:").partition(";")[0]
        if url.startswith("data:") and media_type not in IMAGES:
            yield f"{path}: unsupported image {media_type}"
    elif kind == "file" and "audio" not in model:
        data = block["file"].get("file_data", "data:application/pdf")
        if not data.startswith("data:application/pdf"):
            yield f"{path}: Expected a file with an application/pdf MIME type"
        if not block["file"].get("file_id", "file-").startswith("file-"):
            yield f"{path}: file not found"
    elif kind != "input_audio" or "audio" not in model:
        yield f"{path}: Invalid content type. {kind} is only supported by certain models."


def _responses_problems(body: Block) -> Iterator[str]:
    calls: set[str] = set()
    outputs: set[str] = set()
    for index, item in enumerate(body["input"]):
        path = f"input[{index}]"
        match item.get("type", "message"):
            case "message":
                for block in _blocks(item["content"]):
                    yield from _responses_block_problems(block, item["role"], path)
            case "function_call":
                calls.add(item["call_id"])
            case "function_call_output":
                outputs.add(item["call_id"])
            case "reasoning":
                if not item.get("encrypted_content"):
                    yield f"{path}: reasoning was not stored"
                if index + 1 == len(body["input"]):
                    yield f"{path}: reasoning without its required following item"
            case other:
                yield f"{path}: unknown item {other}"
    if calls != outputs:
        yield f"No tool output found for function call {calls ^ outputs}"


def _responses_block_problems(block: Block, role: str, path: str) -> Iterator[str]:
    kind = block["type"]
    if kind == "text" or (role == "assistant" and kind in ("output_text", "refusal")):
        return
    if role == "assistant" or kind not in ("input_text", "input_image", "input_file"):
        yield f"{path}: Invalid value: '{kind}'"
    url = block.get("image_url", "")
    media_type = url.removeprefix("data:").partition(";")[0]
    if url.startswith("data:") and media_type not in IMAGES:
        yield f"{path}: unsupported image {media_type}"
    if not (block.get("file_id") or "file-").startswith("file-"):
        yield f"{path}: file not found"

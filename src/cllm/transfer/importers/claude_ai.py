"""Reads the export of Claude.ai: a ZIP archive, its folder, or its `conversations.json`.

Anthropic publishes no schema. An export names neither models nor projects of a conversation.
"""

import re
from collections.abc import Iterator
from functools import partial
from typing import Any

from cllm.core.message import Message
from cllm.transfer.archive import Archive
from cllm.transfer.importers.content import (
    build_anthropic_message,
    parse_time,
    read_objects,
    read_text,
)
from cllm.transfer.importers.json_files import CONVERSATIONS, list_conversation_files, read_files
from cllm.transfer.message_tree import ImportedConversation, ImportedNode
from cllm.transfer.report import ImportReport

SOURCE = "claude-ai"
NO_PARENT = "00000000-0000-4000-8000-000000000000"
SILENT_BLOCKS = ("token_budget", "flag")
OTHER_DATA = re.compile(r"(?:.*/)?(?:(?:projects|memories)\.json|projects/[^/]+\.json)")
EMPTY_BYTES = 2
Block = dict[str, Any]


def is_conversation(fields: Block) -> bool:
    return isinstance(fields.get("chat_messages"), list)


def read_conversations(archive: Archive, report: ImportReport) -> Iterator[ImportedConversation]:
    if any(OTHER_DATA.fullmatch(file.name) and file.size > EMPTY_BYTES for file in archive.files):
        report.note("projects and memories are not conversations and were left out")
    read = partial(_read_conversation, report=report)
    files = list_conversation_files(archive)
    yield from read_files(archive, files, read, report, field=CONVERSATIONS)


def _read_conversation(fields: Block, *, report: ImportReport) -> Iterator[ImportedConversation]:
    ref, title = read_text(fields, "uuid"), read_text(fields, "name") or None
    if not is_conversation(fields) or not ref:
        report.skip("it has no messages" if ref else "it has no ID", id=ref or None, title=title)
        return
    messages = read_objects(fields, "chat_messages")
    has_parents = any(read_text(one, "parent_message_uuid") for one in messages)
    nodes: list[ImportedNode] = []
    for index, message in enumerate(messages):
        key = read_text(message, "uuid") or str(index)
        parent = read_text(message, "parent_message_uuid")
        if not has_parents:
            parent = nodes[-1].id if nodes else ""
        nodes.append(
            ImportedNode(
                id=key,
                parent=parent if parent not in ("", NO_PARENT) else None,
                messages=tuple(_MessageReader(key, message, report).read()),
                at=parse_time(message.get("created_at")),
            )
        )
    yield ImportedConversation(
        source=SOURCE,
        id=ref,
        nodes=tuple(nodes),
        title=title,
        created_at=parse_time(fields.get("created_at")),
        updated_at=parse_time(fields.get("updated_at")),
    )


class _MessageReader:
    """Reads one message. Results of tools become messages of their own, as in Anthropic's API."""

    def __init__(self, key: str, fields: Block, report: ImportReport) -> None:
        self._key = key
        self._fields = fields
        self._report = report
        self._open_calls: list[str] = []
        self._calls = 0

    def read(self) -> Iterator[Message]:
        sender = read_text(self._fields, "sender")
        if sender not in ("human", "assistant"):
            self._report.skip_message(f"message of the sender '{sender}'")
            return
        blocks = [
            block for one in read_objects(self._fields, "content") for block in self._read(one)
        ]
        text = read_text(self._fields, "text")
        if not blocks and text.strip():
            blocks = [{"type": "text", "text": text}]
        if sender == "human":
            blocks = [*self._attachments(), *blocks]
            if blocks:
                yield build_anthropic_message("user", blocks)
        else:
            yield from _split_results(blocks)
        if not blocks:
            self._report.skip_message("empty message")

    def _read(self, block: Block) -> Iterator[Block]:
        kind = read_text(block, "type")
        match kind:
            case "text" | "voice_note":
                text = read_text(block, "text", "transcript", "title")
                if text.strip():
                    yield {"type": "text", "text": text}
            case "thinking":
                yield from _read_thinking(block)
            case "redacted_thinking":
                yield {"type": kind, "data": read_text(block, "data")}
            case "tool_use":
                yield self._read_call(block)
            case "tool_result":
                yield self._read_result(block)
            case _ if kind not in SILENT_BLOCKS:
                self._report.note(f"a block of the type '{kind}' was left out")

    def _read_call(self, block: Block) -> Block:
        call_id = _clean_id(read_text(block, "id"))
        if not call_id:
            call_id = _clean_id(f"toolu_{self._key}_{self._calls}")
        self._calls += 1
        self._open_calls.append(call_id)
        arguments = block.get("input")
        name = read_text(block, "name") or "tool"
        call = {"type": "tool_use", "id": call_id, "name": name}
        return {**call, "input": arguments if isinstance(arguments, dict) else {}}

    def _read_result(self, block: Block) -> Block:
        call_id = _clean_id(read_text(block, "tool_use_id"))
        if not call_id and self._open_calls:
            call_id = self._open_calls[0]
        if call_id in self._open_calls:
            self._open_calls.remove(call_id)
        content = block.get("content")
        texts = [content] if isinstance(content, str) else []
        texts += [_result_text(one) for one in read_objects(block, "content")]
        result: Block = {"type": "tool_result", "tool_use_id": call_id}
        result["content"] = [{"type": "text", "text": text} for text in texts if text.strip()]
        return {**result, "is_error": True} if block.get("is_error") is True else result

    def _attachments(self) -> Iterator[Block]:
        for one in read_objects(self._fields, "attachments"):
            name, text = read_text(one, "file_name"), read_text(one, "extracted_content")
            if text.strip():
                source = {"type": "text", "media_type": "text/plain", "data": text}
                block = {"type": "document", "source": source}
                yield {**block, "title": name} if name else block
            else:
                yield self._missing_file(name)
        for one in read_objects(self._fields, "files"):
            yield self._missing_file(read_text(one, "file_name"))

    def _missing_file(self, name: str) -> Block:
        self._report.note("a file is not in the export")
        return {"type": "text", "text": f"[file: {name}]" if name else "[file]"}


def _read_thinking(block: Block) -> Iterator[Block]:
    summaries = (read_text(one, "summary") for one in read_objects(block, "summaries"))
    text = read_text(block, "thinking") or "\n".join(filter(None, summaries))
    if text:
        signature = read_text(block, "signature")
        yield {"type": "thinking", "thinking": text, "signature": signature}


def _result_text(block: Block) -> str:
    match read_text(block, "type"):
        case "text":
            return read_text(block, "text")
        case "image":
            return "[image]"
        case _:
            names = ("title", "name", "url", "file_path", "text")
            return "\n".join(dict.fromkeys(filter(None, (read_text(block, n) for n in names))))


def _split_results(blocks: list[Block]) -> Iterator[Message]:
    """Yield the replies, and between them the results of their calls as user messages."""
    run: list[Block] = []
    for block in blocks:
        is_result = block["type"] == "tool_result"
        if run and is_result != (run[0]["type"] == "tool_result"):
            yield _build_run(run)
            run = []
        run.append(block)
    if run:
        yield _build_run(run)


def _build_run(run: list[Block]) -> Message:
    is_result = run[0]["type"] == "tool_result"
    return build_anthropic_message("user" if is_result else "assistant", run)


def _clean_id(call_id: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "_", call_id)

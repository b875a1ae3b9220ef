"""The messages of Open WebUI: text, reasoning, tool calls and files."""

import json
import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any

from cllm.core.message import AnyPart, Image, Message, Text, Thinking, ToolCall, ToolResult
from cllm.core.reply import Usage
from cllm.transfer.archive import Archive
from cllm.transfer.importers.attachment_budget import AttachmentBudget
from cllm.transfer.importers.content import (
    build_attachment,
    build_message,
    build_placeholder,
    parse_time,
    read_count,
    read_object,
    read_objects,
    read_text,
)
from cllm.transfer.importers.open_webui_database import find_file
from cllm.transfer.message_tree import ImportedNode
from cllm.transfer.report import ImportReport
from cllm.wire.openai.parts import image_source

UPLOADS = "uploads"
DETAILS, DETAILS_END = "<details type=", "</details>"
SUMMARY, SUMMARY_END = "<summary>", "</summary>"
CODE_INTERPRETER = "open_webui:code_interpreter"
SILENT_ITEM = "open_webui:"
Fields = dict[str, Any]


class OpenWebuiFiles:
    """The files of messages: `uploads/<ID>_<name>` in the source, or the text in the database."""

    def __init__(
        self,
        archive: Archive,
        report: ImportReport,
        *,
        database: sqlite3.Connection | None = None,
    ) -> None:
        self.budget = AttachmentBudget(report)
        self._archive = archive
        self._report = report
        self._database = database
        self._uploads = {
            file.base.partition("_")[0]: file
            for file in archive.files
            if f"/{file.name}".endswith(f"/{UPLOADS}/{file.base}")
        }

    def read(self, file: Fields) -> AnyPart:
        url = read_text(file, "url")
        is_image = read_text(file, "type") == "image"
        if is_image and url.startswith(("data:", "https://", "http://")):
            return Image(**image_source(url))
        inner = read_object(file, "file")
        ref = read_text(file, "id") or read_text(inner, "id") or _find_id(url)
        stored = {} if self._database is None or not ref else find_file(self._database, ref)
        name = read_text(file, "name", "filename") or read_text(stored, "filename") or None
        upload = self._uploads.get(ref) if ref else None
        data = None if upload is None else self.budget.read(self._archive, upload)
        if data is not None:
            kind = read_text(file, "content_type") or read_text(
                read_object(inner, "meta") or read_object(stored, "meta"), "content_type"
            )
            return build_attachment(data, name=name, media_type=kind or None)
        text = read_text(read_object(inner, "data"), "content") or read_text(
            read_object(stored, "data"), "content"
        )
        if text and self.budget.take(len(text)):
            return Text(text=f"[file: {name}]\n{text}")
        self._report.note("a file is not in the export")
        return build_placeholder("image" if is_image else "file", name)


def _find_id(url: str) -> str:
    """Return the ID of a file in a URL such as `/api/v1/files/ID/content`."""
    return url.removesuffix("/content").rpartition("/")[2]


def read_node(
    key: str, message: Fields, files: OpenWebuiFiles, report: ImportReport
) -> ImportedNode:
    role = read_text(message, "role")
    is_reply = role == "assistant"
    messages: Sequence[Message] = ()
    if is_reply:
        messages = _read_reply(key, message, files, report)
    elif role == "user":
        parts = [*_read_content(message.get("content")), *_read_files(message, files)]
        messages = [build_message("user", parts)] if parts else []
    if not messages:
        is_known = role in ("user", "assistant") or not message.get("content")
        report.skip_message("empty message" if is_known else f"message of the role '{role}'")
    return ImportedNode(
        id=key,
        parent=read_text(message, "parentId") or None,
        messages=tuple(messages),
        at=parse_time(message.get("timestamp")),
        model=(read_text(message, "model") or None) if is_reply else None,
        usage=_read_usage(message) if is_reply else None,
        is_complete=not is_reply or message.get("done") is not False,
    )


def _read_reply(
    key: str, message: Fields, files: OpenWebuiFiles, report: ImportReport
) -> list[Message]:
    """Return the messages of a reply: those of `output`, else `content`, else the error."""
    messages = _OutputReader(key, report).read(read_objects(message, "output"))
    parts: list[AnyPart] = []
    has_text = any(one.role == "assistant" and one.text.strip() for one in messages)
    if not has_text:
        for part in _read_content(message.get("content")):
            if isinstance(part, Text):
                parts += _split_details(part.text, has_output=bool(messages))
            else:
                parts.append(part)
    if not has_text and not parts and (error := _read_error(message)):
        report.note("an error message became the text of a reply")
        parts.append(Text(text=error))
    parts += _read_files(message, files)
    return [*messages, build_message("assistant", parts)] if parts else messages


def _read_error(message: Fields) -> str:
    return read_text(read_object(message, "error"), "content", "detail") or read_text(
        message, "error"
    )


def _read_content(content: Any) -> Iterator[AnyPart]:
    if isinstance(content, str):
        if content.strip():
            yield Text(text=content)
        return
    for block in read_objects({"content": content}, "content"):
        url = read_text(read_object(block, "image_url"), "url")
        if url:
            yield Image(**image_source(url))
        elif (text := read_text(block, "text")).strip():
            yield Text(text=text)


def _read_files(message: Fields, files: OpenWebuiFiles) -> list[AnyPart]:
    return [files.read(file) for file in read_objects(message, "files")]


def _split_details(content: str, *, has_output: bool) -> Iterator[AnyPart]:
    """Yield the reasoning that older versions write into the text, then the text.

    `has_output`: the text repeats tool calls, which are left out here.
    """
    thoughts: list[AnyPart] = []
    rest: list[str] = []
    position = 0
    while (start := content.find(DETAILS, position)) >= 0:
        head_end = content.find(">", start)
        end = content.find(DETAILS_END, head_end)
        if head_end < 0 or end < 0:
            break
        is_reasoning = content.startswith('"reasoning"', start + len(DETAILS))
        if is_reasoning and (text := _read_thought(content[head_end + 1 : end])):
            thoughts.append(Thinking(text=text))
        end += len(DETAILS_END)
        is_dropped = is_reasoning or has_output
        rest.append(content[position : start if is_dropped else end])
        position = end
    rest.append(content[position:])
    yield from thoughts
    if text := "".join(rest).strip():
        yield Text(text=text)


def _read_thought(text: str) -> str:
    text = text.strip()
    if text.startswith(SUMMARY):
        text = text.partition(SUMMARY_END)[2]
    return text.strip()


class _OutputReader:
    """Reads `output`: items as in OpenAI's Responses API."""

    def __init__(self, key: str, report: ImportReport) -> None:
        self._key = key
        self._report = report
        self._messages: list[Message] = []
        self._parts: list[AnyPart] = []

    def read(self, items: Sequence[Fields]) -> list[Message]:
        for number, item in enumerate(items):
            self._add(read_text(item, "type"), item, f"call_{self._key}_{number}")
        self._flush()
        return self._messages

    def _flush(self) -> None:
        if self._parts:
            self._messages.append(build_message("assistant", self._parts))
            self._parts = []

    def _add(self, kind: str, item: Fields, new_id: str) -> None:
        match kind:
            case "message":
                texts = (read_text(one, "text") for one in read_objects(item, "content"))
                if text := "".join(texts):
                    self._parts.append(Text(text=text))
            case "reasoning":
                blocks = read_objects(item, "summary") or read_objects(item, "content")
                if text := "".join(read_text(one, "text") for one in blocks):
                    self._parts.append(Thinking(text=text))
            case "function_call":
                self._add_call(read_text(item, "call_id") or new_id, item)
            case "function_call_output":
                self._add_result(read_text(item, "call_id") or new_id, item.get("output"))
            case _ if kind == CODE_INTERPRETER:
                self._add_code(item, new_id)
            case _ if not kind.startswith(SILENT_ITEM):
                self._report.note(f"an item of the type '{kind}' was left out")

    def _add_call(self, call_id: str, item: Fields) -> None:
        arguments = item.get("arguments")
        if not isinstance(arguments, str):
            arguments = json.dumps(arguments or {}, ensure_ascii=False)
        name = read_text(item, "name") or "tool"
        self._parts.append(ToolCall(id=call_id, name=name, arguments=arguments or "{}"))

    def _add_result(self, call_id: str, output: Any) -> None:
        self._flush()
        content: list[Any] = [Text(text=output)] if isinstance(output, str) and output else []
        for block in read_objects({"output": output}, "output"):
            url = read_text(block, "image_url")
            if url:
                content.append(Image(**image_source(url)))
            elif text := read_text(block, "text"):
                content.append(Text(text=text))
        result = ToolResult(call_id=call_id, content=tuple(content))
        self._messages.append(build_message("tool", [result]))

    def _add_code(self, item: Fields, call_id: str) -> None:
        code = read_text(item, "code")
        arguments = json.dumps({"code": code}, ensure_ascii=False)
        self._parts.append(ToolCall(id=call_id, name="code_interpreter", arguments=arguments))
        output = item.get("output")
        if output:
            text = read_text(output, "stdout", "result") if isinstance(output, dict) else output
            self._add_result(call_id, text)


def _read_usage(message: Fields) -> Usage | None:
    usage = read_object(message, "usage") or read_object(read_object(message, "info"), "usage")
    if not usage:
        return None
    prompt = read_count(usage, "input_tokens", "prompt_tokens", "prompt_eval_count")
    output = read_count(usage, "output_tokens", "completion_tokens", "eval_count")
    return Usage(input=prompt, output=output)

"""Reads the sessions of Codex: `rollout-*.jsonl` files, also compressed with zstd."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, BinaryIO, cast

import msgspec

from cllm.core.message import Message, Role
from cllm.core.reply import Usage
from cllm.transfer.archive import Archive, SourceFile
from cllm.transfer.importers.content import parse_time, read_count, read_object, read_text
from cllm.transfer.json_stream import DamagedFileError, decode_object, iter_lines
from cllm.transfer.message_tree import ImportedConversation, ImportedNode
from cllm.transfer.report import ImportReport

SOURCE = "codex"
COMPRESSED = ".jsonl.zst"
NO_ZSTD = "it is compressed with zstd, which needs Python 3.14; decompress it with: zstd -d FILE"
CALLS = ("function_call", "custom_tool_call", "local_shell_call", "web_search_call")
RESULTS = ("function_call_output", "custom_tool_call_output")
ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant"}
INJECTED = ("<environment_context>", "<user_instructions>", "# AGENTS.md instructions")
Line = dict[str, Any]


def read_conversations(archive: Archive, report: ImportReport) -> Iterator[ImportedConversation]:
    for file in archive.files:
        if not file.base.endswith((".jsonl", COMPRESSED)) or file.base == "session_index.jsonl":
            continue
        session = _Session(report)
        try:
            with _open_lines(archive, file) as stream:
                for data in iter_lines(stream):
                    session.add(decode_object(data))
        except DamagedFileError as error:
            report.skip(str(error), damaged=True, path=file.name)
        if session.nodes:
            yield session.build(file)


@contextmanager
def _open_lines(archive: Archive, file: SourceFile) -> Iterator[BinaryIO]:
    with archive.open(file) as stream:
        if not file.base.endswith(COMPRESSED):
            yield stream
            return
        try:
            zstd = import_module("compression.zstd")
        except ImportError:
            raise DamagedFileError(NO_ZSTD) from None
        try:
            with zstd.open(stream, "rb") as decompressed:
                yield cast("BinaryIO", io.BufferedReader(decompressed))
        except (zstd.ZstdError, EOFError):
            raise DamagedFileError("its compressed data is damaged") from None


class _Session:
    """Collects the items of one session; consecutive items of a reply are one message."""

    def __init__(self, report: ImportReport) -> None:
        self.nodes: list[ImportedNode] = []
        self._report = report
        self._meta: Line = {}
        self._model: str | None = None
        self._turn_starts: list[int] = []

    def add(self, line: Line) -> None:
        payload = read_object(line, "payload")
        match read_text(line, "type"):
            case "session_meta":
                self._meta = self._meta or payload
            case "turn_context":
                self._model = read_text(payload, "model") or self._model
            case "response_item":
                self._add_item(payload, line)
            case "event_msg":
                self._add_event(payload)
            case _:
                pass

    def _add_event(self, payload: Line) -> None:
        kind = read_text(payload, "type")
        if kind == "thread_rolled_back":
            for _ in range(read_count(payload, "num_turns")):
                if self._turn_starts:
                    del self.nodes[self._turn_starts.pop() :]
        elif kind == "token_count" and self.nodes:
            usage = read_object(read_object(payload, "info"), "last_token_usage")
            last = self.nodes[-1]
            if usage and last.model is not None:
                self.nodes[-1] = msgspec.structs.replace(last, usage=_read_usage(usage))

    def _add_item(self, item: Line, line: Line) -> None:
        kind = read_text(item, "type")
        if kind == "message":
            role = ROLES.get(read_text(item, "role"))
            if role is None:
                self._report.skip_message("system message of Codex")
                return
            if role == "user":
                self._add_user(item, line)
                return
        elif kind in RESULTS:
            self._append("tool", [item], line)
            return
        elif kind not in (*CALLS, "reasoning"):
            self._report.skip_message(f"item of the type '{kind}'")
            return
        self._add_reply(item, line)

    def _add_user(self, item: Line, line: Line) -> None:
        texts = [read_text(block, "text") for block in item.get("content") or [] if block]
        if texts and all(text.startswith(INJECTED) for text in texts):
            self._report.skip_message("message that Codex added")
            return
        if not self.nodes or self.nodes[-1].messages[0].role != "user":
            self._turn_starts.append(len(self.nodes))
        raw = msgspec.json.encode({"role": "user", "content": item.get("content")})
        message = Message(role="user", raw=raw, dialect="responses")
        self._append_message(message, line, model=None)

    def _add_reply(self, item: Line, line: Line) -> None:
        last = self.nodes[-1] if self.nodes else None
        if last is not None and last.messages[0].role == "assistant":
            items = last.messages[0].json()["content"]
            message = _items_message("assistant", [*items, item])
            self.nodes[-1] = msgspec.structs.replace(last, messages=(message,))
        else:
            self._append("assistant", [item], line)

    def _append(self, role: Role, items: list[Line], line: Line) -> None:
        model = self._model if role == "assistant" else None
        self._append_message(_items_message(role, items), line, model=model)

    def _append_message(self, message: Message, line: Line, *, model: str | None) -> None:
        parent = self.nodes[-1].id if self.nodes else None
        self.nodes.append(
            ImportedNode(
                id=str(len(self.nodes)),
                parent=parent,
                messages=(message,),
                at=parse_time(line.get("timestamp")),
                model=model,
            )
        )

    def build(self, file: SourceFile) -> ImportedConversation:
        instructions = self._meta.get("base_instructions")
        system = read_text(instructions, "text")
        if isinstance(instructions, str):
            system = instructions
        names = ("cwd", "cli_version", "model_provider", "forked_from_id", "parent_thread_id")
        details = {name: read_text(self._meta, name) for name in names}
        return ImportedConversation(
            source=SOURCE,
            id=read_text(self._meta, "id") or file.base,
            nodes=tuple(self.nodes),
            system=system or None,
            model=self._model,
            created_at=parse_time(self._meta.get("timestamp")),
            metadata={SOURCE: {name: value for name, value in details.items() if value}},
        )


def _items_message(role: Role, items: list[Line]) -> Message:
    raw = msgspec.json.encode({"role": role, "content": items})
    return Message(role=role, raw=raw, dialect="responses")


def _read_usage(usage: Line) -> Usage:
    cached = read_count(usage, "cached_input_tokens")
    reasoning = read_count(usage, "reasoning_output_tokens")
    return Usage(
        input=max(0, read_count(usage, "input_tokens") - cached),
        output=max(0, read_count(usage, "output_tokens") - reasoning),
        cache_read=cached,
        reasoning=reasoning,
    )

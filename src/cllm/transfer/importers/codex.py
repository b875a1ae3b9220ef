"""Reads the sessions of Codex: `rollout-*.jsonl` files, also compressed with zstd.

A turn that was rolled back stays as another path. The records `world_state`, and those that repeat
items, have no messages. The names of sessions are in `session_index.jsonl`.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from cllm.core.conversation import Branch
from cllm.core.message import Message, Role
from cllm.core.reply import Usage
from cllm.transfer.archive import Archive, SourceFile, open_archive
from cllm.transfer.importers.content import (
    parse_time,
    read_count,
    read_object,
    read_objects,
    read_text,
)
from cllm.transfer.importers.session_file import COMPRESSED, NO_MESSAGES, Line, read_records
from cllm.transfer.message_tree import ImportedConversation, ImportedNode
from cllm.transfer.report import ImportReport

SOURCE = "codex"
INDEX = "session_index.jsonl"
SESSIONS = "sessions"
ROLLOUT = "rollout-"
CALLS = (
    *("function_call", "custom_tool_call", "local_shell_call", "web_search_call"),
    *("tool_search_call", "tool_search_output", "image_generation_call"),
)
RESULTS = ("function_call_output", "custom_tool_call_output")
COMPACTIONS = ("compaction", "compaction_summary", "compaction_trigger", "context_compaction")
COMPACTION = "summary of a compaction"
SILENT_RECORDS = (
    *("world_state", "security_risk_score", "inter_agent_communication_metadata"),
    "",
)
ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant"}
INJECTED = ("<environment_context>", "<user_instructions>", "# AGENTS.md instructions")


def read_conversations(archive: Archive, report: ImportReport) -> Iterator[ImportedConversation]:
    names = _read_names(archive, report)
    for file in archive.files:
        if not file.base.endswith((".jsonl", COMPRESSED)) or file.base == INDEX:
            continue
        session = _Session(report)
        lines = read_records(archive, file, report)
        for line in lines:
            session.add(line)
        if session.has_messages:
            yield session.build(file, names)
        elif lines and file.base.startswith(ROLLOUT):
            report.skip(NO_MESSAGES, path=file.name)


def _read_names(archive: Archive, report: ImportReport) -> dict[str, str]:
    """Return the names of sessions by their IDs; the last one of a session counts."""
    names: dict[str, str] = {}
    for source in (archive, _find_index(archive)):
        for file in () if source is None else source.files:
            if file.base == INDEX and source is not None:
                for line in read_records(source, file, report):
                    ref, name = read_text(line, "id"), read_text(line, "thread_name")
                    if ref and name:
                        names[ref] = name
    return names


def _find_index(archive: Archive) -> Archive | None:
    """Return the index of the folder that contains `sessions`, if the source is inside of it."""
    if not archive.can_read_neighbours:
        return None
    path = archive.path.absolute()
    folder = next((one for one in (path, *path.parents) if one.name == SESSIONS), None)
    if folder is None or not Path(folder.parent, INDEX).is_file():
        return None
    return open_archive(folder.parent / INDEX)


class _Entry(msgspec.Struct, kw_only=True):
    """One message; `items` are those of a reply or the results of tools."""

    id: str
    parent: str | None
    role: Role
    items: list[Any]
    line: Line
    model: str | None = None
    usage: Usage | None = None

    def build(self) -> ImportedNode:
        raw = msgspec.json.encode({"role": self.role, "content": self.items})
        return ImportedNode(
            id=self.id,
            parent=self.parent,
            messages=(Message(role=self.role, raw=raw, dialect="responses"),),
            at=parse_time(self.line.get("timestamp")),
            model=self.model,
            usage=self.usage,
        )


class _Session:
    """Collects the items of one session; consecutive items of a reply are one message."""

    def __init__(self, report: ImportReport) -> None:
        self._report = report
        self._meta: Line = {}
        self._model: str | None = None
        self._entries: list[_Entry] = []
        self._path: list[_Entry] = []
        """The entries of the current path: all but those that were rolled back."""
        self._turn_starts: list[int] = []

    @property
    def has_messages(self) -> bool:
        return bool(self._entries)

    def add(self, line: Line) -> None:
        payload = read_object(line, "payload")
        kind = read_text(line, "type")
        match kind:
            case "session_meta":
                self._meta = self._meta or payload
            case "turn_context":
                self._model = read_text(payload, "model") or self._model
            case "response_item":
                self._add_item(payload, line)
            case "event_msg":
                self._add_event(payload)
            case "compacted":
                self._add_compaction(payload, line)
            case _ if kind not in SILENT_RECORDS:
                self._report.note(f"a record of the type '{kind}' was left out")

    def _add_compaction(self, payload: Line, line: Line) -> None:
        """Add the messages that a summary replaces only if the file does not have them itself."""
        if self._entries:
            self._report.skip_message(COMPACTION)
            return
        for item in read_objects(payload, "replacement_history"):
            self._add_item(item, line)

    def _add_event(self, payload: Line) -> None:
        kind = read_text(payload, "type")
        if kind == "thread_rolled_back":
            count = min(read_count(payload, "num_turns"), len(self._turn_starts))
            if count:
                del self._path[self._turn_starts[-count] :]
                del self._turn_starts[-count:]
        elif kind == "token_count" and self._path:
            usage = read_object(read_object(payload, "info"), "last_token_usage")
            last = self._path[-1]
            if usage and last.role == "assistant":
                last.usage = _read_usage(usage)

    def _add_item(self, item: Line, line: Line) -> None:
        kind = read_text(item, "type")
        role = ROLES.get(read_text(item, "role"))
        if kind in COMPACTIONS:
            self._report.skip_message(COMPACTION)
        elif kind == "message" and role is None:
            self._report.skip_message("system message of Codex")
        elif kind == "message" and role == "user":
            self._add_user(item, line)
        elif kind in RESULTS:
            self._append("tool", [item], line)
        elif kind in (*CALLS, "reasoning", "message"):
            self._add_reply(item, line)
        else:
            self._report.skip_message(f"item of the type '{kind}'")

    def _add_user(self, item: Line, line: Line) -> None:
        content = item.get("content")
        blocks = content if isinstance(content, list) else [{"type": "input_text", "text": content}]
        texts = [read_text(block, "text") for block in blocks]
        if texts and all(text.startswith(INJECTED) for text in texts):
            self._report.skip_message("message that Codex added")
            return
        if not self._path or self._path[-1].role != "user":
            self._turn_starts.append(len(self._path))
        self._append("user", blocks, line)

    def _add_reply(self, item: Line, line: Line) -> None:
        last = self._path[-1] if self._path else None
        if last is not None and last.role == "assistant":
            last.items.append(item)
        else:
            self._append("assistant", [item], line)

    def _append(self, role: Role, items: list[Any], line: Line) -> None:
        entry = _Entry(
            id=str(len(self._entries)),
            parent=self._path[-1].id if self._path else None,
            role=role,
            items=items,
            line=line,
            model=self._model if role == "assistant" else None,
        )
        self._entries.append(entry)
        self._path.append(entry)

    def build(self, file: SourceFile, names: dict[str, str]) -> ImportedConversation:
        instructions = self._meta.get("base_instructions")
        system = read_text(instructions, "text")
        if isinstance(instructions, str):
            system = instructions
        fields = ("cwd", "cli_version", "model_provider", "forked_from_id", "parent_thread_id")
        details = {name: read_text(self._meta, name) for name in fields}
        ref, parent = read_text(self._meta, "id") or file.base, details["parent_thread_id"]
        return ImportedConversation(
            source=SOURCE,
            id=ref,
            nodes=tuple(entry.build() for entry in self._entries),
            current=self._path[-1].id if self._path else None,
            title=names.get(ref),
            system=system or None,
            model=self._model,
            created_at=parse_time(self._meta.get("timestamp")),
            is_side=bool(parent),
            parent=Branch(conversation=parent, sequence=0, kind="side") if parent else None,
            metadata={SOURCE: {name: value for name, value in details.items() if value}},
        )


def _read_usage(usage: Line) -> Usage:
    cached = read_count(usage, "cached_input_tokens")
    reasoning = read_count(usage, "reasoning_output_tokens")
    return Usage(
        input=max(0, read_count(usage, "input_tokens") - cached),
        output=max(0, read_count(usage, "output_tokens") - reasoning),
        cache_read=cached,
        reasoning=reasoning,
    )

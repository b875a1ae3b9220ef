"""Reads `logs.db` of the command `llm`: its older tables and its message store.

Since `llm` 0.32 new replies are only in the message store; older ones stay where they are. A
conversation that was continued since is a thread with the same ID that has all of its messages.
"""

import hashlib
import json
import sqlite3
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec

from cllm.core.conversation import Branch
from cllm.core.message import AnyPart, Image, Message, Text, Thinking, ToolCall, ToolResult
from cllm.core.reply import Usage
from cllm.files import read_regular_file
from cllm.transfer.archive import MAX_ATTACHMENT_BYTES, Archive
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
from cllm.transfer.importers.sqlite_file import (
    Row,
    find_databases,
    list_tables,
    open_read_only,
    select,
)
from cllm.transfer.json_stream import DamagedFileError, decode_object
from cllm.transfer.message_tree import ImportedConversation, ImportedNode
from cllm.transfer.report import ImportReport

SOURCE = "llm"
TEXT_COLUMNS = frozenset(
    {
        *(
            "arguments",
            "conversation_id",
            "conversation_model",
            "conversation_name",
            "datetime_utc",
        ),
        *("forked_from", "hash", "message_hash", "model", "name", "output", "parent_hash"),
        *("parent_message_hash", "path", "payload", "prompt", "reasoning", "resolved_model"),
        *("response", "role", "system", "text", "tip_message_hash", "token_details"),
        *("tool_call_id", "tool_name", "type", "url"),
    }
)
"""SQLite stores a value of any type in every column."""


def read_conversations(archive: Archive, report: ImportReport) -> Iterator[ImportedConversation]:
    databases = list(find_databases(archive))
    if not databases:
        report.skip("it has no database of llm", damaged=True, path=archive.path.name)
    for path in databases:
        try:
            with open_read_only(path) as database:
                reader = _LogsReader(database, report, can_read_files=archive.can_read_neighbours)
                yield from reader.read()
        except (DamagedFileError, sqlite3.Error) as error:
            report.skip(str(error), damaged=True, path=str(path))


class _LogsReader:
    """`can_read_files`: whether attachments that the database refers to by a path are read."""

    def __init__(
        self, database: sqlite3.Connection, report: ImportReport, *, can_read_files: bool
    ) -> None:
        self._db = database
        self._report = report
        self._tables = list_tables(database)
        self._budget = AttachmentBudget(report)
        self._can_read_files = can_read_files

    def read(self) -> Iterator[ImportedConversation]:
        threads = set()
        if "threads" in self._tables:
            threads = {row["id"] for row in self._select("SELECT id FROM threads")}
        if "responses" in self._tables:
            for conversation in self._read_responses():
                if conversation.id not in threads:
                    yield conversation
        if threads:
            yield from self._read_threads()

    def _select(self, statement: str, *values: Any) -> Iterator[Row]:
        return (_clean_row(row) for row in select(self._db, statement, *values))

    def _select_from(self, table: str, statement: str, *values: Any) -> list[Row]:
        """Return rows of a table that older versions do not have."""
        return list(self._select(statement, *values)) if table in self._tables else []

    # The older tables.

    def _read_responses(self, only: str | None = None) -> Iterator[ImportedConversation]:
        where = "" if only is None else "WHERE r.conversation_id = ?"
        rows = self._select(
            f"""SELECT r.*, c.name AS conversation_name, c.model AS conversation_model
            FROM responses r LEFT JOIN conversations c ON c.id = r.conversation_id {where}
            ORDER BY coalesce(r.conversation_id, r.id), r.id""",  # noqa: S608 - a constant
            *(() if only is None else (only,)),
        )
        for ref, group in groupby(rows, key=lambda row: row["conversation_id"] or row["id"]):
            yield self._read_legacy(str(ref), list(group))

    def _read_legacy(self, ref: str, rows: Sequence[Row]) -> ImportedConversation:
        self._budget.reset()
        nodes: list[ImportedNode] = []
        systems: list[str] = []
        for row in rows:
            systems += filter(None, [self._join(row["id"], row["system"], "system")])
            for node in self._read_response(row):
                parent = nodes[-1].id if nodes else None
                nodes.append(msgspec.structs.replace(node, parent=parent))
        return ImportedConversation(
            source=SOURCE,
            id=ref,
            nodes=tuple(nodes),
            title=rows[0]["conversation_name"],
            model=rows[0]["conversation_model"],
            system=self._choose_system(systems),
            created_at=nodes[0].at if nodes else None,
            updated_at=nodes[-1].at if nodes else None,
        )

    def _choose_system(self, systems: Sequence[str]) -> str | None:
        if len(set(systems)) > 1:
            self._report.note("a later system prompt of a conversation was left out")
        return systems[0] if systems else None

    def _read_response(self, row: Row) -> Iterator[ImportedNode]:
        """Yield the results of tools and the prompt, then the reply."""
        ref, at = row["id"], parse_time(row["datetime_utc"])
        results = self._select_from(
            "tool_results", "SELECT * FROM tool_results WHERE response_id = ? ORDER BY id", ref
        )
        messages = tuple(_build_result(one["tool_call_id"], one["output"]) for one in results)
        yield ImportedNode(id=f"{ref}:results", messages=messages, at=at)
        parts: list[AnyPart] = []
        if text := self._join(ref, row["prompt"], "prompt"):
            parts.append(Text(text=text))
        attachments = self._select_from(
            "prompt_attachments",
            """SELECT a.* FROM prompt_attachments p JOIN attachments a ON a.id = p.attachment_id
            WHERE p.response_id = ? ORDER BY p."order" """,
            ref,
        )
        parts += [self._read_attachment(one) for one in attachments]
        prompt = (build_message("user", parts),) if parts else ()
        yield ImportedNode(id=f"{ref}:prompt", messages=prompt, at=at)
        reply = self._read_reply(row)
        if reply:
            yield ImportedNode(
                id=str(ref),
                messages=(build_message("assistant", reply),),
                at=at,
                model=row.get("resolved_model") or row["model"],
                usage=_read_usage(row),
            )

    def _read_reply(self, row: Row) -> list[AnyPart]:
        parts: list[AnyPart] = []
        if row.get("reasoning"):
            parts.append(Thinking(text=row["reasoning"]))
        if row["response"]:
            parts.append(Text(text=row["response"]))
        calls = self._select_from(
            "tool_calls", "SELECT * FROM tool_calls WHERE response_id = ? ORDER BY id", row["id"]
        )
        for call in calls:
            call_id = call["tool_call_id"] or f"call_{row['id']}_{call['id']}"
            arguments = call["arguments"] or "{}"
            parts.append(ToolCall(id=call_id, name=call["name"] or "tool", arguments=arguments))
        return parts

    def _join(self, ref: str, text: str | None, kind: str) -> str:
        """Return the fragments and the text, as `llm` sends them."""
        rows = self._select_from(
            f"{kind}_fragments",
            f"""SELECT f.content FROM {kind}_fragments p JOIN fragments f ON f.id = p.fragment_id
            WHERE p.response_id = ? ORDER BY p."order" """,  # noqa: S608 - of two constants
            ref,
        )
        fragments = (_as_text(row["content"] or "") for row in rows)
        return "\n".join(filter(None, [*fragments, text or ""]))

    def _read_attachment(self, row: Row) -> AnyPart:
        """Return an attachment. A file of the disk is read if it has the recorded hash."""
        media_type, data = row["type"], row["content"]
        if isinstance(data, bytes) and self._budget.take(len(data)):
            return build_attachment(data, media_type=media_type)
        if row["url"] and str(media_type or "image/").startswith("image/"):
            return Image(media_type=media_type, url=row["url"])
        path = row["path"]
        data = self._read_file(path) if path and self._can_read_files else b""
        is_same = data and hashlib.sha256(data).hexdigest() == row["id"]
        if is_same and self._budget.take(len(data)):
            return build_attachment(data, name=Path(path).name, media_type=media_type)
        self._report.note("a file is not in the database, and not on the disk as it was")
        return build_placeholder("file", row["url"] or (Path(path).name if path else None))

    def _read_file(self, path: Any) -> bytes:
        try:
            return read_regular_file(Path(str(path)), limit=MAX_ATTACHMENT_BYTES)
        except (OSError, ValueError):
            return b""

    # The message store.

    def _read_threads(self) -> Iterator[ImportedConversation]:
        for row in self._select("SELECT * FROM threads ORDER BY datetime_utc, id"):
            turns = list(
                self._select(
                    "SELECT * FROM turns WHERE thread_id = ? ORDER BY datetime_utc, id", row["id"]
                )
            )
            yield self._read_thread(row, turns)

    def _read_thread(self, row: Row, turns: Sequence[Row]) -> ImportedConversation:
        self._budget.reset()
        rows: dict[str, Row] = {}
        for tip in (row["tip_message_hash"], *(turn["tip_message_hash"] for turn in turns)):
            self._walk(tip, rows)
        by_tip = {turn["tip_message_hash"]: turn for turn in turns}
        by_prompt = {turn["parent_message_hash"]: turn for turn in turns}
        nodes: list[ImportedNode] = []
        systems: list[str] = []
        for key, message in rows.items():
            messages = self._read_message(key, message["role"], systems)
            turn = by_tip.get(key)
            owner = turn or by_prompt.get(key)
            node = ImportedNode(id=key, parent=message["parent_hash"], messages=tuple(messages))
            if owner is not None:
                node = msgspec.structs.replace(node, at=parse_time(owner["datetime_utc"]))
            if turn is not None:
                model = turn["resolved_model"] or turn["model"]
                node = msgspec.structs.replace(node, model=model, usage=_read_usage(turn))
            nodes.append(node)
        return self._with_older_fields(
            ImportedConversation(
                source=SOURCE,
                id=str(row["id"]),
                nodes=tuple(nodes),
                current=row["tip_message_hash"],
                title=row["name"],
                system=self._choose_system(systems),
                created_at=parse_time(row["datetime_utc"]),
                parent=self._find_parent(row, rows),
            )
        )

    def _walk(self, tip: str | None, rows: dict[str, Row]) -> None:
        """Add the messages from a tip to its root, oldest first."""
        path: dict[str, Row] = {}
        while tip is not None and tip not in rows and tip not in path:
            found = next(self._select("SELECT * FROM messages WHERE hash = ?", tip), None)
            if found is None:
                break
            path[tip] = found
            tip = found["parent_hash"]
        rows.update(reversed(path.items()))

    def _find_parent(self, row: Row, rows: dict[str, Row]) -> Branch | None:
        """Return the thread that this one was forked from, and the messages that both have."""
        if not row["forked_from"]:
            return None
        statement = "SELECT tip_message_hash FROM threads WHERE id = ?"
        origin = next(self._select(statement, row["forked_from"]), None)
        if origin is None:
            return None
        others: dict[str, Row] = {}
        self._walk(origin["tip_message_hash"], others)
        shared = [key for key in rows if key in others and others[key]["role"] != "system"]
        count = sum(len(self._read_message(key, others[key]["role"], [])) for key in shared)
        return Branch(conversation=row["forked_from"], sequence=count)

    def _with_older_fields(self, thread: ImportedConversation) -> ImportedConversation:
        """Add the times, models and usage of replies before the thread was continued."""
        if "responses" not in self._tables:
            return thread
        older = next(self._read_responses(thread.id), None)
        if older is None:
            return thread
        nodes = list(thread.nodes)
        known = {message: node for node in older.nodes for message in node.messages}
        for index, node in enumerate(nodes):
            earlier = known.get(node.messages[0]) if node.messages else None
            if earlier is not None and node.at is None:
                nodes[index] = msgspec.structs.replace(
                    node, at=earlier.at, model=earlier.model, usage=earlier.usage
                )
        return msgspec.structs.replace(
            thread,
            nodes=tuple(nodes),
            title=older.title or thread.title,
            created_at=older.created_at or thread.created_at,
        )

    def _read_message(self, key: str, role: str, systems: list[str]) -> Sequence[Message]:
        rows = self._select("SELECT * FROM parts WHERE message_hash = ? ORDER BY position", key)
        parts = [part for row in rows for part in self._read_part(row)]
        if role == "system":
            texts = [part.text for part in parts if isinstance(part, Text)]
            systems += filter(None, ["\n".join(texts)])
            return ()
        results = [part for part in parts if isinstance(part, ToolResult)]
        if results:
            return [build_message("tool", [result]) for result in results]
        if not parts or role not in ("user", "assistant"):
            self._report.skip_message("empty message")
            return ()
        return (build_message("user" if role == "user" else "assistant", parts),)

    def _read_part(self, row: Row) -> Iterator[AnyPart]:
        payload = _decode(row["payload"])
        match row["type"]:
            case "text":
                if text := row["text"] or self._resolve(payload):
                    yield Text(text=text)
            case "reasoning":
                if row["text"]:
                    yield Thinking(text=row["text"])
            case "tool_call":
                arguments = json.dumps(payload.get("arguments") or {}, ensure_ascii=False)
                call_id = read_text(payload, "tool_call_id") or f"call_{row['id']}"
                name = read_text(payload, "name") or row["tool_name"] or "tool"
                yield ToolCall(id=call_id, name=name, arguments=arguments)
            case "tool_result":
                output = read_text(payload, "output") or row["text"] or ""
                content: list[Any] = [Text(text=output)] if output else []
                for one in read_objects(payload, "attachments"):
                    content += self._find_attachments(read_text(one, "id"))
                yield ToolResult(call_id=read_text(payload, "tool_call_id"), content=tuple(content))
            case "attachment":
                yield from self._find_attachments(
                    read_text(read_object(payload, "attachment"), "id")
                )
            case kind:
                self._report.note(f"a part of the type '{kind}' was left out")

    def _find_attachments(self, ref: str) -> list[AnyPart]:
        rows = self._select_from("attachments", "SELECT * FROM attachments WHERE id = ?", ref)
        return [self._read_attachment(row) for row in rows]

    def _resolve(self, payload: dict[str, Any]) -> str:
        """Return a text that refers to fragments."""
        pieces: list[str] = []
        references = payload.get("text_ref")
        for one in references if isinstance(references, list) else ():
            if isinstance(one, dict) and "fragment" in one:
                statement = "SELECT content FROM fragments WHERE id = ?"
                ref = one["fragment"] if isinstance(one["fragment"], int | str) else None
                rows = self._select(statement, ref)
                pieces += (_as_text(row["content"] or "") for row in rows)
            else:
                pieces.append(read_text(one, "literal"))
        return "".join(pieces)


def _clean_row(row: Row) -> Row:
    """Return a row whose columns for texts have texts."""
    return {
        name: _as_text(value) if name in TEXT_COLUMNS and value is not None else value
        for name, value in row.items()
    }


def _as_text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _build_result(call_id: str | None, output: str | None) -> Message:
    content = (Text(text=output),) if output else ()
    return build_message("tool", [ToolResult(call_id=call_id or "", content=content)])


def _decode(payload: str | None) -> dict[str, Any]:
    try:
        return decode_object(str(payload or "{}").encode())
    except DamagedFileError:
        return {}


def _read_usage(row: Row) -> Usage | None:
    """Return the tokens of a reply; `token_details` has the part that was read from a cache."""
    if row.get("input_tokens") is None and row.get("output_tokens") is None:
        return None
    details = _decode(row.get("token_details"))
    prompt = read_object(details, "prompt_tokens_details") or details
    cached = min(read_count(prompt, "cached_tokens"), read_count(row, "input_tokens"))
    completion = read_object(details, "completion_tokens_details") or details
    reasoning = min(read_count(completion, "reasoning_tokens"), read_count(row, "output_tokens"))
    return Usage(
        input=read_count(row, "input_tokens") - cached,
        output=read_count(row, "output_tokens") - reasoning,
        cache_read=cached,
        reasoning=reasoning,
    )

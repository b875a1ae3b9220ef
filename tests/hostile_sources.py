"""Sources with any values and links, in every format of an import."""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
from tests.import_sources import (
    chatgpt_conversation,
    claude_conversation,
    codex_line,
    write_lines,
)

START = 1_760_000_000


class HostileMessage(msgspec.Struct):
    id: str
    parent: str | None = None
    role: str = "user"
    text: Any = "Hello"
    at: Any = START
    model: Any = "a-model"


def write_json(path: Path, value: Any) -> Path:
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


def as_chatgpt(folder: Path, messages: list[HostileMessage], title: Any) -> Path:
    nodes = [
        {
            "id": one.id,
            "parent": one.parent,
            "message": {
                "author": {"role": one.role},
                "create_time": one.at,
                "content": {"content_type": "text", "parts": [one.text]},
                "metadata": {"model_slug": one.model},
            },
        }
        for one in messages
    ]
    fields = {"title": title, "create_time": messages[0].at, "gizmo_id": title}
    return write_json(folder / "conversations.json", [chatgpt_conversation("x", *nodes, **fields)])


def as_claude_ai(folder: Path, messages: list[HostileMessage], title: Any) -> Path:
    listed = [
        {
            "uuid": one.id,
            "parent_message_uuid": one.parent,
            "sender": "human" if one.role == "user" else "assistant",
            "content": [{"type": "text", "text": one.text}],
            "created_at": one.at,
        }
        for one in messages
    ]
    conversation = {**claude_conversation("x", *listed), "name": title, "updated_at": title}
    return write_json(folder / "conversations.json", [conversation])


def as_claude_code(folder: Path, messages: list[HostileMessage], title: Any) -> Path:
    lines = [
        {
            "type": one.role,
            "uuid": one.id,
            "parentUuid": one.parent,
            "sessionId": "x",
            "timestamp": one.at,
            "cwd": title,
            "message": {"role": one.role, "content": one.text, "model": one.model},
        }
        for one in messages
    ]
    return write_lines(folder / "x.jsonl", *lines, {"type": "summary", "summary": title})


def as_codex(folder: Path, messages: list[HostileMessage], title: Any) -> Path:
    lines: list[Any] = [codex_line("session_meta", id="x", cwd=title, timestamp=messages[0].at)]
    for one in messages:
        kind = "input_text" if one.role == "user" else "output_text"
        content = [{"type": kind, "text": one.text}]
        lines.append(codex_line("turn_context", model=one.model))
        lines.append(
            {
                **codex_line("response_item", type="message", role=one.role, content=content),
                "timestamp": one.at,
            }
        )
    return write_lines(folder / "rollout-x.jsonl", *lines)


def as_open_webui(folder: Path, messages: list[HostileMessage], title: Any) -> Path:
    history = {
        one.id: {
            "parentId": one.parent,
            "role": one.role,
            "content": one.text,
            "timestamp": one.at,
            "model": one.model,
        }
        for one in messages
    }
    chat = {"title": title, "history": {"messages": history, "currentId": messages[-1].id}}
    fields = {"id": "x", "title": title, "chat": chat, "created_at": messages[0].at}
    return write_json(folder / "chats.json", [{**fields, "meta": {"tags": [title]}}])


def as_llm(folder: Path, messages: list[HostileMessage], title: Any) -> Path:
    path = folder / "logs.db"

    def column(value: Any) -> Any:
        is_plain = isinstance(value, str | int) and not isinstance(value, bool)
        text = value if is_plain else json.dumps(value)
        if isinstance(text, int):
            return text if abs(text) < 2**63 else str(text)[:100]
        return text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")

    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE conversations (id, name, model)")
        database.execute("INSERT INTO conversations VALUES ('x', ?, ?)", (column(title), "m"))
        database.execute(
            """CREATE TABLE responses
            (id, model, prompt, system, response, conversation_id, datetime_utc)"""
        )
        for number, one in enumerate(messages):
            prompt, reply = (one.text, "") if one.role == "user" else ("", one.text)
            row = (f"{number:05}", one.model, prompt, "", reply, "x", one.at)
            database.execute(
                "INSERT INTO responses VALUES (?, ?, ?, ?, ?, ?, ?)", tuple(map(column, row))
            )
    database.close()
    return path


def as_cllm(folder: Path, messages: list[HostileMessage], title: Any) -> Path:
    listed = [{"role": one.role, "content": one.text} for one in messages]
    at = "2026-01-01T00:00:00Z" if messages[0].at == START else messages[0].at
    fields = {"id": "x", "model": messages[0].model, "messages": listed, "title": title}
    return write_json(folder / "x.json", {**fields, "created_at": at, "metadata": {"a": title}})


Writer = Callable[[Path, list[HostileMessage], Any], Path]
WRITERS: dict[str, Writer] = {
    "chatgpt": as_chatgpt,
    "claude-ai": as_claude_ai,
    "claude-code": as_claude_code,
    "codex": as_codex,
    "open-webui": as_open_webui,
    "llm": as_llm,
    "cllm": as_cllm,
}

TEXTS = {
    "surrogate": "a\ud800b",
    "nul": "a\0b",
    "controls": "\x1b[31m\r\n\x07\u202e",
    "not_a_text": {"a": [1, None]},
    "number": 10**30,
    "long": "x" * 300_000,
}

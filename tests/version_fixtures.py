"""Files and databases of one version, which every later version must open.

`python -m tests.version_fixtures` writes those of the current version to
`tests/fixtures/versions/VERSION`. Run it once, before a release. Files of released versions do not
change. `tests/acceptance/test_version_fixtures.py` opens all of them.
"""

import asyncio
import gzip
import json
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Iterable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg
import msgspec
import sqlalchemy as sa
from tests.message_strategies import DATA
from tests.postgres import own_server
from tests.snapshot_rows import fill_server_store

import cllm
from cllm.core.conversation import (
    Branch,
    ContextCommandRecord,
    ContextRecord,
    StandingSummary,
    StoredConversation,
    SystemRecord,
    Turn,
    TurnFailure,
    WindowRecord,
)
from cllm.core.message import Dialect, Message, Role, plain_message
from cllm.core.notice import Notice
from cllm.core.ports import Store
from cllm.core.reply import Usage
from cllm.stores.postgres.connection import run_in_postgres
from cllm.stores.postgres.store import PostgresStore
from cllm.stores.registry import open_store
from cllm.stores.sql import VERSION_TABLE, migrate
from cllm.stores.sqlite.store import SqliteStore
from cllm.transfer.backup_writer import write_backup
from cllm.transfer.export_formats import encode_line, encode_markdown_file

VERSIONS = Path(__file__).parent / "fixtures" / "versions"
MAX_BYTES = 200_000
MOMENT = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
USAGE = Usage(input=120, output=30, cache_read=100, cache_write=10, reasoning=5)
DATA_URL = f"data:image/png;base64,{DATA}"
CLLMFILE = """\
# A Cllmfile with every kind of setting: values, lists, sections and variables.
model: openai/gpt-4o
temperature: 0.3
max_tokens: 500
num_retries: 2
default_system_message: You answer in one sentence about ${PROJECT}.
fallbacks: [anthropic/claude-sonnet-4-5]
variables:
  PROJECT: cats
context_commands:
  - {name: Branch, command: git branch --show-current, on_failure: ignore}
providers:
  my-vllm: {type: openai, api_base: "http://127.0.0.1:8000/v1", models: [llama-3.1-8b]}
server:
  port: 3001
"""


def message(role: Role, content: Any, dialect: Dialect = "openai", **fields: Any) -> Message:
    raw = msgspec.json.encode({"role": role, "content": content, **fields})
    return Message(role=role, raw=raw, dialect=dialect)


def openai_messages() -> Iterable[Message]:
    call = {"name": "look_up", "arguments": '{"word": "zebra"}'}
    yield message(
        "user",
        [
            {"type": "text", "text": "What is a zebra? 猫 \U0001f993"},
            {"type": "image_url", "image_url": {"url": DATA_URL, "detail": "low"}},
            {"type": "file", "file": {"file_data": DATA_URL, "filename": "a.pdf"}},
        ],
    )
    yield message(
        "assistant", None, tool_calls=[{"id": "call_1", "type": "function", "function": call}]
    )
    yield message("tool", "An animal.", tool_call_id="call_1")
    yield message("assistant", "An animal with stripes.", reasoning_content="Stripes.", odd=1.5)


def anthropic_messages() -> Iterable[Message]:
    source = {"type": "base64", "media_type": "image/png", "data": DATA}
    yield message(
        "user",
        [
            {"type": "image", "source": source},
            {"type": "document", "source": {"type": "url", "url": "https://example.com/b"}},
            {"type": "text", "text": "And this?", "cache_control": {"type": "ephemeral"}},
        ],
        "anthropic",
    )
    yield message(
        "assistant",
        [
            {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"},
            {"type": "redacted_thinking", "data": DATA},
            {"type": "tool_use", "id": "call_2", "name": "now", "input": {}},
        ],
        "anthropic",
    )
    result = {"type": "tool_result", "tool_use_id": "call_2", "content": "12:00", "is_error": True}
    yield message("user", [result], "anthropic")
    yield message("assistant", [{"type": "text", "text": "Noon."}, {"type": "new"}], "anthropic")


def other_messages() -> Iterable[Message]:
    yield message(
        "user",
        [{"text": "Hello"}, {"image": {"format": "png", "source": {"bytes": DATA}}}],
        "bedrock",
    )
    reasoning = {"reasoningText": {"text": "Hm.", "signature": "c2ln"}}
    yield message("assistant", [{"reasoningContent": reasoning}, {"text": "Hi."}], "bedrock")
    yield message("user", [{"type": "input_text", "text": "Again"}], "responses")
    yield message(
        "assistant",
        [
            {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": DATA},
            {
                "type": "message",
                "id": "msg_1",
                "role": "assistant",
                "content": [{"type": "refusal", "refusal": "No."}],
            },
        ],
        "responses",
    )


def turn(number: int, messages: Iterable[Message], **fields: Any) -> Turn:
    started = MOMENT + timedelta(minutes=number)
    values: dict[str, Any] = {
        "id": f"turn-{number}",
        "place": f"turn-{number}",
        "state": "complete",
        "started_at": started,
        "ended_at": started + timedelta(seconds=9),
        "model": "openai/gpt-4o",
        "provider": "openai",
        "usage": USAGE,
        "cost": 0.00125,
    }
    return Turn(messages=tuple(messages), **(values | fields))


def make_conversations() -> tuple[StoredConversation, ...]:
    """Every kind of message, turn and record, in two conversations; the second is a branch."""
    failure = TurnFailure(code="interrupted", message="The turn was interrupted before it ended.")
    first = StoredConversation(
        id="all-parts",
        created_at=MOMENT,
        updated_at=MOMENT + timedelta(hours=1),
        model="openai/gpt-4o",
        title="Zebras and other animals",
        system=plain_message("system", "You are a zoologist."),
        system_record=SystemRecord(policy="captured", source="Cllmfile.yml"),
        context_record=ContextRecord(
            executed_at=MOMENT,
            commands=(
                ContextCommandRecord(name="Branch", command="git branch", state="ok", exit_code=0),
            ),
        ),
        turns=(
            turn(1, openai_messages(), window=WindowRecord(first_sequence=1, sent_messages=2)),
            turn(2, anthropic_messages(), notices=(Notice(code="a", path="b", message="c"),)),
            turn(3, other_messages()),
            turn(4, [message("user", "Wait.")], state="failed", failure=failure, usage=None),
            turn(
                5,
                [message("user", "Go on."), message("assistant", "It is")],
                state="incomplete",
                failure=failure,
            ),
        ),
        variants=(
            turn(6, [*[*openai_messages()][:1], message("assistant", "A horse.")], place="turn-1"),
        ),
        pins=(1, 4),
        summary=StandingSummary(
            text="They discuss zebras.", through=4, tokens=6, model="openai/gpt-4o", made_at=MOMENT
        ),
        metadata={"project": "zoo", "nested": {"list": [1, None, "é"]}},
    )
    second = StoredConversation(
        id="branch",
        created_at=MOMENT,
        updated_at=MOMENT + timedelta(hours=2),
        turns=(turn(7, [message("user", "Giraffes?"), message("assistant", "Tall.")]),),
        parent=Branch(conversation="all-parts", sequence=0),
        source="claude-code",
        archived_at=MOMENT + timedelta(days=1),
    )
    return first, second


def describe(conversation: StoredConversation) -> dict[str, Any]:
    """Return everything that a later version must find, as JSON."""

    def describe_turn(stored: Turn) -> dict[str, Any]:
        return {
            "state": stored.state,
            "model": stored.model,
            "usage": None if stored.usage is None else stored.usage.total,
            "cost": stored.cost,
            "messages": [[one.role, one.dialect, one.raw.decode()] for one in stored.messages],
        }

    return {
        "title": conversation.title,
        "model": conversation.model,
        "created_at": conversation.created_at.isoformat(),
        "system": conversation.system and conversation.system.text,
        "turns": [describe_turn(one) for one in conversation.turns],
        "variants": [describe_turn(one) for one in conversation.variants],
        "pins": list(conversation.pins),
        "summary": conversation.summary and conversation.summary.text,
        "is_branch": conversation.parent is not None,
        "source": conversation.source,
        "is_archived": conversation.archived_at is not None,
        "metadata": conversation.metadata,
    }


async def fill(store: Store) -> None:
    for conversation in make_conversations():
        await store.add(conversation, preserve_times=True)


async def write_files(folder: Path) -> None:
    """Write the conversation files, the backup and the exports."""
    store = open_store(f"json:{folder / 'conversations'}", clock=lambda: MOMENT)
    await fill(store)
    facts, lines, pages = {}, b"", b""
    for conversation in make_conversations():
        stored = await store.load(conversation.id)
        facts[conversation.id] = describe(stored)
        lines += encode_line(stored)
        pages += encode_markdown_file(stored)
    with (folder / "backup.zip").open("w+b") as file:
        result = await write_backup(store, file, now=MOMENT, version=cllm.__version__)
        assert not result.problems
    await store.close()
    text = json.dumps(facts, ensure_ascii=False, indent=1, sort_keys=True)
    (folder / "facts.json").write_text(text + "\n", encoding="utf-8")
    (folder / "export.jsonl").write_bytes(lines)
    (folder / "export.md").write_bytes(pages)
    (folder / "Cllmfile.yml").write_text(CLLMFILE, encoding="utf-8")


async def write_sqlite(folder: Path, temporary: Path) -> None:
    path = temporary / "cllm.db"
    store = open_store(f"sqlite:{path}", clock=lambda: MOMENT)
    await fill(store)
    assert isinstance(store, SqliteStore)
    await fill_server_store(store)
    await store.close()
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA journal_mode=DELETE")
        database.execute("VACUUM")
    (folder / "cllm.db.gz").write_bytes(gzip.compress(path.read_bytes(), mtime=0))


async def write_postgres(folder: Path, url: str) -> None:
    """Write the revision, the sequences and the rows of each table as JSON."""
    store = open_store(url, clock=lambda: MOMENT)
    await fill(store)
    assert isinstance(store, PostgresStore)
    await fill_server_store(store)
    await store.close()
    connection = await asyncpg.connect(url)
    try:
        names = await connection.fetch(
            "SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY tablename"
        )
        tables = {}
        for (name,) in names:
            rows = await connection.fetch(f"SELECT to_jsonb(t) FROM {name} t")  # noqa: S608
            tables[name] = [json.loads(row) for (row,) in rows]
        used = "SELECT sequencename, last_value FROM pg_sequences WHERE last_value IS NOT NULL"
        sequences = {row["sequencename"]: row["last_value"] for row in await connection.fetch(used)}
    finally:
        await connection.close()
    (row,) = tables.pop(VERSION_TABLE)
    saved = {"revision": row["version_num"], "sequences": sequences, "tables": tables}
    packed = gzip.compress(json.dumps(saved, sort_keys=True).encode(), mtime=0)
    (folder / "postgres.json.gz").write_bytes(packed)


def load_postgres(folder: Path, url: str) -> None:
    """Fill an empty database with the saved rows, at the revision of that version."""
    saved = json.loads(gzip.decompress((folder / "postgres.json.gz").read_bytes()))

    def work(bind: sa.Connection) -> None:
        migrate.upgrade(bind, saved["revision"])
        order = sa.MetaData()
        order.reflect(bind)
        for table in order.sorted_tables:
            if rows := saved["tables"].get(table.name):
                statement = (
                    f"INSERT INTO {table.name} OVERRIDING SYSTEM VALUE SELECT * FROM "  # noqa: S608
                    f"jsonb_populate_recordset(NULL::{table.name}, CAST(:rows AS jsonb))"
                )
                bind.execute(sa.text(statement), {"rows": json.dumps(rows)})
        for name, value in saved["sequences"].items():
            bind.execute(sa.text("SELECT setval(:name, :value)"), {"name": name, "value": value})

    run_in_postgres(url, work)


def main(folder: Path) -> None:
    if folder.exists():
        sys.exit(f"{folder} exists; files of a released version do not change.")
    with tempfile.TemporaryDirectory() as temporary, own_server() as server:
        new = Path(temporary) / "new"
        new.mkdir()
        asyncio.run(write_files(new))
        asyncio.run(write_sqlite(new, Path(temporary)))
        url = server.url(asyncio.run(server.create_database()))
        run_in_postgres(url, migrate.prepare)
        asyncio.run(write_postgres(new, url))
        shutil.rmtree(new / "conversations" / ".locks", ignore_errors=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(new, folder)


if __name__ == "__main__":
    main(VERSIONS / cllm.__version__)

"""Describes the databases that `cllm db upgrade` creates: tables, columns, indexes, functions."""

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import asyncpg
from tests.command import Cllm
from tests.postgres import Server
from tests.surface_generator.text import document, section

COLUMNS = """
    SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull,
           a.attidentity <> '' AS counts
    FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
    WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p')
      AND a.attnum > 0 AND NOT a.attisdropped
    ORDER BY c.relname, a.attname
"""
INDEXES = "SELECT tablename, indexdef FROM pg_indexes WHERE schemaname = 'public' ORDER BY 1, 2"
CONSTRAINTS = """
    SELECT conrelid::regclass::text, pg_get_constraintdef(oid) FROM pg_constraint
    WHERE connamespace = 'public'::regnamespace AND contype = 'f' ORDER BY 1, 2
"""
FUNCTIONS = """
    SELECT proname, pg_get_function_identity_arguments(oid), prorettype::regtype::text
    FROM pg_proc WHERE pronamespace = 'public'::regnamespace ORDER BY 1, 2
"""
SEQUENCES = "SELECT sequencename FROM pg_sequences WHERE schemaname = 'public' ORDER BY 1"


def surface(cllm: Cllm, folder: Path, postgres: Server) -> dict[str, str]:
    path = folder / "tables.db"
    cllm("db", "upgrade", "--store", f"sqlite:{path}").succeeded()
    with closing(sqlite3.connect(path)) as connection:
        sqlite = list(_sqlite(connection))
    name = asyncio.run(postgres.create_database())
    cllm("db", "upgrade", "--store", postgres.url(name)).succeeded()
    server = asyncio.run(_postgres(postgres.url(name)))
    asyncio.run(postgres.drop_database(name))
    about = "Tables of a database at the newest revision, by engine."
    return {"tables.txt": document(about, *sqlite, *server)}


def _sqlite(connection: sqlite3.Connection) -> Iterator[list[str]]:
    objects = connection.execute(
        "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY type DESC, name"
    ).fetchall()
    virtual = [name for _, name, _, sql in objects if (sql or "").startswith("CREATE VIRTUAL")]
    for kind, name, _, sql in objects:
        # SQLite manages the internal tables of a virtual table.
        if kind != "table" or name.startswith(tuple(f"{table}_" for table in virtual)):
            continue
        columns = connection.execute(f"PRAGMA table_info('{name}')").fetchall()
        lines = sorted(_column(name=c[1], type=c[2], required=c[3], key=c[5]) for c in columns)
        indexes = (o[3] for o in objects if o[0] == "index" and o[2] == name and o[3])
        lines += [f"  {' '.join(one.split())}" for one in indexes]
        lines += sorted(_references(connection, name))
        lines += [f"  {' '.join(sql.split())}"] * (name in virtual)
        yield section(f"SQLite table {name}", lines)
    others = [f"  {kind} {name}" for kind, name, _, _ in objects if kind not in ("table", "index")]
    yield section("SQLite, other objects", others or ["  none"])


def _references(connection: sqlite3.Connection, table: str) -> Iterator[str]:
    for row in connection.execute(f"PRAGMA foreign_key_list('{table}')").fetchall():
        _, _, target, column, target_column, _, on_delete, _ = row
        yield f"  {column} REFERENCES {target}({target_column}) ON DELETE {on_delete}"


def _column(*, name: str, type: str, required: Any, key: Any = 0) -> str:  # noqa: A002
    facts = [name, type, "NOT NULL" if required else "", f"key {key}" if key else ""]
    return "  " + " ".join(filter(None, facts))


async def _postgres(url: str) -> list[list[str]]:
    connection = await asyncpg.connect(url)
    try:
        columns, indexes, constraints, functions, sequences = [
            [tuple(row) for row in await connection.fetch(query)]
            for query in (COLUMNS, INDEXES, CONSTRAINTS, FUNCTIONS, SEQUENCES)
        ]
    finally:
        await connection.close()
    tables = sorted({row[0] for row in columns})
    sections = []
    for table in tables:
        lines = [
            _column(name=column, type=kind + " identity" * counts, required=required)
            for owner, column, kind, required, counts in columns
            if owner == table
        ]
        more = [f"  {text}" for owner, text in (*indexes, *constraints) if owner == table]
        sections.append(section(f"PostgreSQL table {table}", [*lines, *more]))
    signatures = [f"  {name}({arguments}) -> {result}" for name, arguments, result in functions]
    sections.append(section("PostgreSQL functions", signatures))
    sections.append(section("PostgreSQL sequences", [f"  {name}" for (name,) in sequences]))
    return sections

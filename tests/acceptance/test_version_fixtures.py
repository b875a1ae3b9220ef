"""Files and databases of every released version open, and nothing in them is lost."""

import asyncio
import gzip
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.version_fixtures import (
    MAX_BYTES,
    VERSIONS,
    describe,
    load_postgres,
    make_conversations,
)

import cllm as package
from cllm.app import now
from cllm.stores.registry import open_store

KINDS = ("json", "sqlite", "postgresql", "backup", "export")
each_version = pytest.mark.parametrize(
    "folder", sorted(VERSIONS.iterdir()), ids=lambda folder: folder.name
)


@pytest.fixture
def postgres_url(postgres_server) -> Iterator[str]:
    name = asyncio.run(postgres_server.create_database())
    yield postgres_server.url(name)
    asyncio.run(postgres_server.drop_database(name))


@pytest.fixture
def prepare(cllm, home, request, tmp_path) -> Callable[[Path, str], str]:
    """Copies a fixture, or restores or imports it; returns the URL of the store."""

    def start(folder: Path, kind: str) -> str:
        if kind == "json":
            shutil.copytree(folder / "conversations", tmp_path / "old")
            return f"json:{tmp_path / 'old'}"
        if kind == "sqlite":
            data = gzip.decompress((folder / "cllm.db.gz").read_bytes())
            (tmp_path / "old.db").write_bytes(data)
        if kind == "postgresql":
            url: str = request.getfixturevalue("postgres_url")
            load_postgres(folder, url)
        else:
            url = f"sqlite:{tmp_path / 'old.db'}"
        if kind == "backup":
            cllm("restore", str(folder / "backup.zip"), "--store", url).succeeded()
        elif kind == "export":
            source = str(folder / "export.jsonl")
            cllm("conversations", "import", source, "--store", url).succeeded()
        else:
            cllm("db", "upgrade", "--store", url).succeeded()
        return url

    return start


def load_facts(url: str) -> dict[str, Any]:
    async def load() -> dict[str, Any]:
        store = open_store(url, clock=now)
        try:
            page = await store.list_conversations(archive_filter="all")
            loaded = [await store.load(one.ref) for one in page.items]
        finally:
            await store.close()
        return {one.ref: describe(one) for one in loaded}

    return asyncio.run(load())


def test_the_current_version_has_its_files():
    """If it fails before a release, run: python -m tests.version_fixtures"""
    assert (VERSIONS / package.__version__ / "facts.json").exists()


@each_version
def test_the_files_of_a_version_are_complete_and_small(folder):
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < MAX_BYTES
    assert {
        "Cllmfile.yml",
        "all-parts.json",
        "backup.zip",
        "cllm.db.gz",
        "export.jsonl",
        "export.md",
        "facts.json",
        "postgres.json.gz",
    } <= {path.name for path in files}


@each_version
@pytest.mark.parametrize("kind", KINDS)
def test_old_conversations_are_listed_searched_verified_and_continued(
    folder, kind, prepare, cllm, settings, provider
):
    url = prepare(folder, kind)
    facts = json.loads((folder / "facts.json").read_bytes())
    found = load_facts(url)

    assert {name: found[name] for name in facts} == facts
    assert "Zebras and other animals" in cllm("conversations", "list", "--store", url).out
    assert "all-parts" in cllm("search", "zebra", "--store", url).succeeded().out
    cllm("verify", "--store", url).succeeded()
    # The history has messages of four protocols; the provider gets all that it accepts.
    cllm("Hello again", "--conversation", "all-parts", "--store", url).succeeded()
    assert "zebra" in json.dumps(provider.requests[-1].json)
    continued = load_facts(url)["all-parts"]
    before = facts["all-parts"]["turns"]
    assert continued["turns"][: len(before)] == before
    assert len(continued["turns"]) == len(before) + 1
    cllm("verify", "--store", url).succeeded()


@each_version
def test_an_old_backup_is_verified(folder, cllm):
    assert "all complete" in cllm("verify", str(folder / "backup.zip")).succeeded().out


@each_version
def test_an_old_cllmfile_is_read_without_warnings(folder, cllm, home):
    shutil.copy(folder / "Cllmfile.yml", home.work)
    shown = cllm("--show-config", "--trust").succeeded()
    assert not shown.warnings
    for value in ("openai/gpt-4o", "0.3", "llama-3.1-8b", "3001"):
        assert value in shown.out


@each_version
def test_an_old_export_has_the_text_of_every_message(folder):
    text = (folder / "export.md").read_text(encoding="utf-8")
    assert text.count("# ") >= 2
    assert "An animal with stripes." in text


def test_the_conversations_of_the_fixtures_contain_every_dialect_and_state():
    first, _ = make_conversations()
    assert {one.dialect for one in first.messages} == {
        "openai",
        "anthropic",
        "bedrock",
        "responses",
    }
    assert {one.state for one in first.turns} == {"complete", "incomplete", "failed"}

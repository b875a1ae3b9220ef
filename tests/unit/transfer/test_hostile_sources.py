"""Sources that want to do harm: each one ends with a report or one sentence, and whole messages.

Every format gets the same hostile messages. What was stored can be loaded, and a second import of
the same source changes nothing.
"""

import io
import json
import sqlite3
import struct
import zipfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.hostile_sources import (
    TEXTS,
    WRITERS,
    HostileMessage,
    as_chatgpt,
    as_cllm,
    as_codex,
    as_open_webui,
)
from tests.import_sources import (
    LLM_FOLDER,
    chatgpt_cats,
    chatgpt_conversation,
    claude_birds,
    open_webui_chat,
    write_chatgpt,
    write_claude,
    write_claude_code,
    write_codex,
    write_zip,
)
from tests.unit.transfer.conftest import Import

from cllm.app import now
from cllm.core.conversation import StoredConversation
from cllm.core.errors import UsageError
from cllm.core.ports import Store
from cllm.stores.memory import MemoryStore
from cllm.stores.registry import open_store
from cllm.transfer import archive as archives
from cllm.transfer import json_stream
from cllm.transfer.archive import open_archive
from cllm.transfer.detection import open_source
from cllm.transfer.import_source import import_source
from cllm.transfer.importers import cllm_files, session_file
from cllm.transfer.report import ImportReport
from cllm.transfer.writer import ImportWriter
from cllm.wire.convert import parts_of

pytestmark = pytest.mark.asyncio


every_format = pytest.mark.parametrize("name", list(WRITERS))


async def load_all(store: Store) -> list[StoredConversation]:
    """Load every conversation and decode every message."""
    page = await store.list_conversations(archive_filter="all", side=True, limit=10_000)
    assert page.notices == ()
    loaded = [await store.load(summary.id) for summary in page.items]
    for conversation in loaded:
        for turn in conversation.turns + conversation.variants:
            for message in turn.messages:
                parts_of(message)
    return sorted(loaded, key=lambda one: one.id)


async def import_twice(store: Store, path: Path, name: str | None = None) -> ImportReport:
    """Import a source, and check that nothing is damaged and that a second import adds nothing."""
    first, second = ImportReport(), ImportReport()
    await import_source(path, ImportWriter(store, first, clock=now), name=name, clock=now)
    before = await load_all(store)
    await import_source(path, ImportWriter(store, second, clock=now), name=name, clock=now)
    assert await load_all(store) == before
    assert (second.imported, second.branches, second.continued) == (0, 0, 0)
    assert second.unchanged == len(before) == first.imported + first.branches
    assert second.skipped == first.skipped
    assert json.loads(msgspec.json.encode(first.fields()))["messages"]["imported"] == first.messages
    return first


async def import_or_refuse(store: Store, path: Path, name: str | None) -> ImportReport | None:
    """Import a source twice; None if it is refused with one sentence, without any trace."""
    refused: str | None = None
    try:
        return await import_twice(store, path, name)
    except UsageError as error:
        refused = str(error)
    assert "\n" not in refused
    assert await load_all(store) == []
    return None


@pytest.mark.parametrize(
    ("text", "kind"),
    [*((text, "json") for text in TEXTS), ("nul", "sqlite"), ("surrogate", "sqlite")],
)
@every_format
async def test_texts_are_stored_or_reported(
    name: str, text: str, kind: str, tmp_path: Path
) -> None:
    value = TEXTS[text]
    store = open_store(f"{kind}:{tmp_path / 'store'}", clock=now)
    (tmp_path / "source").mkdir()
    messages = [
        HostileMessage("a", text=value, model=value),
        HostileMessage("b", "a", "assistant", "Yes", model=value),
        HostileMessage("c", "b", text="Fine"),
    ]
    try:
        report = await import_twice(
            store, WRITERS[name](tmp_path / "source", messages, value), name
        )
        assert report.imported + len(report.skipped) == 1
        if isinstance(value, str) and name != "cllm":
            assert report.imported == 1
    finally:
        await store.close()


TIMES = [
    float("nan"), float("inf"), -1e300, 1e400, 10**400, -62135596800, 253402300800, 0, -1,
    "0000-01-01T00:00:00Z", "99999-01-01T00:00:00Z", "0001-01-01T00:00:00+14:00",
    "9999-12-31T23:59:59-14:00", "", "today", None, True, [], {},
]  # fmt: skip


@pytest.mark.parametrize("at", TIMES, ids=str)
@every_format
async def test_times_are_plausible_or_left_out(
    name: str, at: Any, store: Store, tmp_path: Path
) -> None:
    messages = [HostileMessage("a", at=at), HostileMessage("b", "a", "assistant", "Yes", at=at)]
    report = await import_twice(store, WRITERS[name](tmp_path, messages, "T"), name)
    assert report.imported + len(report.skipped) == 1
    for one in await load_all(store):
        assert {1970 <= turn.started_at.year < 3000 for turn in one.turns} == {True}


LINKS: dict[str, list[tuple[str, str | None]]] = {
    "own_parent": [("a", "a"), ("b", "a")],
    "cycle": [("a", "c"), ("b", "a"), ("c", "b"), ("d", "b")],
    "missing_parent": [("a", "nowhere"), ("b", "a")],
    "many_roots": [("a", None), ("b", None), ("c", None)],
    "same_id": [("a", None), ("a", "a"), ("b", "a")],
    "empty_id": [("", None), ("b", ""), ("c", "")],
    "deep": [(str(number), str(number - 1) if number else None) for number in range(3000)],
    "wide": [(str(number), "0" if number else None) for number in range(200)],
}


@pytest.mark.parametrize("links", list(LINKS))
@every_format
async def test_any_links_become_whole_conversations(
    name: str, links: str, store: Store, tmp_path: Path
) -> None:
    roles = ("user", "assistant")
    messages = [
        HostileMessage(key, parent, roles[number % 2], f"m{number}")
        for number, (key, parent) in enumerate(LINKS[links])
    ]
    report = await import_twice(store, WRITERS[name](tmp_path, messages, "T"), name)
    assert (report.imported, report.skipped) == (1, [])
    found = await load_all(store)
    texts = {
        message.text
        for one in found
        for turn in one.turns + one.variants
        for message in turn.messages
    }
    joined = " ".join(texts).replace("\n", " ").split()
    if links not in ("same_id", "empty_id"):
        assert set(joined) == {f"m{number}" for number in range(len(messages))}


@pytest.mark.parametrize("depth", [150, 400, 950, 100_000])
@every_format
async def test_deep_json_is_stored_or_reported(
    name: str, depth: int, store: Store, tmp_path: Path
) -> None:
    messages = [HostileMessage("a", text="DEEP"), HostileMessage("b", "a", "assistant", "Yes")]
    path = WRITERS[name](tmp_path, messages, "T")
    if name == "llm":
        with closing(sqlite3.connect(path)) as database, database:
            database.execute(
                "CREATE TABLE tool_calls (id, response_id, name, arguments, tool_call_id)"
            )
            deep = "[" * depth + "]" * depth
            database.execute("INSERT INTO tool_calls VALUES (1, '00001', 'f', ?, 'c')", (deep,))
        database.close()
    else:
        data = path.read_bytes()
        path.write_bytes(data.replace(b'"DEEP"', b"[" * depth + b"]" * depth))
    report = await import_or_refuse(store, path, name)
    assert report is None or report.imported + len(report.skipped) >= 1


SOURCES: dict[str, Callable[[Path], Path]] = {
    "chatgpt": lambda folder: write_chatgpt(folder / "a.zip"),
    "claude-ai": lambda folder: write_claude(folder / "a.zip"),
    "claude-code": lambda folder: write_claude_code(folder / "p") / "-work/5e55.jsonl",
    "codex": write_codex,
    "open-webui": lambda folder: as_open_webui(folder, [HostileMessage("a")] * 9, "T"),
    "llm": lambda folder: write_copy(folder / "a.db", LLM_FOLDER / "llm-new.db"),
    "cllm": lambda folder: as_cllm(folder, [HostileMessage("a")] * 9, "T"),
}


def write_copy(path: Path, source: Path) -> Path:
    path.write_bytes(source.read_bytes())
    return path


@pytest.mark.parametrize("tenths", range(10))
@pytest.mark.parametrize("name", list(SOURCES))
async def test_a_truncated_file_is_reported(name: str, tenths: int, tmp_path: Path) -> None:
    path = SOURCES[name](tmp_path)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) * tenths // 10])
    for chosen in (name, None):
        report = await import_or_refuse(MemoryStore(clock=now), path, chosen)
        assert report is None or report.skipped or tenths == 9


@pytest.mark.parametrize("name", [name for name in WRITERS if name != "llm"])
async def test_a_message_over_the_limit_is_reported(
    name: str, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (json_stream, session_file, cllm_files):
        monkeypatch.setattr(module, "MAX_OBJECT_BYTES", 2_000_000)
    path = WRITERS[name](tmp_path, [HostileMessage("a", text="x" * 3_000_000)], "T")
    report = await import_twice(store, path, name)
    assert (report.imported, [one.damaged for one in report.skipped]) == (0, [True])
    assert "2000000 bytes" in report.skipped[0].reason


# Archives.


def write_raw_zip(path: Path, *names: bytes, flags: int = 0, count: int | None = None) -> Path:
    """Write an archive of empty entries, whose names can be anything."""
    local = bytearray()
    directory = bytearray()
    for name in names:
        head = struct.pack("<HHHHHIIIHH", 20, flags, 0, 0, 0, 0, 0, 0, len(name), 0)
        offset = len(local)
        local += b"PK\x03\x04" + head + name
        directory += b"PK\x01\x02" + struct.pack("<H", 20) + head
        directory += struct.pack("<HHHII", 0, 0, 0, 0, offset) + name
    number = min(0xFFFF, len(names) if count is None else count)
    end = struct.pack("<HHHHIIH", 0, 0, number, number, len(directory), len(local), 0)
    path.write_bytes(local + directory + b"PK\x05\x06" + end)
    return path


async def test_a_million_entries_are_refused_before_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "MAX_ENTRIES", 1000)
    path = write_raw_zip(tmp_path / "a.zip", *(b"%d" % n for n in range(1001)), count=1)

    def fail(*_: Any) -> Any:
        raise AssertionError("an object was made for an entry")

    assert len(open_archive(write_raw_zip(tmp_path / "b.zip", b"a", b"b")).files) == 2
    monkeypatch.setattr(zipfile, "ZipInfo", fail)
    with pytest.raises(UsageError, match="more than 1000 entries"):
        open_archive(path)


async def test_a_long_list_of_entries_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "MAX_DIRECTORY_BYTES", 1000)
    path = write_raw_zip(tmp_path / "a.zip", *(b"x" * 200 for _ in range(9)))
    with pytest.raises(UsageError, match="list of more than 1000 bytes"):
        open_archive(path)


@pytest.mark.parametrize("name", [b"\xff\xfe", b"a\0b", b"", b"/", b"\x80" * 300])
@pytest.mark.parametrize("flags", [0, 0x800])
async def test_names_of_entries_can_be_anything(
    import_file: Import, tmp_path: Path, name: bytes, flags: int
) -> None:
    path = write_raw_zip(tmp_path / "a.zip", name, flags=flags)
    with pytest.raises(UsageError, match=r"not known|not a readable ZIP"):
        await import_file(path)


@pytest.mark.parametrize("name", ["/abs.json", "../../up.json", "C:\\x.json", "a/../b.json"])
async def test_names_of_entries_are_only_names(store: Store, tmp_path: Path, name: str) -> None:
    folder = tmp_path / "inner/folder"
    folder.mkdir(parents=True)
    nodes = [{"id": "a", "parent": None, "message": None}]
    path = write_zip(folder / "a.zip", {name: [chatgpt_conversation("x", *nodes)]})
    before = sorted(tmp_path.rglob("*"))
    await import_twice(store, path)
    assert sorted(tmp_path.rglob("*")) == before


async def test_of_entries_with_one_name_the_last_counts(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    first = as_chatgpt(tmp_path, [HostileMessage("a", text="First")], "T").read_bytes()
    last = as_chatgpt(tmp_path, [HostileMessage("a", text="Last")], "T").read_bytes()
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("conversations.json", first)
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("conversations.json", last)
    assert (await import_twice(store, path)).imported == 1
    (found,) = await load_all(store)
    assert found.turns[0].messages[0].text == "Last"


async def test_an_archive_in_an_archive_is_not_opened(import_file: Import, tmp_path: Path) -> None:
    inner = write_chatgpt(tmp_path / "inner.zip").read_bytes()
    path = write_zip(tmp_path / "a.zip", {"conversations-000.zip": inner})
    with pytest.raises(UsageError, match="is not known"):
        await import_file(path)


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
async def test_a_small_archive_cannot_unpack_to_a_large_one(
    import_file: Import, tmp_path: Path, method: int
) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("conversations.json", b"[" + b" " * (6 * 1024 * 1024) + b"]")
    with pytest.raises(UsageError, match="compressed more than 300 times"):
        await import_file(path)


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
async def test_a_size_in_the_header_that_is_too_small_ends_the_entry(
    import_file: Import, tmp_path: Path, method: int
) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        archive.writestr("conversations.json", json.dumps([chatgpt_conversation("x")] * 9))
    data = buffer.getvalue()
    start = data.index(b"PK\x01\x02")
    cut = data[: start + 24] + struct.pack("<I", 100) + data[start + 28 :]
    (tmp_path / "a.zip").write_bytes(cut)
    report = await import_file(tmp_path / "a.zip", "chatgpt")
    assert report.imported == 0
    assert report.skipped[-1].damaged


@pytest.mark.parametrize("seed", range(60))
async def test_damaged_bytes_of_an_archive_are_reported(
    store: Store, tmp_path: Path, seed: int
) -> None:
    path = write_chatgpt(tmp_path / "a.zip")
    data = bytearray(path.read_bytes())
    for number in range(1 + seed % 4):
        data[(seed * 7919 + number * 104729) % len(data)] ^= 1 + (seed * 31 + number) % 255
    path.write_bytes(data)
    await import_or_refuse(store, path, "chatgpt")


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("name", ["llm", "open-webui"])
async def test_damaged_bytes_of_a_database_are_reported(
    store: Store, tmp_path: Path, name: str, seed: int
) -> None:
    path = write_copy(tmp_path / "a.db", LLM_FOLDER / "llm-new.db")
    data = bytearray(path.read_bytes())
    for number in range(200):
        data[100 + (seed * 7919 + number * 104729) % (len(data) - 100)] ^= 1 + seed
    path.write_bytes(data)
    await import_or_refuse(store, path, name)


async def test_a_file_name_that_is_not_utf_8_is_reported(store: Store, tmp_path: Path) -> None:
    bad = Path(tmp_path, "\udcff.jsonl")
    bad.write_bytes(b"{")
    as_codex(tmp_path, [HostileMessage("a")], "T")
    report = await import_twice(store, tmp_path, "codex")
    assert report.skipped[0].path == "?.jsonl"


async def test_an_unknown_source_is_an_error_that_names_the_formats(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"conversationId": 1}', encoding="utf-8")
    with pytest.raises(UsageError) as raised:
        open_source(tmp_path / "a.json", None)
    assert all(name in str(raised.value) for name in WRITERS)


# Fields of any type.

VALUES: list[Any] = [None, 1, -1.5, "x", "", [], {}, [None], [[]], {"type": []}, [{}], 10**25]
RICH_SOURCES: dict[str, Callable[[Path], list[Any]]] = {
    "chatgpt": lambda _: [chatgpt_cats()],
    "claude-ai": lambda _: [claude_birds()],
    "open-webui": lambda _: [open_webui_chat()],
    "codex": lambda folder: list(map(json.loads, write_codex(folder).read_bytes().splitlines())),
}


def list_places(value: Any) -> list[tuple[Any, Any]]:
    """Return each container in a JSON value with each of its keys."""
    places = []
    waiting = [value]
    for one in waiting:
        if isinstance(one, dict | list):
            keys = list(one) if isinstance(one, dict) else list(range(len(one)))
            places += [(one, key) for key in keys]
            waiting += [one[key] for key in keys]
    return places


@pytest.mark.parametrize("name", list(RICH_SOURCES))
async def test_fields_can_have_values_of_any_type(name: str, tmp_path: Path) -> None:
    source = RICH_SOURCES[name](tmp_path / "rich")
    path = tmp_path / "source.jsonl"
    for number, (container, key) in enumerate(list_places(source)):
        if number % 2:
            continue
        before, container[key] = container[key], VALUES[number // 2 % len(VALUES)]
        lines = source if name == "codex" else [source]
        path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
        container[key] = before
        await import_or_refuse(MemoryStore(clock=now), path, name)

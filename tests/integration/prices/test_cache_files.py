"""Cache files of prices: they avoid loading the table and never change a price."""

import os
import stat
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import pytest

from cllm.core.reply import Usage
from cllm.prices import table
from cllm.prices.book import MAX_FILE_BYTES, ModelRecord, PriceBook, TableEntry, installed_version

NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
USAGE = Usage(input=1000, output=200, cache_read=5000)
PROGRAM = textwrap.dedent("""
    import sys
    from datetime import UTC, datetime
    from pathlib import Path
    from cllm.core.reply import Usage
    from cllm.prices.book import PriceBook

    folder, *models = sys.argv[1:]
    book = PriceBook(Path(folder))
    usage = Usage(input=1000, output=200, cache_read=5000)
    for model in models:
        print(book.price("openai", model, usage, datetime(2026, 11, 15, 12, 0, tzinfo=UTC)))
    print("genai_prices" in sys.modules)
""")


def price_in_a_process(folder: Path, *models: str) -> list[str]:
    """The costs of the same usage, and whether the table had to be loaded."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(folder), *models],
        capture_output=True,
        check=True,
        text=True,
        timeout=60,
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "prices"


@pytest.fixture
def lookups(monkeypatch) -> list[str]:
    """The models that were looked up in the table."""
    models: list[str] = []
    look_up = table.look_up

    def count_lookup(entry: TableEntry) -> ModelRecord:
        models.append(entry.model)
        return look_up(entry)

    monkeypatch.setattr(table, "look_up", count_lookup)
    return models


def only_file(folder: Path) -> Path:
    (path,) = folder.iterdir()
    return path


def test_a_second_process_does_not_load_the_table(folder):
    first = price_in_a_process(folder, "gpt-4o", "nobody-knows-this")
    second = price_in_a_process(folder, "gpt-4o", "nobody-knows-this")

    assert first[-1] == "True"
    assert second == [*first[:-1], "False"]
    assert first[0] != "None"
    assert first[1] == "None"


def test_processes_that_write_concurrently_leave_complete_files(folder):
    models = ("gpt-4o", "gpt-5", "o3", "nobody-knows-this")
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: price_in_a_process(folder, *models), range(4)))

    assert len({tuple(answer[:-1]) for answer in answers}) == 1
    assert len(list(folder.iterdir())) == len(models)
    assert price_in_a_process(folder, *models)[-1] == "False"


def test_a_model_is_looked_up_once(folder, lookups):
    book = PriceBook(folder)
    for _ in range(3):
        for model in ("gpt-4o", "nobody-knows-this"):
            book.price("openai", model, USAGE, NOW)
            book.context_window("openai", model)
    PriceBook(folder).price("openai", "gpt-4o", USAGE, NOW)

    assert lookups == ["gpt-4o", "nobody-knows-this"]


def test_the_folder_and_its_files_are_private(folder):
    before = os.umask(0)
    try:
        PriceBook(folder).price("openai", "gpt-4o", USAGE, NOW)
    finally:
        os.umask(before)

    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(only_file(folder).stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "model",
    [
        "../../etc/passwd",
        "/etc/passwd",
        "..",
        "a\0b",
        "a\nb",
        "\udc80",
        "x" * 250,
        "$(touch x)",
        "(a+)+$",
        "",
    ],
)
def test_a_hostile_model_name_does_not_leave_the_folder(tmp_path, folder, model):
    book = PriceBook(folder)

    assert book.price("groq", model, USAGE, NOW) is None
    assert {path.parent for path in tmp_path.rglob("*.json")} <= {folder}
    assert all(len(path.name) == 69 for path in tmp_path.rglob("*.json"))


@pytest.mark.parametrize(
    "garbage",
    [
        b"",
        b"\0" * 100,
        b"{",
        b"[]",
        b"null",
        b'{"checksum": 0, "record": {}}',
        b'{"x": ' + b"[" * 30_000,
        b"\xff\xfe",
        b" " * (MAX_FILE_BYTES + 1),
    ],
)
def test_a_damaged_file_is_ignored_and_written_again(folder, lookups, garbage):
    expected = PriceBook(folder).price("openai", "gpt-4o", USAGE, NOW)
    path = only_file(folder)
    sound = path.read_bytes()
    path.write_bytes(garbage)

    assert PriceBook(folder).price("openai", "gpt-4o", USAGE, NOW) == expected
    assert path.read_bytes() == sound
    assert len(lookups) == 2


def test_another_version_of_the_table_has_separate_files(folder, lookups, monkeypatch):
    PriceBook(folder).price("openai", "gpt-4o", USAGE, NOW)
    monkeypatch.setattr("cllm.prices.book.installed_version", lambda: "0.0.1")
    PriceBook(folder).price("openai", "gpt-4o", USAGE, NOW)

    assert lookups == ["gpt-4o", "gpt-4o"]
    assert len(list(folder.iterdir())) == 2


def test_an_unknown_version_of_the_table_has_no_files(folder, monkeypatch):
    monkeypatch.setattr("cllm.prices.book.installed_version", lambda: None)

    assert PriceBook(folder).price("openai", "gpt-4o", USAGE, NOW) is not None
    assert not folder.exists()


def test_the_version_is_the_installed_one():
    assert installed_version() == version("genai-prices")


@pytest.mark.parametrize("kind", ["file", "folder", "pipe", "link"])
def test_an_unexpected_file_type_is_no_error(folder, kind):
    expected = PriceBook(folder).price("openai", "gpt-4o", USAGE, NOW)
    path = only_file(folder)
    path.unlink()
    match kind:
        case "file":
            folder.rmdir()
            folder.write_text("in the way", encoding="utf-8")
        case "folder":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case "link":
            path.symlink_to("/dev/zero")

    assert PriceBook(folder).price("openai", "gpt-4o", USAGE, NOW) == expected


@pytest.mark.parametrize("folder", ["/proc/self/prices", "/dev/null/prices"])
def test_a_folder_that_cannot_be_created_is_no_error(folder):
    assert PriceBook(Path(folder)).price("openai", "gpt-4o", USAGE, NOW) is not None


def test_a_full_disk_leaves_no_partial_file(folder, monkeypatch):
    def refuse(*_arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", refuse)

    assert PriceBook(folder).price("openai", "gpt-4o", USAGE, NOW) is not None
    assert list(folder.iterdir()) == []


def test_the_number_of_cache_files_is_limited(folder, lookups, monkeypatch):
    monkeypatch.setattr("cllm.prices.book.MAX_FILES", 5)
    for second in range(12):
        PriceBook(folder).context_window("openai", f"model-{second}")
        for path in folder.iterdir():
            if path.stat().st_mtime > 1000:
                os.utime(path, (second, second))
    looked_up = len(lookups)

    assert len(list(folder.iterdir())) == 5
    PriceBook(folder).context_window("openai", "model-11")
    assert len(lookups) == looked_up
    PriceBook(folder).context_window("openai", "model-0")
    assert len(lookups) == looked_up + 1


def test_the_number_of_records_in_memory_is_limited(folder, monkeypatch):
    monkeypatch.setattr("cllm.prices.book.MAX_RECORDS", 10)
    book = PriceBook(folder)
    for number in range(50):
        book.price("local", f"model-{number}", USAGE, NOW)

    assert book._record.cache_info().currsize <= 10

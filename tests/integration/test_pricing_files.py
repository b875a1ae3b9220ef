"""Files that spare the loading of the table: they save time and never change an answer."""

import json
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
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cllm.core.reply import Usage
from cllm.prices import table
from cllm.prices.book import PriceBook
from cllm.prices.cache import LARGEST_FILE, RecordFiles, installed_version
from cllm.prices.names import TableEntry
from cllm.prices.record import ModelRecord

NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
USAGE = Usage(input=1000, output=200, cache_read=5000)
ENTRY = TableEntry(provider="openai", model="gpt-4o")
RECORD = ModelRecord(context_window=42)
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


def ask_in_a_process(folder: Path, *models: str) -> list[str]:
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
def files(folder: Path) -> RecordFiles:
    return RecordFiles(folder=folder, version="1.0")


@pytest.fixture
def lookups(monkeypatch) -> list[str]:
    """The models that were looked up in the table."""
    asked: list[str] = []
    look_up = table.look_up

    def counting(entry: TableEntry) -> ModelRecord:
        asked.append(entry.model)
        return look_up(entry)

    monkeypatch.setattr(table, "look_up", counting)
    return asked


def only_file(folder: Path) -> Path:
    (path,) = folder.iterdir()
    return path


def test_a_second_process_does_not_load_the_table(folder):
    first = ask_in_a_process(folder, "gpt-4o", "nobody-knows-this")
    second = ask_in_a_process(folder, "gpt-4o", "nobody-knows-this")

    assert first[-1] == "True"
    assert second == [*first[:-1], "False"]
    assert first[0] != "None"
    assert first[1] == "None"


def test_processes_that_write_at_once_leave_whole_files(folder):
    models = ("gpt-4o", "gpt-5", "o3", "nobody-knows-this")
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: ask_in_a_process(folder, *models), range(4)))

    assert len({tuple(answer[:-1]) for answer in answers}) == 1
    assert len(list(folder.iterdir())) == len(models)
    assert ask_in_a_process(folder, *models)[-1] == "False"


def test_a_model_is_looked_up_once(folder, lookups):
    book = PriceBook(folder)
    for _ in range(3):
        for model in ("gpt-4o", "nobody-knows-this"):
            book.price("openai", model, USAGE, NOW)
            book.context_window("openai", model)
    PriceBook(folder).price("openai", "gpt-4o", USAGE, NOW)

    assert lookups == ["gpt-4o", "nobody-knows-this"]


def test_the_folder_and_its_files_are_the_persons_alone(folder):
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
def test_a_hostile_name_is_only_a_name(tmp_path, folder, model):
    book = PriceBook(folder)

    assert book.price("groq", model, USAGE, NOW) is None
    assert {path.parent for path in tmp_path.rglob("*.json")} <= {folder}
    assert all(len(path.name) == 37 for path in tmp_path.rglob("*.json"))


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
        b" " * (LARGEST_FILE + 1),
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


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(place=st.integers(0, 10_000), bit=st.integers(0, 7))
def test_a_file_with_one_wrong_bit_never_gives_another_record(folder, place, bit):
    files = RecordFiles(folder=folder, version="1.0")
    files.write(ENTRY, RECORD)
    path = only_file(folder)
    damaged = bytearray(path.read_bytes())
    damaged[place % len(damaged)] ^= 1 << bit
    path.write_bytes(damaged)

    assert files.read(ENTRY) in (None, RECORD)


def test_a_changed_price_in_a_file_is_not_believed(folder):
    expected = PriceBook(folder).price("openai", "gpt-4o", USAGE, NOW)
    path = only_file(folder)
    kept = json.loads(path.read_bytes())
    kept["record"]["dated"][0]["rates"]["input"]["base"] = "0"
    path.write_text(json.dumps(kept), encoding="utf-8")

    assert PriceBook(folder).price("openai", "gpt-4o", USAGE, NOW) == expected


def test_a_file_under_anothers_name_is_not_taken_for_its(folder, files):
    other = TableEntry(provider="openai", model="gpt-5")
    files.write(other, RECORD)
    path = only_file(folder)
    files.write(ENTRY, ModelRecord(context_window=7))
    name = next(found for found in folder.iterdir() if found != path)
    path.replace(name)

    assert files.read(ENTRY) is None


def test_another_version_of_the_table_has_files_of_its_own(folder, files):
    files.write(ENTRY, RECORD)

    assert files.read(ENTRY) == RECORD
    assert RecordFiles(folder=folder, version="1.1").read(ENTRY) is None


def test_the_version_is_the_installed_one():
    assert installed_version() == version("genai-prices")


@pytest.mark.parametrize("kind", ["file", "folder", "pipe", "link"])
def test_something_else_in_the_way_is_no_error(folder, kind):
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
def test_a_folder_that_cannot_be_made_is_no_error(folder):
    assert PriceBook(Path(folder)).price("openai", "gpt-4o", USAGE, NOW) is not None


def test_a_full_disk_leaves_nothing_half_written(folder, files, monkeypatch):
    files.write(ENTRY, RECORD)
    sound = only_file(folder).read_bytes()

    def refuse(*_arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", refuse)
    files.write(ENTRY, ModelRecord(context_window=7))

    assert only_file(folder).read_bytes() == sound


def test_names_without_number_do_not_fill_the_disk(folder):
    files = RecordFiles(folder=folder, version="1.0", max_files=5)
    entries = [TableEntry(provider="openai", model=f"model-{number}") for number in range(12)]
    for second, entry in enumerate(entries):
        files.write(entry, RECORD)
        for path in folder.iterdir():
            if path.stat().st_mtime > 1000:
                os.utime(path, (second, second))

    assert len(list(folder.iterdir())) == 5
    assert files.read(entries[0]) is None
    assert files.read(entries[-1]) == RECORD


def test_names_without_number_do_not_fill_the_memory(folder, monkeypatch):
    monkeypatch.setattr("cllm.prices.book.MOST_REMEMBERED", 10)
    book = PriceBook(folder)
    for number in range(50):
        book.price("local", f"model-{number}", USAGE, NOW)

    assert len(book._records) <= 10

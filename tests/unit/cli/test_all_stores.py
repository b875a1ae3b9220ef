from pathlib import Path

import pytest
from tests.sqlite_template import write_database

from cllm.cli.all_stores import join_counts, open_all_stores
from cllm.settings.load import CommandLine

KEYS = "server: {keys: [{name: a, owner: ann, hash: " + "a" * 64 + "}]}"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".cllm").mkdir()
    return tmp_path


@pytest.fixture
def files(home: Path) -> str:
    return f"json:{home}/.cllm/conversations"


def configure(home: Path, text: str) -> None:
    (home / ".cllm/Cllmfile.yml").write_text(text, encoding="utf-8")


def list_urls(*, store: str | None = None, create_database: bool = False) -> tuple[str, ...]:
    line = CommandLine(values={} if store is None else {"store": store})
    return open_all_stores(line, create_database=create_database).store_urls


@pytest.mark.parametrize("text", ["model: a", KEYS])
def test_keys_do_not_hide_the_database(home: Path, files: str, text: str) -> None:
    configure(home, text)
    write_database(home / ".cllm/cllm.db")
    assert list_urls() == (files, f"sqlite:{home}/.cllm/cllm.db")
    assert list_urls(store="json:other") == ("json:other",)


def test_a_missing_database_is_left_out_or_created(home: Path, files: str) -> None:
    assert list_urls() == (files,)
    assert list_urls(create_database=True) == (files, f"sqlite:{home}/.cllm/cllm.db")


def test_a_missing_configured_database_is_named(
    home: Path, files: str, capsys: pytest.CaptureFixture[str]
) -> None:
    configure(home, "server: {store: 'sqlite:server.db'}")
    assert list_urls() == (files,)
    assert "server.db, does not exist" in capsys.readouterr().err


def test_numbers_are_only_for_several_places() -> None:
    assert join_counts({"a": 1}) == "a"
    assert join_counts({"a": 1, "b": 0}) == "a (1) and b (0)"

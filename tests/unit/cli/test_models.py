"""`cllm models`, without downloads."""

import json

import pytest

from cllm.cli.main import run
from cllm.model_list import UNKNOWN
from cllm.providers.registry import BUILTIN_PROVIDERS


@pytest.fixture
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for row in BUILTIN_PROVIDERS.values():
        monkeypatch.delenv(row.key or "", raising=False)
    folder = tmp_path / "cllm/models"
    folder.mkdir(parents=True)
    return folder


def test_downloaded_and_known_models_are_listed(cache, capsys):
    (cache / "tiny.gguf").write_bytes(bytes(2_000_000))

    assert run(["models", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    columns = [line.split() for line in lines]
    assert columns[0] == ["MODEL", "CONTEXT", "INPUT", "$/M", "OUTPUT", "$/M", "SIZE"]
    smollm2 = ["local/smollm2-135m", "8,192", "0", "0", "98", "MB,", "not", "downloaded"]
    assert smollm2 in columns
    assert columns[-1] == ["local/tiny", UNKNOWN, "0", "0", "2", "MB,", "downloaded"]
    assert (
        len(
            {
                line.index(f"{size} MB")
                for line in lines
                for size in ("98", "2")
                if f" {size} MB" in line
            }
        )
        == 1
    )


def test_a_model_is_removed_by_its_name_or_its_reference(cache, capsys):
    for name in ("tiny", "local/tiny"):
        (cache / "tiny.gguf").write_bytes(b"GGUF")
        assert run(["models", "remove", name]) == 0
        assert not (cache / "tiny.gguf").exists()
    assert "Removed" in capsys.readouterr().out


def test_an_unknown_model_is_an_error(cache, capsys):
    assert run(["models", "remove", "nonsense"]) == 1
    assert run(["models", "pull", "nonsense"]) == 1
    assert capsys.readouterr().err.count("Error: ") == 2


def test_the_old_flag_prints_the_same_list(cache, capsys):
    assert run(["models", "list"]) == 0
    new = capsys.readouterr().out
    assert run(["--list-models"]) == 0

    assert capsys.readouterr().out == new


def test_the_list_can_be_json(cache, capsys):
    assert run(["models", "list", "--provider", "anthropic", "--json"]) == 0

    rows = json.loads(capsys.readouterr().out)
    haiku = next(row for row in rows if row["model"] == "anthropic/claude-haiku-4-5")
    assert haiku == {
        "model": "anthropic/claude-haiku-4-5",
        "provider": "anthropic",
        "context": 200000,
        "input_price": 1.0,
        "output_price": 5.0,
        "size": None,
        "is_downloaded": None,
    }

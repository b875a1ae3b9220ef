"""`cllm models`, without downloads."""

import pytest

from cllm.cli.main import run


@pytest.fixture
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = tmp_path / "cllm/models"
    folder.mkdir(parents=True)
    return folder


def test_downloaded_and_known_models_are_listed(cache, capsys):
    (cache / "tiny.gguf").write_bytes(bytes(2_000_000))

    assert run(["models", "list"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "local/smollm2-135m  98 MB  not downloaded",
        "local/tiny  2 MB  downloaded",
    ]


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

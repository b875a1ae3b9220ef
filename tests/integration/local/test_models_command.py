"""The command `cllm models` in a real process."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest


class Result:
    def __init__(self, process: subprocess.CompletedProcess[str]) -> None:
        self.code, self.out, self.err = process.returncode, process.stdout, process.stderr


@pytest.fixture
def models(tmp_path: Path, files: Any) -> Any:
    environ = os.environ | {
        "HOME": str(tmp_path),
        "XDG_CACHE_HOME": str(tmp_path / "caches"),
        "HF_ENDPOINT": files.url(""),
    }

    def run(*arguments: str) -> Result:
        command = [sys.executable, "-m", "cllm", "models", *arguments]
        return Result(
            subprocess.run(
                command, env=environ, cwd=tmp_path, capture_output=True, text=True, check=False
            )
        )

    return run


def test_a_pulled_model_is_listed_and_can_be_removed(models: Any, files: Any):
    digest = hashlib.sha256(files.content).hexdigest()
    pulled = models("pull", "hf:owner/repo/tiny.gguf", "--sha256", digest)
    assert pulled.code == 0, pulled.err
    assert "local/tiny" in pulled.err
    assert "Warning" not in pulled.err
    assert "\r" not in pulled.err
    assert models("list").out.splitlines() == [
        "local/smollm2-135m  98 MB  not downloaded",
        "local/tiny  1 MB  downloaded",
    ]
    assert models("remove", "local/tiny").code == 0
    assert "tiny" not in models("list").out


def test_a_wrong_hash_is_one_sentence_and_saves_nothing(models: Any, tmp_path: Path):
    result = models("pull", "hf:owner/repo/tiny.gguf", "--sha256", "0" * 64)
    assert result.code == 1
    assert result.err.splitlines()[-1].startswith("Error: The SHA-256 of tiny.gguf is not")
    assert not list((tmp_path / "caches").rglob("*.gguf"))


@pytest.mark.parametrize(
    "arguments", [("pull", "nonsense"), ("pull", "hf:a/../b.gguf"), ("remove", "nonsense")]
)
def test_an_invalid_argument_is_one_sentence(arguments: tuple[str, ...], models: Any):
    result = models(*arguments)
    assert result.code == 1
    assert result.err.startswith("Error: ")
    assert len(result.err.splitlines()) == 1


@pytest.mark.parametrize("arguments", [("--help",), ("pull", "--help"), ("list", "--help")])
def test_each_command_has_help(arguments: tuple[str, ...], models: Any):
    result = models(*arguments)
    assert result.code == 0
    assert "models" in result.out

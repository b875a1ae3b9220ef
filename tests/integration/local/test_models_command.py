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
    listed = models("list").out.splitlines()
    assert listed[-1].split() == ["local/tiny", "\N{EN DASH}", "0", "0", "1", "MB,", "downloaded"]
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


def add_repository(files: Any, licence: str, digest: str | None = None) -> None:
    lfs = {"oid": digest or hashlib.sha256(files.content).hexdigest()}
    files.pages = {
        "/api/models/o/tiny-GGUF": {"sha": "abc", "tags": [f"license:{licence}"]},
        "/api/models/o/tiny-GGUF/tree/abc": [
            {"type": "file", "path": "tiny-Q8_0.gguf", "lfs": lfs},
            {"type": "file", "path": "tiny-Q4_K_M.gguf", "lfs": lfs},
        ],
    }


def test_a_file_of_a_repository_is_checked_against_the_hubs_digest(
    models: Any, files: Any, tmp_path: Path
):
    add_repository(files, "apache-2.0")

    pulled = models("pull", "hf:o/tiny-GGUF:Q8_0")

    assert pulled.code == 0, pulled.err
    assert "-m local/tiny-Q8_0" in pulled.err
    assert "Warning" not in pulled.err
    assert "Licence" not in pulled.err
    saved = tmp_path / "caches/cllm/models/tiny-Q8_0.gguf"
    assert saved.read_bytes() == files.content
    assert files.requests[-1][0] == "/o/tiny-GGUF/resolve/abc/tiny-Q8_0.gguf"


def test_a_file_with_another_digest_is_refused(models: Any, files: Any, tmp_path: Path):
    add_repository(files, "apache-2.0", digest="0" * 64)

    result = models("pull", "hf:o/tiny-GGUF")

    assert result.code == 1
    assert "The SHA-256 of tiny-Q4_K_M.gguf is not" in result.err
    assert not list((tmp_path / "caches").rglob("*.gguf"))


def test_another_hash_than_the_hubs_is_refused_before_the_download(models: Any, files: Any):
    add_repository(files, "apache-2.0")

    result = models("pull", "hf:o/tiny-GGUF", "--sha256", "0" * 64)

    assert result.code == 1
    assert hashlib.sha256(files.content).hexdigest() in result.err
    assert not any("resolve" in path for path, _ in files.requests)


def test_an_interrupted_download_of_a_repository_resumes(models: Any, files: Any):
    add_repository(files, "apache-2.0")
    files.cut_after = 1000

    result = models("pull", "hf:o/tiny-GGUF")

    assert result.code == 0, result.err
    assert "bytes=1000-" in files.ranges


def test_a_licence_that_is_not_permissive_is_shown_before_the_download(models: Any, files: Any):
    add_repository(files, "llama3.2")

    result = models("pull", "hf:o/tiny-GGUF")

    assert result.code == 0, result.err
    first = result.err.splitlines()[0]
    assert first.startswith("Licence of o/tiny-GGUF: llama3.2.")
    assert "https://huggingface.co/o/tiny-GGUF" in first


def test_a_known_model_is_requested_by_its_revision_and_checked(models: Any, files: Any):
    result = models("pull", "qwen3-0.6b")

    assert result.code == 1
    assert "The SHA-256 of qwen3-0.6b is not" in result.err
    path = "/Qwen/Qwen3-0.6B-GGUF/resolve/23749fefcc72300e3a2ad315e1317431b06b590a/"
    assert {path for path, _ in files.requests} == {f"{path}Qwen3-0.6B-Q8_0.gguf"}


def test_the_licence_of_a_known_model_is_shown_first(models: Any):
    result = models("pull", "llama-3.2-1b")

    assert result.err.startswith("Licence of bartowski/Llama-3.2-1B-Instruct-GGUF: Llama 3.2")

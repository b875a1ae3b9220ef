"""The targets of `cllm models pull`, and the choice of a package installer."""

from pathlib import Path

import pytest

from cllm.core.errors import DownloadError, UsageError
from cllm.providers.local.download import DownloadSource
from cllm.providers.local.fetch import (
    Fetcher,
    fetch_known_model,
    fetch_remote,
    find_installers,
    parse_target,
)
from cllm.providers.local.hub import HubQuery
from cllm.providers.local.models import KNOWN_MODELS, CachePaths

SMOLLM2 = KNOWN_MODELS["smollm2-135m"]


@pytest.mark.parametrize("name", ["smollm2-135m", "local/smollm2-135m"])
def test_the_name_of_a_known_model_is_found(name: str):
    assert parse_target(name, {}) == SMOLLM2


def test_a_hugging_face_file_resolves_to_its_address():
    target = parse_target("hf:owner/repo/Model-Q4.gguf", {})
    assert isinstance(target, DownloadSource)
    assert target.url == "https://huggingface.co/owner/repo/resolve/main/Model-Q4.gguf"
    assert target.name == "Model-Q4.gguf"
    assert target.headers == {}


def test_the_endpoint_and_the_token_come_from_the_environment():
    environ = {"HF_ENDPOINT": "https://mirror.test/", "HF_TOKEN": "secret"}
    target = parse_target("hf:owner/repo/sub/a.gguf", environ)
    assert isinstance(target, DownloadSource)
    assert target.url == "https://mirror.test/owner/repo/resolve/main/sub/a.gguf"
    assert target.name == "a.gguf"
    assert target.headers == {"Authorization": "Bearer secret"}


@pytest.mark.parametrize(("text", "quantisation"), [("o/r-GGUF", None), ("o/r-GGUF:Q8_0", "Q8_0")])
def test_a_repository_can_name_a_quantisation(text: str, quantisation: str | None):
    query = HubQuery(repository="o/r-GGUF", quantisation=quantisation)
    assert parse_target(f"hf:{text}", {}) == query


def test_the_token_is_sent_to_hugging_face_only():
    target = parse_target("https://files.test/a.gguf?x=1", {"HF_TOKEN": "secret"})
    assert isinstance(target, DownloadSource)
    assert (target.name, target.headers) == ("a.gguf", {})


@pytest.mark.parametrize(
    "text",
    [
        "hf:owner",
        "hf:owner/repo:",
        "hf:owner/repo:../Q8_0",
        "hf:owner/repo/a.bin",
        "hf:../repo/a.gguf",
        "hf:owner/../a.gguf",
        "hf:owner/repo/../../a.gguf",
        "hf:owner/repo/.gguf",
        "hf:owner/repo/a b.gguf",
        "hf:owner//a.gguf",
        "https://files.test/a.bin",
        "https://files.test/",
        "https://files.test/..%2fa.gguf",
        "gpt-4o",
        "",
    ],
)
def test_a_target_that_is_not_a_model_file_is_refused(text: str):
    with pytest.raises(UsageError):
        parse_target(text, {})


@pytest.mark.parametrize("url", ["http://files.test/a.gguf", "ftp://files.test/a.gguf"])
def test_an_address_without_tls_is_refused(url: str):
    with pytest.raises(DownloadError, match="HTTPS"):
        parse_target(url, {})


def test_an_invalid_hash_is_refused(tmp_path: Path):
    fetcher = Fetcher(paths=CachePaths(root=tmp_path), environ={})
    remote = DownloadSource(url="https://x.test/a.gguf", name="a.gguf")
    with pytest.raises(UsageError, match="64 hexadecimal digits"):
        fetch_remote(remote, fetcher, sha256="abc")


def test_a_known_model_with_another_hash_is_refused(tmp_path: Path):
    fetcher = Fetcher(paths=CachePaths(root=tmp_path), environ={})
    with pytest.raises(UsageError, match=SMOLLM2.sha256):
        fetch_known_model(SMOLLM2, fetcher, sha256="0" * 64)


def test_a_pulled_file_cannot_have_the_name_of_a_known_model(tmp_path: Path):
    fetcher = Fetcher(paths=CachePaths(root=tmp_path), environ={})
    remote = DownloadSource(url="https://x.test/a.gguf", name="smollm2-135m.gguf")
    with pytest.raises(UsageError, match="is the name of a known model"):
        fetch_remote(remote, fetcher)


def test_the_interpreters_own_pip_is_preferred(tmp_path: Path):
    _executable(tmp_path / "uv")
    installers = find_installers({"PATH": str(tmp_path)}, is_importable=lambda _: True)
    assert installers.pip is not None
    assert installers.pip[1:] == ("-P", "-m", "pip")
    assert installers.uv is None


def test_without_an_own_pip_the_path_is_searched(tmp_path: Path):
    _executable(tmp_path / "uv")
    _executable(tmp_path / "pip3")
    installers = find_installers({"PATH": str(tmp_path)}, is_importable=lambda _: False)
    assert (installers.uv, installers.pip) == (str(tmp_path / "uv"), (str(tmp_path / "pip3"),))


def test_without_an_installer_both_are_none(tmp_path: Path):
    installers = find_installers({"PATH": str(tmp_path)}, is_importable=lambda _: False)
    assert (installers.uv, installers.pip) == (None, None)


def _executable(path: Path) -> None:
    path.write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
    path.chmod(0o755)

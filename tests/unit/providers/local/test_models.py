"""Which local models there are, and where."""

import subprocess
import sys
from pathlib import Path

import pytest

from cllm.core.errors import LocalModelError, ModelNotFoundError
from cllm.providers.local.models import (
    CachePaths,
    ModelFile,
    cache_paths,
    check_is_gguf,
    list_models,
    remove_model,
    resolve_model_file,
)


@pytest.fixture
def paths(tmp_path: Path) -> CachePaths:
    made = CachePaths(root=tmp_path / "cache")
    made.models.mkdir(parents=True)
    return made


def find(name: str, paths: CachePaths) -> ModelFile:
    return resolve_model_file(name, paths, cwd=Path("/here"), home=Path("/home/me"))


def test_the_cache_is_where_the_environment_says():
    found = cache_paths({"XDG_CACHE_HOME": "/caches"}, home=Path("/home/me"))
    assert found.root == Path("/caches/cllm")


@pytest.mark.parametrize("environ", [{}, {"XDG_CACHE_HOME": ""}, {"XDG_CACHE_HOME": "relative"}])
def test_without_an_absolute_cache_folder_it_is_in_the_home(environ: dict[str, str]):
    assert cache_paths(environ, home=Path("/home/me")).root == Path("/home/me/.cache/cllm")


def test_a_known_model_resolves_before_it_is_fetched(paths: CachePaths):
    found = find("smollm2-135m", paths)
    assert found.path == paths.models / "smollm2-135m.gguf"
    assert found.known is not None
    assert found.template is not None


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("/models/a.gguf", "/models/a.gguf"),
        ("./a.gguf", "/here/a.gguf"),
        ("sub/a.gguf", "/here/sub/a.gguf"),
        ("~/a.gguf", "/home/me/a.gguf"),
    ],
)
def test_a_path_is_taken_as_it_is_and_keeps_its_own_template(
    name: str, path: str, paths: CachePaths
):
    found = find(name, paths)
    assert found.path == Path(path)
    assert found.template is None


@pytest.mark.parametrize("name", ["pulled", "pulled.gguf"])
def test_a_pulled_model_is_found_by_its_name(name: str, paths: CachePaths):
    (paths.models / "pulled.gguf").write_bytes(b"GGUF")
    assert find(name, paths).path == paths.models / "pulled.gguf"


def test_an_unknown_name_lists_what_there_is_and_how_to_get_more(paths: CachePaths):
    (paths.models / "pulled.gguf").write_bytes(b"GGUF")
    with pytest.raises(ModelNotFoundError, match="local/pulled, local/smollm2-135m") as raised:
        find("gpt-9", paths)
    assert raised.value.model == "local/gpt-9"
    assert "cllm models pull" in str(raised.value)


@pytest.mark.parametrize("name", ["../outside", "..", ".", "", "sub/x", "..\\x"])
def test_no_name_leads_out_of_the_cache(name: str, paths: CachePaths):
    outside = paths.root / "outside.gguf"
    outside.write_bytes(b"GGUF")
    with pytest.raises(ModelNotFoundError):
        remove_model(name, paths)
    assert outside.exists()


def test_a_file_that_is_no_gguf_is_refused(tmp_path: Path):
    file = tmp_path / "a.gguf"
    file.write_bytes(b"PK\x03\x04")
    with pytest.raises(LocalModelError, match="is not a GGUF model file"):
        check_is_gguf(file)


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path):
    with pytest.raises(LocalModelError, match="There is no model file"):
        check_is_gguf(tmp_path / "a.gguf")
    with pytest.raises(LocalModelError, match="cannot be read"):
        check_is_gguf(tmp_path)


def test_the_list_says_what_has_been_fetched(paths: CachePaths):
    (paths.models / "pulled.gguf").write_bytes(b"GGUF")
    assert [(model.name, model.fetched) for model in list_models(paths)] == [
        ("pulled", True),
        ("smollm2-135m", False),
    ]


def test_without_a_cache_the_list_has_the_known_models(tmp_path: Path):
    listed = list_models(CachePaths(root=tmp_path / "nowhere"))
    assert [(model.name, model.fetched) for model in listed] == [("smollm2-135m", False)]


def test_a_removed_model_is_gone(paths: CachePaths):
    (paths.models / "pulled.gguf").write_bytes(b"GGUF")
    remove_model("pulled", paths)
    assert not list(paths.models.iterdir())
    with pytest.raises(ModelNotFoundError):
        remove_model("pulled", paths)


def test_another_file_under_the_same_name_has_another_identity(tmp_path: Path):
    file = tmp_path / "a.gguf"
    file.write_bytes(b"GGUF1")
    model = ModelFile(name="a", path=file)
    before = model.identity()
    file.write_bytes(b"GGUF12")
    assert model.identity() != before


def test_importing_the_table_of_models_loads_nothing_heavy():
    heavy = "{'asyncio', 'aiohttp', 'urllib.request', 'zipfile', 'subprocess', 'xllamacpp'}"
    code = f"import sys, cllm.providers.local.models; print(sorted({heavy} & set(sys.modules)))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"

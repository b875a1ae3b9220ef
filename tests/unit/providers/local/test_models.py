"""Resolving, listing and removing local models."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from cllm.core.errors import LocalModelError, ModelNotFoundError
from cllm.providers.local.models import (
    KNOWN_MODELS,
    CachePaths,
    HubFile,
    KnownModel,
    ModelFile,
    cache_paths,
    check_is_gguf,
    list_models,
    remove_model,
    resolve_model_file,
)


@pytest.fixture
def paths(tmp_path: Path) -> CachePaths:
    paths = CachePaths(root=tmp_path / "cache")
    paths.models.mkdir(parents=True)
    return paths


def resolve(name: str, paths: CachePaths) -> ModelFile:
    return resolve_model_file(name, paths, cwd=Path("/here"), home=Path("/home/me"))


def test_xdg_cache_home_is_the_root_of_the_cache():
    paths = cache_paths({"XDG_CACHE_HOME": "/caches"}, home=Path("/home/me"))
    assert paths.root == Path("/caches/cllm")


@pytest.mark.parametrize("environ", [{}, {"XDG_CACHE_HOME": ""}, {"XDG_CACHE_HOME": "relative"}])
def test_without_an_absolute_xdg_cache_home_the_cache_is_in_the_home_folder(
    environ: dict[str, str],
):
    assert cache_paths(environ, home=Path("/home/me")).root == Path("/home/me/.cache/cllm")


def test_a_known_model_resolves_before_it_is_downloaded(paths: CachePaths):
    model = resolve("smollm2-135m", paths)
    assert model.path == paths.models / "smollm2-135m.gguf"
    assert model.known is not None
    assert model.template is not None


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("/models/a.gguf", "/models/a.gguf"),
        ("./a.gguf", "/here/a.gguf"),
        ("sub/a.gguf", "/here/sub/a.gguf"),
        ("~/a.gguf", "/home/me/a.gguf"),
    ],
)
def test_a_path_resolves_to_its_file_with_its_own_template(name: str, path: str, paths: CachePaths):
    model = resolve(name, paths)
    assert model.path == Path(path)
    assert model.template is None


@pytest.mark.parametrize("name", ["pulled", "pulled.gguf"])
def test_a_pulled_model_is_found_by_its_name(name: str, paths: CachePaths):
    (paths.models / "pulled.gguf").write_bytes(b"GGUF")
    assert resolve(name, paths).path == paths.models / "pulled.gguf"


def test_the_error_for_an_unknown_name_lists_the_models_and_the_pull_command(paths: CachePaths):
    (paths.models / "pulled.gguf").write_bytes(b"GGUF")
    with pytest.raises(ModelNotFoundError, match="local/pulled, local/smollm2-135m") as raised:
        resolve("gpt-9", paths)
    assert raised.value.model == "local/gpt-9"
    assert "cllm models pull" in str(raised.value)


@pytest.mark.parametrize("name", ["../outside", "..", ".", "", "sub/x", "..\\x"])
def test_no_name_refers_to_a_file_outside_the_cache(name: str, paths: CachePaths):
    outside = paths.root / "outside.gguf"
    outside.write_bytes(b"GGUF")
    with pytest.raises(ModelNotFoundError):
        remove_model(name, paths)
    assert outside.exists()


def test_a_file_that_is_not_gguf_is_refused(tmp_path: Path):
    file = tmp_path / "a.gguf"
    file.write_bytes(b"PK\x03\x04")
    with pytest.raises(LocalModelError, match="is not a GGUF model file"):
        check_is_gguf(file)


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path):
    with pytest.raises(LocalModelError, match="does not exist"):
        check_is_gguf(tmp_path / "a.gguf")
    with pytest.raises(LocalModelError, match="Cannot read"):
        check_is_gguf(tmp_path)


def test_the_list_shows_which_models_are_downloaded(paths: CachePaths):
    (paths.models / "pulled.gguf").write_bytes(b"GGUF")
    assert [(model.name, model.is_downloaded) for model in list_models(paths)] == [
        ("pulled", True),
        ("smollm2-135m", False),
    ]


def test_without_a_cache_the_list_contains_the_model_that_is_downloaded_at_its_first_use(
    tmp_path: Path,
):
    listed = list_models(CachePaths(root=tmp_path / "nowhere"))
    assert [(model.name, model.is_downloaded) for model in listed] == [("smollm2-135m", False)]


def test_the_list_can_contain_all_known_models_with_their_context_windows(paths: CachePaths):
    (paths.models / "qwen3-0.6b.gguf").write_bytes(b"GGUF")
    listed = {model.name: model for model in list_models(paths, with_known=True)}
    assert listed.keys() == KNOWN_MODELS.keys()
    assert [name for name, model in listed.items() if model.is_downloaded] == ["qwen3-0.6b"]
    assert listed["qwen3-0.6b"].context == 32768
    assert listed["qwen3-4b-2507"].size == 2497281120


def test_a_large_model_is_used_only_after_its_download(paths: CachePaths):
    with pytest.raises(ModelNotFoundError, match=r"639 MB.*cllm models pull qwen3-0.6b"):
        resolve("qwen3-0.6b", paths)
    (paths.models / "qwen3-0.6b.gguf").write_bytes(b"GGUF")
    model = resolve("qwen3-0.6b", paths)
    assert model.is_complete
    assert model.parameters["chat_template_kwargs"] == {"enable_thinking": False}


@pytest.mark.parametrize("model", KNOWN_MODELS.values(), ids=KNOWN_MODELS)
def test_a_known_model_has_a_hash_and_a_source(model: KnownModel):
    assert re.fullmatch(r"[0-9a-f]{64}", model.sha256)
    assert model.size > 90_000_000
    if isinstance(model.source, HubFile):
        assert re.fullmatch(r"[\w.-]+/[\w.-]+", model.source.repository)
        assert re.fullmatch(r"main|[0-9a-f]{40}", model.source.revision)
        assert model.source.file.endswith(".gguf")


def test_a_removed_model_no_longer_exists(paths: CachePaths):
    (paths.models / "pulled.gguf").write_bytes(b"GGUF")
    remove_model("pulled", paths)
    assert not list(paths.models.iterdir())
    with pytest.raises(ModelNotFoundError):
        remove_model("pulled", paths)


def test_a_changed_file_has_another_identity(tmp_path: Path):
    file = tmp_path / "a.gguf"
    file.write_bytes(b"GGUF1")
    model = ModelFile(name="a", path=file)
    before = model.identity()
    file.write_bytes(b"GGUF12")
    assert model.identity() != before


def test_importing_the_models_module_loads_no_slow_module():
    slow = "{'asyncio', 'aiohttp', 'urllib.request', 'zipfile', 'subprocess', 'xllamacpp'}"
    code = f"import sys, cllm.providers.local.models; print(sorted({slow} & set(sys.modules)))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


@pytest.mark.parametrize("name", ["a\0b", "a" * 4001])
def test_a_name_that_no_file_can_have_is_refused(name: str, paths: CachePaths):
    with pytest.raises(ModelNotFoundError, match="at most 4000 characters"):
        resolve(name, paths)


def test_a_known_model_with_another_size_is_incomplete(paths: CachePaths):
    model = resolve("smollm2-135m", paths)
    assert not model.is_complete
    model.path.write_bytes(b"GGUF")
    assert not model.is_complete
    assert ModelFile(name="a", path=model.path).is_complete

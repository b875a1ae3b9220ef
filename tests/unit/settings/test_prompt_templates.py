"""The folders of templates and their order."""

from pathlib import Path

import pytest

from cllm.core.errors import UsageError
from cllm.settings.layers import CommandLine, Environment
from cllm.settings.prompt_templates import (
    PACKAGE_FOLDER,
    find_template,
    list_templates,
    read_template,
)

LINE = CommandLine()


@pytest.fixture
def env(tmp_path: Path) -> Environment:
    (tmp_path / "work").mkdir()
    return Environment(home=tmp_path, directory=tmp_path / "work", environment={})


def write(folder: Path, name: str, text: str = "prompt: Hi.") -> Path:
    path = folder / ".cllm" / "templates" / f"{name}.yml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_the_nearest_template_is_found(env: Environment) -> None:
    assert find_template("summarize", env, LINE).path == PACKAGE_FOLDER / "summarize.yml"
    own = write(env.home, "summarize")
    found = find_template("summarize", env, LINE)
    assert (found.path, found.is_own) == (own, True)
    local = write(env.directory, "summarize")
    found = find_template("summarize", env, LINE)
    assert (found.path, found.is_own) == (local, False)
    assert read_template("summarize", env, LINE).content == {"prompt": "Hi."}


def test_each_name_is_listed_once(env: Environment) -> None:
    write(env.home, "summarize")
    write(env.directory, "mine")
    names = [one.name for one in list_templates(env, LINE)]
    assert names == sorted(set(names))
    assert {"mine", "summarize", "debug"} <= set(names)


def test_an_explicit_folder_is_the_only_one_of_the_user(env: Environment, tmp_path: Path) -> None:
    write(env.home, "hidden")
    (tmp_path / "other" / "templates").mkdir(parents=True)
    (tmp_path / "other" / "templates" / "visible.yml").write_text("prompt: Hi.")
    names = {one.name for one in list_templates(env, CommandLine(cllm_path=tmp_path / "other"))}
    assert "visible" in names
    assert "hidden" not in names


@pytest.mark.parametrize("name", ["nothing", "", "..", "../summarize", "a\0b", "default"])
def test_other_names_are_refused(env: Environment, name: str) -> None:
    with pytest.raises(UsageError, match="cllm templates list"):
        find_template(name, env, LINE)

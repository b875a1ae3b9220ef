"""Visible paths, wildcards and programs."""

import pytest

from cllm.commands.command_line import CommandEnvironment, CommandRefusedError, Word
from cllm.commands.paths import expand, find_program, is_visible, require_visible, spellings


@pytest.fixture
def folder(tmp_path):
    project = tmp_path / "project"
    for name in ("src/a.py", "src/b.py", "src/.hidden.py", ".git/config", "-n"):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).touch()
    (tmp_path / "outside").touch()
    (project / "link").symlink_to(tmp_path / "outside")
    return project


@pytest.mark.parametrize("path", ["src/a.py", "./src", ".", "src/../src", "missing"])
def test_a_path_in_the_folder_is_visible(folder, path):
    assert is_visible(path, folder)


@pytest.mark.parametrize("path", [".git/config", "src/.hidden.py", "../outside", "link", "/etc"])
def test_another_path_is_refused(folder, path):
    with pytest.raises(CommandRefusedError, match="only visible files"):
        require_visible(path, folder)


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("src/*.py", ("src/a.py", "src/b.py")),
        ("*/a.py", ("src/a.py",)),
        ("-*", ("./-n",)),
        ("x*", ("x*",)),
    ],
)
def test_a_wildcard_matches_visible_files(folder, pattern, names):
    assert expand(Word(text=pattern, pattern=pattern), folder) == names


def test_a_word_without_a_wildcard_is_unchanged(folder):
    assert expand(Word(text="*"), folder) == ("*",)


@pytest.mark.parametrize("pattern", ["/etc/*", "../*"])
def test_a_wildcard_cannot_leave_the_folder(folder, pattern):
    with pytest.raises(CommandRefusedError, match="must not leave"):
        expand(Word(text=pattern, pattern=pattern), folder)


def test_the_spellings_of_a_path(folder):
    assert {"./src/a.py", "src/a.py", str(folder.resolve() / "src/a.py")} <= spellings(
        "./src/a.py", folder
    )
    assert "src/a.py" in spellings("--file=./src/a.py", folder)


def test_a_program_is_found_in_absolute_folders_of_path(folder, tmp_path):
    program = tmp_path / "bin/tool"
    program.parent.mkdir()
    program.touch(mode=0o755)
    (folder / "tool").touch(mode=0o755)
    env = CommandEnvironment(directory=folder, environment={"PATH": f".:{tmp_path}/bin"})

    assert find_program("tool", env) == program
    assert find_program("./tool", env) == folder / "tool"
    assert find_program("src/a.py", env) is None
    assert find_program("missing", env) is None

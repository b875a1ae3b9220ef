"""The arguments with which git runs."""

import pytest

from cllm.commands.command_line import CommandRefusedError
from cllm.commands.git import check_git
from cllm.commands.options import Arguments


@pytest.fixture
def check(tmp_path):
    (tmp_path / "a.py").touch()

    def run(*words: str, is_restricted: bool = True) -> tuple[str, ...]:
        return check_git(
            Arguments(
                program="git",
                words=words,
                literal=frozenset(),
                directory=tmp_path,
                is_restricted=is_restricted,
            )
        )

    return run


def test_revisions_are_commits_and_paths_follow_a_separator(check):
    words = check("diff", "HEAD~1..main", "a.py")

    assert "HEAD~1^{commit}..main^{commit}" in words
    assert words[words.index("--") + 1] == "a.py"


def test_hidden_files_are_excluded_where_files_are_shown(check):
    assert ":(exclude,glob)**/.*" in check("status")
    assert ":(exclude,glob)**/.*" in check("log", "-p")
    assert ":(exclude,glob)**/.*" not in check("log")


def test_one_file_of_a_revision_is_read_as_a_blob(check):
    assert check("show", "HEAD:./a.py")[-3:] == ("cat-file", "blob", "HEAD:./a.py")


@pytest.mark.parametrize(
    "words",
    [
        ("show", "HEAD:.env"),
        ("show", "HEAD:a:b"),
        ("diff", "--", ":(top)a.py"),
        ("diff", "--", "../a.py"),
        ("diff", "--output=x"),
        ("branch", "new"),
    ],
)
def test_other_arguments_are_refused(check, words):
    with pytest.raises(CommandRefusedError):
        check(*words)


def test_without_restrictions_the_words_are_unchanged(check):
    assert check("diff", "HEAD", is_restricted=False) == ("diff", "HEAD")

"""The arguments with which known programs run."""

import pytest

from cllm.commands.command_line import CommandRefusedError
from cllm.commands.options import Arguments
from cllm.commands.programs import check_arguments, is_known


@pytest.fixture
def check(tmp_path):
    (tmp_path / "a.txt").touch()
    (tmp_path / "a.zip").touch()

    def run(program: str, *words: str, is_restricted: bool = True) -> tuple[str, ...]:
        return check_arguments(
            Arguments(
                program=program,
                words=words,
                literal=frozenset(),
                directory=tmp_path,
                is_restricted=is_restricted,
            )
        )

    return run


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("cat", "a.txt", "-n"), ("-n", "--", "a.txt")),
        (("cat", "-"), ("--", "-")),
        (("echo", "-x", "--y"), ("-x", "--y")),
        (("sed", "-n", "1p", "a.txt"), ("--sandbox", "-n", "--", "1p", "a.txt")),
        (("gsed", "-n", "1p", "a.txt"), ("--sandbox", "-n", "--", "1p", "a.txt")),
        (("date", "+%H"), ("--", "+%H")),
        (("unzip", "-l", "a.zip"), ("-l", "./a.zip", "-x", ".*", "*/.*")),
        (("jq", ".name", "-r", "a.txt"), ("-r", ".name", "a.txt")),
        (("jq", "-n", '.import, ."include"'), ("-n", '.import, ."include"')),
    ],
)
def test_options_come_before_operands(check, words, expected):
    assert check(*words) == expected


def test_hidden_files_are_excluded_only_with_restrictions(check):
    assert "--exclude-dir=.[!./]*" in check("grep", "-r", "x", ".")
    assert "--exclude-dir=.[!./]*" not in check("grep", "-r", "x", ".", is_restricted=False)
    assert check("ls", "-a", is_restricted=False) == ("-a",)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("ls", "-a"), "does not allow the option"),
        (("cat", "/etc/passwd"), "outside this folder"),
        (("uniq", "a.txt", "b.txt"), "at most 1 file"),
        (("pwd", "x"), "does not allow `x`"),
        (("date", "2026-01-01"), "does not allow"),
        (("make", "CC=x"), "does not allow"),
        (("gmake", "CC=x"), "does not allow"),
        (("gtar", "xf", "a.zip"), "does not allow"),
        (("guniq", "a.txt", "new.txt"), "at most 1 file"),
        (("jq", 'import "x" as $x {search: ".."}; $x'), "must not read modules"),
        (("jq", '"../x"|modulemeta'), "must not read modules"),
        (("jq", ".", "--", "-f"), "does not allow"),
        (("jq", ".", "../x"), "outside this folder"),
        (("tar", "xf", "a.tar"), "does not allow"),
        (("tar", "-v"), "only with `-t`"),
        (("unzip", "-l", "b.zip"), "the name of one archive"),
        (("find", ".", "-delete"), "does not allow `-delete`"),
        (("find", ".", "(", "-name", "x"), "unclosed parenthesis"),
    ],
)
def test_other_arguments_are_refused(check, words, reason):
    with pytest.raises(CommandRefusedError, match=reason):
        check(*words)


def test_find_does_not_enter_hidden_folders(check):
    words = check("find", "-maxdepth", "2", "-name", "*.txt")

    assert words[:3] == (".", "-maxdepth", "2")
    assert words[-4:] == ("(", "-name", "*.txt", ")")
    assert "-prune" in words


@pytest.mark.parametrize(
    ("program", "words", "known"),
    [
        *(("ls", (), True), ("git", ("log",), True), ("git", ("push",), False), ("rm", (), False)),
        *(("gsed", (), True), ("gunzip", (), False)),
    ],
)
def test_known_programs(program, words, known):
    assert is_known(program, words) is known

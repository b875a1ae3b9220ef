"""Every block of the README and the tutorial runs in an empty environment, as printed."""

import os

import pytest
from tests.document_blocks import (
    ROOT,
    Block,
    BlockError,
    Shell,
    matches,
    parse_blocks,
    run_block,
    run_page,
    split_steps,
)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ["README.md", "docs/tutorial.md"])
def test_every_block_of_the_page_runs_as_printed(name):
    page = ROOT / name
    lines = list(run_page(page))

    assert len(lines) == len(parse_blocks(page.read_text(encoding="utf-8")))
    assert sum("skip" in line for line in lines) <= 1, "more than `make test` is skipped"


@pytest.fixture
def shell(tmp_path):
    with Shell(tmp_path) as shell:
        yield shell


def block(text: str, language: str = "console", **mark: str) -> Block:
    return Block(language=language, text=text, line=1, **mark)


@pytest.mark.parametrize(
    ("expected", "output", "same"),
    [
        ("one\ntwo", "one\ntwo\n", True),
        ("one\ntwo", "one\n", False),
        ("one", "one\ntwo\n", False),
        ("o…e", "one\n", True),
        ("o…e", "two\n", False),
        ("…\ntwo", "one\nmore\ntwo\n", True),
        ("one\n…", "one\n", True),
        ("one\n…\nfour", "one\ntwo\nthree\n", False),
        ("a.c", "abc\n", False),
        ("", "\n", True),
        ("", "one\n", False),
    ],
)
def test_an_ellipsis_stands_for_any_text_of_a_line_or_any_lines(expected, output, same):
    assert matches(expected, output) is same


def test_variables_and_the_directory_are_kept_for_the_next_block(shell):
    run_block(shell, block("export NAME=Luna\nmkdir inner && cd inner\n", "sh"))
    run_block(shell, block('$ echo "$NAME in $(basename "$PWD")"\nLuna in inner\n'))


def test_a_command_that_fails_in_the_middle_of_a_block_fails(shell):
    with pytest.raises(BlockError, match="exit code 1"):
        run_block(shell, block("false\necho after\n", "sh"))
    with pytest.raises(BlockError, match="exit code"):
        run_block(shell, block("exit 3 | cat\n", "sh"))


def test_another_output_than_the_printed_one_fails(shell):
    with pytest.raises(BlockError, match="printed in the page"):
        run_block(shell, block("$ echo one\ntwo\n"))


def test_a_command_over_several_lines_is_one_command():
    (first, second) = split_steps(block("$ echo one \\\n  two\none two\n$ true\n"))

    assert (first.commands, first.output) == ("echo one \\\n  two\n", "one two")
    assert (second.commands, second.output) == ("true\n", "")


def test_a_block_becomes_a_file_of_the_home_folder(shell):
    run_block(shell, block("a: 1\n", "yaml", mark="file", argument="~/inner/one.yml"))
    run_block(shell, block("$ cat ~/inner/one.yml\na: 1\n"))


@pytest.mark.parametrize(("language", "text"), [("yaml", "a: [1"), ("json", "{'a': 1}")])
def test_a_file_that_is_not_valid_fails(shell, language, text):
    with pytest.raises(Exception, match=r".+"):
        run_block(shell, block(text, language))


def test_the_home_folder_is_empty_and_no_key_is_inherited(shell, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-real")
    run_block(shell, block('$ ls -A ~ && echo "key: $OPENAI_API_KEY"\nkey:\n'))


@pytest.mark.parametrize("text", ["```\ncllm\n```\n", "text\n\n    cllm\n"])
def test_a_block_without_a_language_fails(text):
    with pytest.raises(BlockError, match="language"):
        parse_blocks(text)


def test_a_comment_belongs_to_the_next_block_only():
    first, second = parse_blocks("<!-- blocks: skip why -->\n```sh\na\n```\n\n```sh\nb\n```\n")

    assert (first.mark, first.argument) == ("skip", "why")
    assert second.mark == ""


def test_a_background_command_ends_with_the_page(tmp_path):
    with Shell(tmp_path) as shell:
        run_block(
            shell, block("sh -c 'echo $$ > ~/id; echo ready; sleep 60'\n", "sh", mark="background")
        )
        process = int((shell.home / "id").read_text())
        os.kill(process, 0)
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)

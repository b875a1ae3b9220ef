"""Every command and every Cllmfile in the documentation is one that cllm accepts.

Commands are parsed and not run. The README and the tutorial also run: test_document_blocks.py.
"""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click
import pytest
import yaml
from markdown_it import MarkdownIt

from cllm.cli.inputs import OptionError
from cllm.cli.main import root
from cllm.settings import sections

TOP = Path(__file__).parents[2]
PAGES = [
    *(path for path in TOP.glob("*.md") if path.name != "CHANGELOG.md"),
    *(path for path in (TOP / "docs").rglob("*.md") if path.parent.name != "decisions"),
]
SHELL = ("sh", "console", "bash")
# Words of a command after which another command, a file or a comment follows.
END_OF_COMMAND = re.compile(r"\s(?:\||>|>>|<|&&|;|2>|&|#)(?:\s|&|$)|;$")
PLACEHOLDER = re.compile(r"…|\.\.\.$|\[")


class Command(NamedTuple):
    page: str
    line: int
    text: str


def find_fences(page: Path) -> Iterator[tuple[str, int, str]]:
    """Yield the language, the first line and the text of each block; indented ones have none."""
    for token in MarkdownIt().parse(page.read_text(encoding="utf-8")):
        if token.type in {"fence", "code_block"} and token.map is not None:
            yield token.info.split(" ")[0], token.map[0] + 1, token.content


def find_commands() -> Iterator[Command]:
    for page in PAGES:
        for language, first, text in find_fences(page):
            if language in SHELL or not language:
                joined = re.sub(r"\\\n\s*", " ", text)
                for line in joined.splitlines():
                    yield from (
                        Command(str(page.relative_to(TOP)), first, found)
                        for found in split_commands(line, language)
                    )


def split_commands(line: str, language: str) -> Iterator[str]:
    """Yield the calls of cllm in a line of a block."""
    is_command = line.startswith("$ ") if language == "console" else True
    if not is_command:
        return
    for part in re.split(r"\s(?:\||&&|;)\s|\$\(|`", line.removeprefix("$ ")):
        call = re.sub(r"^(?:[A-Z_]+=\S*\s+)+", "", part.strip())
        if re.match(r"cllm(?:\s|$)", call):
            end = END_OF_COMMAND.search(call)
            yield call[: end.start()] if end and is_outside_quotes(call, end.start()) else call


def is_outside_quotes(text: str, index: int) -> bool:
    return text.count('"', 0, index) % 2 == 0 and text.count("'", 0, index) % 2 == 0


COMMANDS = sorted({command for command in find_commands() if not PLACEHOLDER.search(command.text)})


def parse(words: list[str]) -> None:
    """Parse the words as the command does, with its sub-commands."""
    command: click.Command = root
    context = root.make_context("cllm", list(words))
    while isinstance(command, click.Group):
        inner = [*context._protected_args, *context.args]
        if not inner:
            return
        name, found, rest = command.resolve_command(context, inner)
        assert found is not None
        context = found.make_context(name, rest, parent=context)
        command = found


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: f"{command.page}: {command.text}")
def test_the_command_is_one_that_cllm_accepts(command):
    try:
        parse(shlex.split(command.text.rstrip(")"))[1:])
    except click.exceptions.Exit:
        pass  # --help and --version
    except (click.UsageError, OptionError) as error:
        pytest.fail(f"{command.page}:{command.line}: {command.text}: {error}")


def test_there_are_commands_in_most_pages():
    pages = {command.page for command in COMMANDS}
    assert len(pages) > 20
    assert len(COMMANDS) > 200


@pytest.mark.parametrize(
    "words", [["conversations", "lst"], ["serve", "--prt", "1"], ["conversations", "branch"]]
)
def test_a_command_that_does_not_exist_is_found(words):
    with pytest.raises((click.UsageError, OptionError)):
        parse(words)


def find_cllmfiles() -> Iterator[tuple[str, int, dict[str, object]]]:
    for page in PAGES:
        for language, line, text in find_fences(page):
            if language == "yaml":
                content = yaml.safe_load(text)
                if isinstance(content, dict) and is_cllmfile(content):
                    yield str(page.relative_to(TOP)), line, content


def is_cllmfile(content: dict[str, object]) -> bool:
    return any(key in sections.CLLM_KEYS for key in content) and "model_list" not in content


@pytest.mark.parametrize(
    ("page", "line", "content"), list(find_cllmfiles()), ids=lambda value: str(value)[:40]
)
def test_the_settings_are_ones_that_cllm_accepts(page, line, content, tmp_path, cllm, provider):
    (tmp_path / "Cllmfile.yml").write_text(yaml.safe_dump(content), encoding="utf-8")

    done = cllm("--show-config", "--cllm-path", str(tmp_path), "--trust")

    assert done.code == 0, f"{page}:{line}: {done.err}"
    assert "unknown" not in done.err.lower(), f"{page}:{line}: {done.err}"

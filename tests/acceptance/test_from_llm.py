"""Every cllm command in the table for users of `llm` runs."""

import re
import shlex
import shutil
from pathlib import Path

import pytest
from tests.import_sources import LLM_FOLDER

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "from-llm.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| `(llm .*|cat .*)` \| `([^`]*)`.*\|$", re.MULTILINE)
COMMANDS = [(row[1].replace(r"\|", "|"), row[2].replace(r"\|", "|")) for row in ROW.finditer(PAGE)]
REPLY = '```\n{"name": "Luna", "age": 3}\n```'
TYPED = {
    "cllm chat": b"One.\nTwo.\n",
    "cllm chat -c": b"One.\nTwo.\n",
    "cllm keys set openai": b"sk-test\n",
}
"""What a person types at the commands that wait for input."""
EDIT = "cllm templates edit translate"
PICTURE = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c489"
    "0000000d49444154789c6360000002000001e221bc330000000049454e44ae426082"
)


def test_the_table_has_every_row():
    rows = [line for line in PAGE.splitlines() if line.startswith("| `")]
    assert len(COMMANDS) == len(rows) - 1  # the heading
    assert {*TYPED, EDIT} <= {ours for _, ours in COMMANDS}


@pytest.fixture
def run_line(home, settings, provider, cllm):
    """Run a line with its input or an editor; the files that the lines name exist."""
    openai = {"api_base": provider.url, "api_key": "sk-test-0123456789abcdef"}
    settings(
        model="openai/gpt-test",
        api_base=...,
        api_key=...,
        providers={"openai": openai},
        aliases={"fast": "openai/gpt-4o"},
    )
    home.write_old_conversation(
        "cats", ("user", "My cat is called Luna."), ("assistant", "A fine name.")
    )
    (home.work / "notes.txt").write_text("All is well.", encoding="utf-8")
    (home.work / "picture.png").write_bytes(PICTURE)
    shutil.copy(LLM_FOLDER / "llm-new.db", home.work / "logs.db")
    templates = home.path / ".cllm" / "templates"
    templates.mkdir()
    (templates / "translate.yml").write_text("prompt: Translate.", encoding="utf-8")
    editor = home.work / "editor"
    editor.write_text('#!/bin/sh\necho "prompt: Edited." > "$1"\n', encoding="utf-8")
    editor.chmod(0o700)

    def run(line):
        arguments = shlex.split(line)[1:]
        if line == EDIT:
            return cllm.on_terminal(*arguments, env={"EDITOR": str(editor)})
        if line in TYPED:
            return cllm(*arguments, stdin=TYPED[line])
        return cllm.run_line(line)

    return run


@pytest.mark.parametrize("line", sorted({ours for _, ours in COMMANDS}))
def test_our_command_runs(line, run_line, cllm, provider):
    if re.search(r"(?<!-)-c\b", line):
        cllm("First.", "--conversation", "cats").succeeded()
    provider.queue_reply('{"name": "Luna", "age": 3}' if "--schema" in line else REPLY)
    done = run_line(line)
    done.succeeded()
    assert "Traceback" not in done.out + done.err
    assert done.out.strip() or done.err.strip()


def test_the_first_command_imports_the_history(run_line):
    line = next(line.strip(" $") for line in PAGE.splitlines() if line.startswith("$ "))
    done = run_line(line)
    done.succeeded()
    assert "imported" in (done.out + done.err).lower()

"""Mistakes and surprises of a first use: each has a sentence that says what to do."""

import re
import subprocess
from pathlib import Path

import pytest
from tests.terminal_chat import CTRL_D

TOP = Path(__file__).parents[2]


def test_a_prompt_without_quotes_is_answered_with_a_hint(provider, settings, cllm):
    result = cllm("what", "is", "this")

    assert result.code == 2, result.report()
    assert 'in quotes: cllm "What is this?"' in result.err
    assert provider.requests == []


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [("max_tokens", "five", "a whole number"), ("temperature", "hot", "a number")],
)
def test_a_wrong_parameter_names_its_file_and_line(
    home, provider, settings, cllm, key, value, expected
):
    path = settings(**{key: value})

    result = cllm("Hello")

    line = result.failed_with_one_sentence(key, expected, prefix="Configuration error: ")
    assert str(path) in line
    assert "line" in line
    assert provider.requests == []


@pytest.mark.parametrize(
    "arguments",
    [
        ("Hello", "--no-such-flag"),
        ("Hello", "-t", "nan"),
        ("Hello", "-m", ""),
        ("Hello", "--exec", " "),
        ("Hello", "--var", "=1"),
        ("Hello", "--read-only"),
        ("Hello", "--command-allow", "ls"),
        ("Hello", "--system", "a", "--system-file", "b"),
        ("Hello", "--json-schema", "{}", "--json-schema-file", "a"),
        ("--validate-schema",),
        ("init", "--template", "nonsense"),
        ("chat", "demo", "--no-save"),
        ("conversations", "migrate"),
    ],
    ids=" ".join,
)
def test_the_exit_code_of_a_usage_error_is_the_one_in_the_help(provider, settings, cllm, arguments):
    assert cllm(*arguments).code == 2
    assert provider.requests == []


def test_log_lines_start_on_a_new_line(provider, settings, cllm):
    provider.queue_reply("A reply.")

    shown = cllm.start("Hello", "-v", terminal=True).finish().out

    assert "A reply." in shown.splitlines()


def test_an_empty_system_file_is_an_error(home, provider, settings, cllm):
    (home.work / "empty.txt").write_text("\n", encoding="utf-8")

    cllm("Hello", "--system-file", "empty.txt").failed_with_one_sentence("empty.txt", "is empty")

    assert provider.requests == []


@pytest.mark.parametrize("command", [("--list-conversations",), ("chat",)])
def test_the_columns_of_a_list_start_below_each_other(settings, cllm, command):
    for name in ("a", "a-much-longer-name"):
        cllm("Hello", "--conversation", name).succeeded()

    listed = cllm(*command, stdin=b"/list\n" if command == ("chat",) else b"").succeeded().out

    starts = {line.index("2 messages") for line in listed.splitlines()}
    assert len(starts) == 1, listed


def test_a_shown_conversation_has_the_same_times_as_the_list(settings, cllm):
    cllm("Hello", "--conversation", "demo").succeeded()
    zone = {"TZ": "Pacific/Kiritimati"}

    listed = cllm("--list-conversations", env=zone).succeeded().out
    shown = cllm("--show-conversation", "demo", env=zone).succeeded().out

    updated = re.search(r"Updated: (.*)", shown)
    assert updated is not None
    assert updated[1] in listed


def test_a_chat_on_a_terminal_ends_with_the_command_that_continues_it(settings, start_chat):
    chat = start_chat("demo")
    chat.say("Hello", "echo: Hello")

    chat.type(CTRL_D)

    chat.wait_for("Continue with: cllm chat demo")


def test_a_template_can_be_written_under_a_name(home, provider, settings, cllm):
    cllm("init", "--template", "code-review", "--as", "review").succeeded()
    refused = cllm("init", "--as", "../x")

    assert (home.work / ".cllm/review.Cllmfile.yml").is_file()
    assert not (home.work / ".cllm/Cllmfile.yml").exists()
    cllm("-C", "review", "Hello").succeeded()
    assert provider.requests[0].message_pairs[0][0] == "system"
    assert "--as" in refused.err


def test_the_demo_starts_a_new_conversation_each_time(home):
    """The demo runs the `cllm` on the PATH; here it prints its arguments."""
    program = home.path / "bin/cllm"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\necho "cllm: $*"\n', encoding="utf-8")
    program.chmod(0o755)

    def run_demo() -> str:
        return subprocess.run(
            ["sh", str(TOP / "examples/demo.sh")],
            env={"PATH": f"{program.parent}:/usr/bin:/bin", "HOME": str(home.path)},
            cwd=home.work,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout

    conversation, advice = run_demo().split("\n\n")
    assert "cllm: And of Italy? --conversation demo" in conversation
    assert "Try next:" in advice

    home.conversations.mkdir(parents=True)
    home.file("demo").touch()
    assert "cllm: And of Italy? --conversation demo-2" in run_demo()


def test_the_examples_are_linked_from_the_readme():
    assert "](examples/" in (TOP / "README.md").read_text(encoding="utf-8")

"""What was acknowledged is on the disk: after `kill -9`, and by the order of system calls."""

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest


def test_a_process_killed_in_mid_stream_leaves_its_question(home, provider, settings, cllm):
    cllm("First", "--conversation", "demo").succeeded()
    provider.queue_held_reply("Half an", "never", at=1)
    running = cllm.start("Second", "--conversation", "demo")
    running.wait_for_output("Half an")

    running.process.kill()
    running.finish()

    assert home.messages("demo") == [("user", "First"), ("assistant", "echo: First")]
    shown = cllm("--show-conversation", "demo").succeeded()
    assert "[user] (failed)\nSecond" in shown.out
    cllm("Third", "--conversation", "demo").succeeded()
    assert provider.requests[2].message_pairs == [
        ("user", "First"),
        ("assistant", "echo: First"),
        ("user", "Third"),
    ]


CALL = re.compile(r"^(?:\d+\s+)?(?P<name>\w+)\((?P<arguments>.*)\)\s+= (?P<result>-?\d+)")


def system_calls(trace: Path) -> Iterator[tuple[str, str, int]]:
    """The calls that returned, as triples of name, arguments and result, in their order."""
    unfinished: dict[str, str] = {}
    for line in trace.read_text(encoding="utf-8", errors="replace").splitlines():
        process, _, call = line.partition(" ")
        call = call.strip()
        if call.endswith("<unfinished ...>"):
            unfinished[process] = call.removesuffix("<unfinished ...>").rstrip()
            continue
        resumed = re.match(r"<\.\.\. \w+ resumed>\s?", call)
        if resumed:
            call = unfinished.pop(process, "") + call[resumed.end() :]
        found = CALL.match(call)
        if found:
            yield found["name"], found["arguments"], int(found["result"])


@pytest.fixture
def traced(home, cllm):
    """Runs the command under strace; returns the system calls that went well, in their order."""
    if shutil.which("strace") is None:
        if os.environ.get("CI"):
            pytest.fail("strace is not installed, and this run must not go without it")
        pytest.skip("strace is not installed")

    def run(*arguments):
        trace = home.path.parent / "trace"
        calls = "trace=fsync,fdatasync,rename,renameat,renameat2,openat"
        wrapper = ("strace", "-f", "-y", "-s", "4096", "-e", calls, "-o", str(trace))
        cllm(*arguments, wrapper=wrapper).succeeded()
        return [(name, text) for name, text, result in system_calls(trace) if result >= 0]

    return run


@pytest.mark.parametrize("turn", ["first", "second"])
def test_file_and_directory_are_flushed_before_exit_0(turn, home, settings, cllm, traced):
    if turn == "second":
        cllm("First", "--conversation", "demo").succeeded()

    calls = traced("Hello", "--conversation", "demo")

    folder, file = str(home.conversations), str(home.file("demo"))
    ours = [(name, arguments) for name, arguments in calls if folder in arguments]
    renames = [
        number
        for number, (name, arguments) in enumerate(ours)
        if name.startswith("rename") and f'"{file}"' in _absolute(arguments, folder)
    ]
    assert renames, ours
    rename = renames[-1]
    source = re.findall(r'"([^"]*)"', ours[rename][1])[0].rsplit("/", 1)[-1]
    flushes = [
        (number, re.search(r"<([^>]*)>", arguments))
        for number, (name, arguments) in enumerate(ours)
        if name in ("fsync", "fdatasync")
    ]
    flushed = [(number, match[1]) for number, match in flushes if match]
    assert any(number < rename and path.endswith(f"/{source}") for number, path in flushed), ours
    assert any(number > rename and path == folder for number, path in flushed), ours
    writers = [
        arguments
        for name, arguments in ours
        if name == "openat" and f'"{file}"' in arguments and re.search("O_WRONLY|O_RDWR", arguments)
    ]
    assert writers == [], "the file itself was opened for writing"


def _absolute(arguments: str, folder: str) -> str:
    """Names relative to a directory that was opened, as absolute ones."""
    return re.sub(r'"([^"/]+)"', lambda match: f'"{folder}/{match[1]}"', arguments)


def test_a_new_folder_is_flushed_into_its_parent(home, settings, traced):
    calls = traced("Hello", "--conversation", "demo")

    flushed = [arguments for name, arguments in calls if name in ("fsync", "fdatasync")]
    parent = str(home.conversations.parent)
    assert any(f"<{parent}>" in arguments for arguments in flushed), flushed


def test_no_file_is_left_beside_the_conversation(home, settings, cllm):
    for number in range(3):
        cllm(f"Question {number}", "--conversation", "demo").succeeded()

    assert list(home.snapshot(home.conversations)) == ["demo.json"]
    assert list(home.temporary.iterdir()) == []


def test_a_process_killed_in_its_first_turn_leaves_the_captured_prompt(
    home, provider, settings, cllm
):
    settings(default_system_message="You are a vet.")
    provider.queue_held_reply("Half an", "never", at=1)
    running = cllm.start("Hello", "--conversation", "demo", "--exec", "echo Luna")
    running.wait_for_output("Half an")

    running.process.kill()
    running.finish()

    ((role, prompt),) = home.messages("demo")
    assert role == "system"
    assert prompt.startswith("You are a vet.")
    assert "Luna" in prompt
    (turn,) = home.load("demo")["metadata"]["cllm"]["turns"]
    assert turn["inline"] == [{"role": "user", "content": "Hello"}]
    settings(default_system_message="You are a vet.")
    cllm("Again", "--conversation", "demo").succeeded()
    assert provider.requests[1].message_pairs == [("system", prompt), ("user", "Again")]

"""Several commands in one conversation: one turn at a time, and nobody's turn is lost."""

import itertools
import json
import threading
from pathlib import Path
from typing import Any, Self

import pytest
from tests.torture import choose_size

WORKERS, TURNS = choose_size((4, 2), full=(16, 4))


def pairs_of(messages: list[dict[str, Any]]) -> list[str]:
    """The messages as pairs of question and answer; fails when there is a half one."""
    assert len(messages) % 2 == 0, messages
    pairs = list(zip(messages[::2], messages[1::2], strict=True))
    for user, assistant in pairs:
        assert user["role"] == "user", messages
        assert assistant == {"role": "assistant", "content": f"echo: {user['content']}"}, messages
    return [user["content"] for user, _ in pairs]


class Watcher:
    """Reads a file over and over, and remembers what was wrong with it, if anything was."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.error: Exception | None = None
        self.reads = 0
        self.lengths: list[int] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(60)

    def _watch(self) -> None:
        while not self._stop.is_set() and self.error is None:
            try:
                data = self.path.read_bytes()
            except FileNotFoundError:
                if self.reads:
                    self.error = AssertionError("the file was gone for a moment")
                self._stop.wait(0.001)
                continue
            try:
                self.lengths.append(len(pairs_of(json.loads(data)["messages"])))
            except (ValueError, KeyError, AssertionError) as found:
                self.error = found
            self.reads += 1
            self._stop.wait(0.001)


def test_a_second_prompt_waits_for_the_first_ones_turn(
    home, provider, settings, cllm, start_waiting
):
    gate = provider.queue_held_reply("Slow", " answer", at=1)
    first = cllm.start("First", "--conversation", "demo")
    first.wait_for_output("Slow")
    second = start_waiting("Second", "--conversation", "demo")
    assert len(provider.requests) == 1
    assert second.process.poll() is None

    gate.open()

    assert first.finish().succeeded().out == "Slow answer\n"
    assert second.finish().succeeded().out == "echo: Second\n"
    assert provider.requests[1].message_pairs == [
        ("user", "First"),
        ("assistant", "Slow answer"),
        ("user", "Second"),
    ]
    assert home.messages("demo") == [
        *provider.requests[1].message_pairs,
        ("assistant", "echo: Second"),
    ]


def test_a_prompt_in_another_conversation_does_not_wait(home, provider, settings, cllm):
    gate = provider.queue_held_reply("Slow", " answer", at=1)
    first = cllm.start("First", "--conversation", "one")
    first.wait_for_output("Slow")

    cllm("Second", "--conversation", "two").succeeded()
    cllm("Third").succeeded()

    gate.open()
    first.finish().succeeded()


def test_looking_does_not_wait_for_a_running_turn(home, provider, settings, cllm):
    cllm("First", "--conversation", "demo").succeeded()
    gate = provider.queue_held_reply("Slow", " answer", at=1)
    running = cllm.start("Second", "--conversation", "demo")
    running.wait_for_output("Slow")

    shown = cllm("--show-conversation", "demo").succeeded()
    listed = cllm("--list-conversations").succeeded()

    assert "echo: First" in shown.out
    assert "demo" in listed.out
    gate.open()
    running.finish().succeeded()


def test_a_waiting_prompt_continues_when_the_first_turn_fails(
    home, provider, settings, cllm, start_waiting
):
    gate = provider.queue_held_reply("Half", "never", at=1, stop_after=1)
    first = cllm.start("First", "--conversation", "demo")
    first.wait_for_output("Half")
    second = start_waiting("Second", "--conversation", "demo")

    gate.open()

    first.finish().failed_with_one_sentence()
    second.finish().succeeded()
    assert home.messages("demo") == [("user", "Second"), ("assistant", "echo: Second")]


def test_a_waiting_prompt_continues_when_the_first_process_is_killed(
    home, provider, settings, cllm, start_waiting
):
    provider.queue_held_reply("Half", "never", at=1)
    first = cllm.start("First", "--conversation", "demo")
    first.wait_for_output("Half")
    second = start_waiting("Second", "--conversation", "demo")

    first.process.kill()

    second.finish().succeeded()
    assert home.messages("demo")[-2:] == [("user", "Second"), ("assistant", "echo: Second")]
    assert provider.requests[1].message_pairs == [("user", "Second")]


def test_changes_of_another_tool_during_a_turn_are_not_overwritten(home, provider, settings, cllm):
    cllm("First", "--conversation", "demo").succeeded()
    gate = provider.queue_held_reply("Slow", " answer", at=1)
    running = cllm.start("Second", "--conversation", "demo")
    running.wait_for_output("Slow")
    edited = home.load("demo")
    edited["messages"][0]["content"] = "Edited by hand"
    edited["note"] = "written meanwhile"
    home.write_conversation("demo", edited)

    gate.open()
    running.finish().succeeded()

    assert home.load("demo")["note"] == "written meanwhile"
    assert home.messages("demo") == [
        ("user", "Edited by hand"),
        ("assistant", "echo: First"),
        ("user", "Second"),
        ("assistant", "Slow answer"),
    ]


@pytest.mark.torture
@pytest.mark.timeout(choose_size(240, full=1200))
def test_a_storm_of_processes_loses_no_turn(home, provider, settings, cllm):
    results = []

    def work(worker):
        for turn in range(TURNS):
            prompt = f"worker {worker} turn {turn}"
            result = cllm(prompt, "--conversation", "storm", timeout=900)
            results.append((prompt, result))

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(WORKERS)]
    with Watcher(home.file("storm")) as watcher:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert watcher.error is None
    assert watcher.reads > 0
    assert watcher.lengths == sorted(watcher.lengths), "the file lost a turn for a moment"
    for prompt, result in results:
        assert result.succeeded().out == f"echo: {prompt}\n"
    turns = itertools.product(range(WORKERS), range(TURNS))
    expected = [f"worker {worker} turn {turn}" for worker, turn in turns]
    asked = pairs_of(home.load("storm")["messages"])
    assert sorted(asked) == sorted(expected)
    for worker in range(WORKERS):
        own = [prompt for prompt in asked if prompt.startswith(f"worker {worker} ")]
        assert own == [f"worker {worker} turn {turn}" for turn in range(TURNS)]
    assert home.turn_states("storm") == ["complete"] * len(expected)
    for request in provider.requests:
        history = pairs_of(request.messages[:-1])
        assert history == asked[: len(history)], "a turn was asked with a history that never was"
    assert list(home.snapshot(home.conversations)) == ["storm.json"]

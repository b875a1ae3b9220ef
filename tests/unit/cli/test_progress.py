"""The progress line of long work."""

import io
import sys

import pytest

from cllm.cli.progress import show_progress


class Stream(io.StringIO):
    def __init__(self, *, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


class SlowClock:
    """Every reading advances it by `step` seconds."""

    def __init__(self, step: float) -> None:
        self.now = 0.0
        self._step = step

    def __call__(self) -> float:
        self.now += self._step
        return self.now


@pytest.fixture
def run_counter(monkeypatch):
    def run(*, terminal: bool, step: float) -> str:
        stream = Stream(terminal=terminal)
        monkeypatch.setattr(sys, "stderr", stream)
        monkeypatch.setenv("TERM", "xterm")
        assert list(show_progress("abc", "Reading", total=3, clock=SlowClock(step))) == [
            "a",
            "b",
            "c",
        ]
        return stream.getvalue()

    return run


def test_progress_is_shown_and_cleared_on_a_terminal(run_counter):
    text = run_counter(terminal=True, step=1.0)

    assert "Reading: 2 of 3" in text
    assert text.endswith("\r\x1b[K")


def test_quick_work_shows_no_progress(run_counter):
    assert run_counter(terminal=True, step=0.001) == ""


def test_without_a_terminal_there_is_no_progress(run_counter):
    assert run_counter(terminal=False, step=1.0) == ""

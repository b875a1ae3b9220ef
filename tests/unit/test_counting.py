"""How far long work is: shown on a terminal only, and only once it takes a while."""

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
    """Every look at it takes a second."""

    def __init__(self, step: float) -> None:
        self.now = 0.0
        self._step = step

    def __call__(self) -> float:
        self.now += self._step
        return self.now


@pytest.fixture
def shown(monkeypatch):
    def run(*, terminal: bool, step: float) -> str:
        stream = Stream(terminal=terminal)
        monkeypatch.setattr(sys, "stderr", stream)
        monkeypatch.setenv("TERM", "xterm")
        assert list(show_progress("abc", "Looking", total=3, clock=SlowClock(step))) == [
            "a",
            "b",
            "c",
        ]
        return stream.getvalue()

    return run


def test_on_a_terminal_it_is_shown_and_cleared(shown):
    text = shown(terminal=True, step=1.0)

    assert "Looking: 2 of 3" in text
    assert text.endswith("\r\x1b[K")


def test_what_is_quick_shows_nothing(shown):
    assert shown(terminal=True, step=0.001) == ""


def test_elsewhere_nothing_is_shown(shown):
    assert shown(terminal=False, step=1.0) == ""

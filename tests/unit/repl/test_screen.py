"""Notes, warnings and errors of a chat."""

import io

import pytest

from cllm.core.errors import UsageError
from cllm.core.notice import Notice
from cllm.repl.screen import Screen, in_chat_words, wrap_line


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def forty_columns(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")


SENTENCE = "One two three four five six seven eight nine ten eleven twelve."


@pytest.mark.parametrize(
    ("text", "in_chat"),
    [
        ("choose a larger model, for example: -m openai/gpt-4o", "example: /model openai/gpt-4o"),
        ("choose another model with -m, or", "choose another model with /model, or"),
        ("attach it with --attach -.", "attach it with /attach -."),
        (
            "Conversation 'x' does not exist; list conversations with: cllm conversations list",
            "Conversation 'x' does not exist; /list lists the conversations.",
        ),
        ("run: python3 -m pip install 'cllm[local]'", "python3 -m pip install 'cllm[local]'"),
        ("the file a-m b --executable", "the file a-m b --executable"),
    ],
)
def test_the_advice_of_an_error_names_commands_of_the_chat(text, in_chat):
    assert in_chat_words(text).endswith(in_chat)


def test_sentences_are_wrapped_on_a_terminal():
    err = Terminal()
    screen = Screen(Terminal(), err, environment={"TERM": "xterm", "NO_COLOR": "1"})

    screen.note(SENTENCE)
    screen.warn(Notice(code="x", message=SENTENCE))
    screen.error(UsageError(SENTENCE))

    lines = err.getvalue().splitlines()
    assert max(map(len, lines)) <= 40
    assert " ".join(lines) == f"{SENTENCE} Warning: {SENTENCE} Error: {SENTENCE}"


def test_sentences_are_not_wrapped_in_a_file():
    err = io.StringIO()
    Screen(Terminal(), err, environment={"TERM": "xterm"}).note(SENTENCE)

    assert err.getvalue() == f"{SENTENCE}\n"


def test_a_long_word_is_not_split():
    path = "/a-folder/" * 9

    assert wrap_line(f"Written to {path}", 40) == ["Written to", path]

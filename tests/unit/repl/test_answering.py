"""What a chat shows of a turn's events."""

import io
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.repl.conversations import conversation_of, turn_of

from cllm.core.conversation import WindowRecord
from cllm.core.message import plain_message
from cllm.core.notice import Notice
from cllm.core.prompt import Prompt
from cllm.core.reply import ReplyFinished, TextDelta, Usage
from cllm.engine.turn import TurnBegan, TurnEnded
from cllm.repl.answering import TRIMMED, _Turn
from cllm.repl.chat import Chat, ChatOptions, asked_in
from cllm.repl.screen import Screen
from cllm.repl.transcript import as_markdown, tail_lines


def window_from(sequence: int) -> WindowRecord:
    return WindowRecord(first_sequence=sequence, sent_messages=3)


def began(sequence: int, *notices: Notice) -> TurnBegan:
    prompt = Prompt(
        model="m",
        system=None,
        messages=(plain_message("user", "Hello"),),
        window=window_from(sequence),
        notices=notices,
    )
    return TurnBegan(conversation="demo", model="m", prompt=prompt)


def ended(text: str = "Hi.", **more: Any) -> TurnEnded:
    message = plain_message("assistant", text)
    reply = ReplyFinished(message=message, stop_reason=more.pop("stop_reason", "end"), **more)
    return TurnEnded(reply=reply, turn=None, model="m")


class Seen:
    """A chat without a store, and what it shows."""

    def __init__(self, **options: Any) -> None:
        self.out, self.err = io.StringIO(), io.StringIO()
        app: Any = SimpleNamespace(model="m", settings=SimpleNamespace(system=None))
        screen = Screen(self.out, self.err, environment={})
        self.chat = Chat(app, screen, ChatOptions(**options), attach=lambda _: ())
        self.turn = _Turn(self.chat, screen.begin_answer())


@pytest.fixture
def seen() -> Seen:
    return Seen()


class TestTheWindow:
    def test_turns_that_leave_it_are_told(self, seen):
        seen.chat.conversation = conversation_of(turn_of("1"), turn_of("2", window=window_from(1)))

        seen.turn.hear(began(3))

        assert seen.err.getvalue() == (
            f"{TRIMMED} (1 turn of this conversation is not sent any more).\n"
        )

    def test_turns_that_had_left_it_before_are_not_told_again(self, seen):
        seen.chat.conversation = conversation_of(
            turn_of("1"), turn_of("2"), turn_of("3", window=window_from(3))
        )

        seen.turn.hear(began(3))

        assert seen.err.getvalue() == ""

    def test_a_whole_conversation_is_not_trimmed(self, seen):
        seen.chat.conversation = conversation_of(turn_of("1"), turn_of("2"))

        seen.turn.hear(began(1))

        assert seen.err.getvalue() == ""


def test_a_notice_is_told_once_in_a_conversation(seen):
    notice = Notice(code="x", message="Something is left out.")

    seen.turn.hear(began(1, notice))
    seen.turn.hear(began(1, notice))

    assert seen.err.getvalue() == "Warning: Something is left out.\n"


def test_an_answer_goes_to_standard_output_and_its_figures_beside_it(seen):
    seen.turn.hear(TextDelta(text="Hi."))
    seen.turn.hear(ended(usage=Usage(input=3, output=2)))

    assert seen.out.getvalue() == "Hi.\n"
    assert seen.err.getvalue().startswith("3 tokens sent, 2 received · cost unknown")
    assert seen.chat.sitting.answers == 1


def test_an_answer_that_was_cut_or_empty_is_said_to_be():
    seen = Seen(show_stats=False)

    seen.turn.hear(ended(" ", stop_reason="length"))

    assert seen.err.getvalue().splitlines() == [
        "The model answered without a text.",
        "The answer reached its limit of tokens (`max_tokens`).",
    ]


def test_what_was_asked_in_a_turn_is_what_stands_before_the_answer():
    turn = turn_of("1")

    assert asked_in(turn) == turn.messages[:1]
    assert asked_in(turn_of("2", answer=None)) == turn.messages[:1]


class TestTranscript:
    def test_the_tail_has_the_last_turns_and_says_how_many_came_before(self):
        turns = [turn_of(str(number), asked=f"Question {number}") for number in range(5)]

        lines = list(tail_lines(conversation_of(*turns, title="Birds")))

        assert lines[:2] == ["demo · Birds", "(2 earlier turns)"]
        assert "You: Question 1" not in lines
        assert "You: Question 2" in lines
        assert lines.count("Model: Hi.") == 3

    def test_a_long_message_is_shortened_and_an_unfinished_turn_is_marked(self):
        long = "\n".join(f"line {number}" for number in range(50))

        lines = list(tail_lines(conversation_of(turn_of("1", asked=long, answer=None))))

        assert lines[2] == "You: line 0"
        assert lines[3] == "  … 38 lines …"
        assert lines[4] == "line 39"
        assert "(incomplete)" in lines

    def test_control_characters_in_it_do_not_reach_the_terminal(self):
        lines = tail_lines(conversation_of(turn_of("1", asked="a\x1b[2Jb")))

        assert "\x1b" not in "".join(lines)

    def test_as_markdown_everything_is_there(self):
        conversation = conversation_of(turn_of("1"), system=plain_message("system", "Talk."))

        assert as_markdown(conversation) == (
            "# demo\n\n## System\n\nTalk.\n\n## You\n\nHello\n\n## Model\n\nHi.\n"
        )

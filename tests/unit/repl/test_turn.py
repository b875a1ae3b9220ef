"""The output of a chat for the events of a turn."""

import io
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from tests.unit.repl.conversations import conversation_of, turn_of

from cllm.app import NO_TEXT, TOOL_NOT_RUN
from cllm.core.conversation import WindowRecord
from cllm.core.message import plain_message
from cllm.core.notice import Notice
from cllm.core.prompt import Prompt
from cllm.core.reply import Noticed, ReplyFinished
from cllm.engine.prompt_builder import TRIMMED, TRIMMED_CODE
from cllm.engine.request import TurnEnded, TurnStarted
from cllm.repl.chat import Chat, ChatOptions
from cllm.repl.format import tail_lines
from cllm.repl.screen import Screen
from cllm.repl.turn import TurnPrinter


def window_from(sequence: int) -> WindowRecord:
    return WindowRecord(first_sequence=sequence, sent_messages=3)


def began(sequence: int, *notices: Notice) -> TurnStarted:
    prompt = Prompt(
        model="m",
        system=None,
        messages=(plain_message("user", "Hello"),),
        window=window_from(sequence),
        notices=notices,
    )
    return TurnStarted(conversation="demo", model="m", prompt=prompt)


def ended(text: str = "Hi.", **more: Any) -> TurnEnded:
    message = plain_message("assistant", text)
    reply = ReplyFinished(message=message, stop_reason=more.pop("stop_reason", "end"), **more)
    return TurnEnded(reply=reply, turn=None, model="m")


class Seen:
    """A chat without a store, and its output."""

    def __init__(self, **options: Any) -> None:
        self.out, self.err = io.StringIO(), io.StringIO()
        app: Any = SimpleNamespace(
            model="m", settings=SimpleNamespace(system=None, model_is_explicit=False)
        )
        screen = Screen(self.out, self.err, environment={})
        self.chat = Chat(app, screen, ChatOptions(**options), attach=lambda _: ())
        self.turn = TurnPrinter(self.chat, screen.start_answer())


@pytest.fixture
def seen() -> Seen:
    return Seen()


class TestTheWindow:
    def test_trimmed_turns_are_reported_every_time(self, seen):
        notice = Notice(code=TRIMMED_CODE, message=f"{TRIMMED} (1 turn is no longer sent).")
        event = began(3)
        event = msgspec.structs.replace(
            event, prompt=msgspec.structs.replace(event.prompt, notices=(notice,))
        )

        seen.turn.on_event(event)
        seen.turn.on_event(event)

        assert seen.err.getvalue().count(TRIMMED) == 2

    def test_a_whole_conversation_is_not_trimmed(self, seen):
        seen.turn.on_event(began(1))

        assert seen.err.getvalue() == ""


class TestToolsThatTheModelInvents:
    def test_a_reply_with_only_a_tool_call_says_that_nothing_was_run(self, seen):
        seen.turn.on_event(ended("", stop_reason="tool_calls"))

        assert TOOL_NOT_RUN in seen.err.getvalue()
        assert NO_TEXT not in seen.err.getvalue()

    def test_a_repair_of_the_history_is_reported_once(self, seen):
        repair = Notice(code="interrupted_call_answered", message="An error result was added.")
        other = Notice(code="fallback_used", message="Another model replied.")
        for notice in (repair, other, repair, other):
            seen.turn.on_event(Noticed(notice=notice))

        assert seen.err.getvalue().count("An error result was added.") == 1
        assert seen.err.getvalue().count("Another model replied.") == 2


class TestTranscript:
    def test_the_tail_has_the_last_turns_and_the_count_of_earlier_ones(self):
        turns = [turn_of(str(number), question=f"Question {number}") for number in range(5)]

        lines = list(tail_lines(conversation_of(*turns, title="Birds")))

        assert lines[:2] == ["demo · Birds", "(2 earlier turns)"]
        assert "[3] You: Question 1" not in lines
        assert "[5] You: Question 2" in lines
        assert [line for line in lines if "Model: Hi." in line] == [
            f"[{number}] Model: Hi." for number in (6, 8, 10)
        ]

    def test_a_long_message_is_shortened_and_an_unfinished_turn_is_marked(self):
        long = "\n".join(f"line {number}" for number in range(50))

        lines = list(tail_lines(conversation_of(turn_of("1", question=long, answer=None))))

        assert lines[2] == "[1] You: line 0"
        assert lines[3] == "  … 38 lines …"
        assert lines[4] == "line 39"
        assert "(incomplete)" in lines

    def test_control_characters_of_a_message_are_escaped(self):
        lines = tail_lines(conversation_of(turn_of("1", question="a\x1b[2Jb")))

        assert "\x1b" not in "".join(lines)

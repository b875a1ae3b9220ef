"""Ctrl-C and friends: the answer stops, what was said is kept, the exit code is 130."""

import contextlib
import json
import signal
import sys
import time

import pytest


@pytest.fixture
def interrupt_turn(provider, cllm):
    """Starts a turn, waits until its first words are printed, and stops it by a signal.

    Returns how the command ended, once the provider has seen it go.
    """

    def stop(number, *, terminal=False):
        provider.queue_held_reply("Once upon a time ", "and never this", at=1)
        running = cllm.start("Tell me.", "--conversation", "demo", terminal=terminal)
        running.wait_for_output("Once upon a time ")
        if terminal:
            running.type(b"\x03")
        else:
            running.signal(number)
        result = running.finish()
        provider.requests[-1].wait_disconnected()
        return result

    return stop


@pytest.mark.parametrize("terminal", [False, True], ids=["piped", "terminal"])
def test_ctrl_c_during_a_stream_saves_the_partial_text(terminal, home, settings, interrupt_turn):
    settings(default_system_message="Talk.")

    result = interrupt_turn(signal.SIGINT, terminal=terminal)

    assert result.code == 130, result.report()
    assert "Traceback" not in result.out + result.err
    lines = (result.out + result.err).splitlines()
    assert "Interrupted. The partial reply is saved." in lines
    assert home.messages("demo") == [
        ("system", "Talk."),
        ("user", "Tell me."),
        ("assistant", "Once upon a time "),
    ]
    assert home.turn_states("demo") == ["incomplete"]
    assert list(home.snapshot(home.conversations)) == ["demo.json"]


def test_the_turn_after_an_interrupted_one_sends_the_partial_text(
    home, provider, settings, cllm, interrupt_turn
):
    interrupt_turn(signal.SIGINT)

    cllm("Go on.", "--conversation", "demo").succeeded()

    assert provider.requests[1].message_pairs == [
        ("user", "Tell me."),
        ("assistant", "Once upon a time "),
        ("user", "Go on."),
    ]
    assert home.turn_states("demo") == ["incomplete", "complete"]
    assert len(home.messages("demo")) == 4


def test_ctrl_c_in_a_later_turn_keeps_the_earlier_ones(home, settings, cllm, interrupt_turn):
    cllm("First", "--conversation", "demo").succeeded()

    interrupt_turn(signal.SIGINT)

    assert home.messages("demo") == [
        ("user", "First"),
        ("assistant", "echo: First"),
        ("user", "Tell me."),
        ("assistant", "Once upon a time "),
    ]
    assert home.turn_states("demo") == ["complete", "incomplete"]


def test_the_settings_can_discard_an_interrupted_turn(home, settings, cllm, interrupt_turn):
    settings(on_interrupt="discard")
    cllm("First", "--conversation", "demo").succeeded()
    before = home.snapshot()

    result = interrupt_turn(signal.SIGINT)

    assert result.code == 130, result.report()
    assert home.snapshot() == before


def test_sigterm_during_a_stream_saves_the_partial_text(home, settings, interrupt_turn):
    result = interrupt_turn(signal.SIGTERM)

    assert result.code != 0, result.report()
    assert "Traceback" not in result.err
    assert home.messages("demo") == [("user", "Tell me."), ("assistant", "Once upon a time ")]
    assert home.turn_states("demo") == ["incomplete"]


@pytest.mark.parametrize("flags", [("--stream",), ("--no-stream",)], ids=["stream", "whole"])
def test_ctrl_c_before_the_first_word_saves_the_message_as_a_failed_turn(
    flags, home, provider, settings, cllm
):
    cllm("First", "--conversation", "demo").succeeded()
    provider.queue_held_reply("never", at=0)
    running = cllm.start("Tell me.", "--conversation", "demo", *flags)
    provider.wait_for(2)

    running.signal(signal.SIGINT)
    result = running.finish()

    assert result.code == 130, result.report()
    assert "Traceback" not in result.err
    assert "Interrupted. Your message is saved." in result.err.splitlines()
    provider.requests[1].wait_disconnected()
    assert home.messages("demo") == [("user", "First"), ("assistant", "echo: First")]
    assert "never" not in json.dumps(home.load("demo"))
    assert "Tell me." in cllm("--show-conversation", "demo").succeeded().out
    cllm("Go on.", "--conversation", "demo").succeeded()
    assert provider.requests[2].message_pairs == [
        ("user", "First"),
        ("assistant", "echo: First"),
        ("user", "Go on."),
    ]
    assert home.turn_states("demo") == ["complete", "failed", "complete"]


def test_doctor_reports_an_interrupted_turn_only_if_it_has_no_reply(
    home, provider, settings, cllm, interrupt_turn
):
    interrupt_turn(signal.SIGINT)
    provider.queue_held_reply("never", at=0)
    running = cllm.start("Tell me.", "--conversation", "unanswered")
    provider.wait_for(2)
    running.signal(signal.SIGINT)
    running.finish()

    report = cllm("doctor").out

    for name in ("demo", "unanswered"):
        turn = home.load(name)["metadata"]["cllm"]["turns"][0]
        assert turn["failure"]["code"] == "interrupted"
    assert "'unanswered' ends with an interrupted turn without a reply." in report
    assert "'demo'" not in report


def test_ctrl_c_without_a_conversation_leaves_nothing(home, provider, settings, cllm):
    before = home.snapshot()
    provider.queue_held_reply("Once ", "never", at=1)
    running = cllm.start("Tell me.")
    running.wait_for_output("Once ")

    running.signal(signal.SIGINT)
    result = running.finish()

    assert result.code == 130, result.report()
    assert "Traceback" not in result.err
    assert home.snapshot() == before


def test_ctrl_c_while_waiting_to_ask_again(home, provider, settings, cllm):
    settings(num_retries=5)
    provider.queue_error(429, retry_after="30")
    running = cllm.start("Tell me.", "--conversation", "demo")
    assert provider.wait_for(1).answered.wait(60)

    running.signal(signal.SIGINT)
    result = running.finish()

    assert result.code == 130, result.report()
    assert "Traceback" not in result.err
    assert "Interrupted. Your message is saved." in result.err.splitlines()
    assert len(provider.requests) == 1
    cllm("Go on.", "--conversation", "demo").succeeded()
    assert provider.requests[1].message_pairs == [("user", "Go on.")]


def test_ctrl_c_while_the_command_is_still_starting_is_quiet(home, settings, cllm):
    before = home.snapshot()
    cllm.command = (sys.executable, "-X", "importtime", "-m", "cllm")
    running = cllm.start("Tell me.", "--conversation", "demo")
    running.wait_for_output("click._compat\n", stream="err")

    running.signal(signal.SIGINT)
    result = running.finish()

    assert result.code in (130, -signal.SIGINT), result.report()
    assert "Traceback" not in result.err
    assert home.snapshot() == before


def test_a_second_ctrl_c_does_not_tear_the_file(home, provider, settings, cllm):
    provider.queue_held_reply("Once upon a time ", "never", at=1)
    running = cllm.start("Tell me.", "--conversation", "demo")
    running.wait_for_output("Once upon a time ")

    for _ in range(3):
        if running.process.poll() is None:
            running.signal(signal.SIGINT)
    result = running.finish()

    assert result.code in (130, -signal.SIGINT), result.report()
    assert "Traceback" not in result.err
    if home.file("demo").exists():
        assert home.messages("demo") == [("user", "Tell me."), ("assistant", "Once upon a time ")]
    cllm("Go on.", "--conversation", "demo").succeeded()


@pytest.mark.usefixtures("settings")
@pytest.mark.parametrize("terminal", [False, True], ids=["piped", "terminal"])
def test_ctrl_c_while_waiting_for_another_ones_turn_changes_nothing(
    terminal, home, provider, cllm, start_waiting
):
    cllm("First", "--conversation", "demo").succeeded()
    gate = provider.queue_held_reply("Slow", " answer", at=1)
    holder = cllm.start("Second", "--conversation", "demo")
    holder.wait_for_output("Slow")
    before = home.snapshot()
    waiter = start_waiting("Third", "--conversation", "demo", terminal=terminal)

    if terminal:
        waiter.type(b"\x03")
    else:
        waiter.signal(signal.SIGINT)
    result = waiter.finish()

    assert result.code == 130, result.report()
    assert "Traceback" not in result.out + result.err
    assert "Interrupted. Nothing is saved." in result.out + result.err
    assert home.snapshot() == before
    assert len(provider.requests) == 2
    gate.open()
    assert holder.finish().code == 0
    assert home.messages("demo")[2:] == [("user", "Second"), ("assistant", "Slow answer")]


@pytest.mark.parametrize("apart", [0, 0.002, 0.01])
def test_two_presses_at_once_keep_the_turn_too(home, provider, settings, cllm, apart):
    provider.queue_held_reply("Once upon", " a time", at=1)
    running = cllm.start("Tell me.", "--conversation", "demo")
    running.wait_for_output("Once upon")

    running.signal(signal.SIGINT)
    time.sleep(apart)
    with contextlib.suppress(ProcessLookupError):
        running.signal(signal.SIGINT)
    ended = running.finish()

    assert ended.code == 130, ended.report()
    assert "Traceback" not in ended.err
    assert home.messages("demo") == [("user", "Tell me."), ("assistant", "Once upon")]

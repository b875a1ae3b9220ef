"""How an answer is printed: as it comes, plain, whole, to whoever still reads it."""

import json
import os
import subprocess

import pytest
from tests.fake_provider import Head, Send, ToolCall

ESCAPE = "\x1b"


@pytest.mark.parametrize("terminal", [False, True], ids=["piped", "terminal"])
def test_an_answer_is_printed_as_it_comes(terminal, provider, settings, cllm):
    gate = provider.queue_held_reply("The first piece. ", "The second piece.", at=1)
    running = cllm.start("Hello", "--stream", terminal=terminal)

    running.wait_for_output("The first piece. ")
    assert "second" not in running.out
    assert running.process.poll() is None
    gate.open()

    assert "The second piece." in running.finish().succeeded().out


def test_a_line_that_is_not_whole_is_printed_too(provider, settings, cllm):
    gate = provider.queue_held_reply("no newline and", " then more", at=1)
    running = cllm.start("Hello", "--stream")

    running.wait_for_output("no newline and")
    gate.open()

    assert running.finish().out == "no newline and then more\n"


def test_piped_output_is_plain(provider, settings, cllm):
    text = "# Title\n\n**bold** and `code`\n\n```python\nprint(1)\n```"
    provider.queue_reply(*[text[start : start + 5] for start in range(0, len(text), 5)])

    result = cllm("Hello", env={"TERM": "xterm-256color"}).succeeded()

    assert result.out == text + "\n"
    assert ESCAPE not in result.out + result.err


@pytest.mark.usefixtures("settings")
@pytest.mark.parametrize("flags", [("--stream",), ("--no-stream",)], ids=["stream", "whole"])
@pytest.mark.parametrize("reply", ["plain", "one newline\n", "two\n\n", "in\nside"])
def test_output_ends_with_exactly_one_newline(reply, flags, home, provider, cllm):
    provider.queue_reply(reply)

    result = cllm("Hello", "--conversation", "demo", *flags).succeeded()

    assert result.out == reply.rstrip("\n") + "\n"
    assert home.messages("demo")[1] == ("assistant", reply)


@pytest.mark.parametrize("flags", [("--stream",), ("--no-stream",)], ids=["stream", "whole"])
def test_streamed_or_whole_the_same_is_printed_and_kept(flags, home, provider, settings, cllm):
    provider.queue_reply("Grüße, ", "世界", " 🐈", "\n", "\tend")

    result = cllm("Hello", "--conversation", "demo", *flags).succeeded()

    assert result.out == "Grüße, 世界 🐈\n\tend\n"
    assert home.messages("demo")[1] == ("assistant", "Grüße, 世界 🐈\n\tend")


@pytest.mark.parametrize(
    "travel",
    [
        pytest.param({"packet": 1}, id="byte by byte"),
        pytest.param({"packet": 7}, id="in packets that part characters"),
        pytest.param({"line_end": "\r\n"}, id="with CRLF"),
        pytest.param({"line_end": "\r\n", "packet": 1}, id="with CRLF byte by byte"),
        pytest.param({"comments": True}, id="with pings"),
        pytest.param({"done": False}, id="without the last marker"),
        pytest.param({"usage": None}, id="without usage"),
    ],
)
def test_a_stream_may_travel_in_any_way(travel, home, provider, settings, cllm):
    provider.queue_reply("Grüße, ", "世界 ", "🐈🐈", **travel)

    result = cllm("Hello", "--conversation", "demo", "--stream").succeeded()

    assert result.out == "Grüße, 世界 🐈🐈\n"
    assert home.messages("demo")[1] == ("assistant", "Grüße, 世界 🐈🐈")


def test_an_event_without_a_space_after_the_colon_and_over_several_lines(provider, settings, cllm):
    provider.queue_steps(
        Head(headers={"Content-Type": "text/event-stream"}, chunked=True),
        Send(b'event: chunk\nid: 1\ndata:{"choices": [{"index": 0,\ndata: "delta":'),
        Send(b' {"content": "Hello."}}]}\n\nretry: 10\n\n'),
        Send(b'data:{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'),
        Send(b"data:[DONE]\n\n"),
    )

    assert cllm("Hello", "--stream").succeeded().out == "Hello.\n"


def test_a_very_long_event_is_read(home, provider, settings, cllm):
    long = "ä" * (3 * 1024 * 1024 // 2)
    provider.queue_reply("Begin ", long, " end")

    result = cllm("Hello", "--conversation", "demo", "--stream").succeeded()

    assert result.out == f"Begin {long} end\n"
    assert home.messages("demo")[1] == ("assistant", f"Begin {long} end")


def test_a_server_that_answers_whole_although_a_stream_was_asked_for(
    home, provider, settings, cllm
):
    body = {
        "object": "chat.completion",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Whole."},
                "finish_reason": "stop",
            }
        ],
    }
    data = json.dumps(body).encode()
    provider.queue_steps(
        Head(headers={"Content-Type": "application/json", "Content-Length": str(len(data))}),
        Send(data),
    )

    result = cllm("Hello", "--conversation", "demo", "--stream")

    if result.code == 0:
        assert result.out == "Whole.\n"
        assert home.messages("demo")[1] == ("assistant", "Whole.")
    else:
        result.failed_with_one_sentence()
        assert not home.file("demo").exists()


@pytest.mark.parametrize("flags", [("--stream",), ("--no-stream",)], ids=["stream", "whole"])
def test_a_reply_that_reached_its_length_is_kept(flags, home, provider, settings, cllm):
    provider.queue_reply("As far as it", " goes", finish="length")

    result = cllm("Hello", "--conversation", "demo", *flags).succeeded()

    assert result.out == "As far as it goes\n"
    assert home.messages("demo")[1] == ("assistant", "As far as it goes")


@pytest.mark.parametrize("flags", [("--stream",), ("--no-stream",)], ids=["stream", "whole"])
def test_reasoning_is_neither_the_answer_nor_its_content(flags, home, provider, settings, cllm):
    provider.queue_reply("Four.", reasoning=("Two and ", "two."))

    result = cllm("2+2?", "--conversation", "demo", *flags).succeeded()

    assert result.out == "Four.\n"
    assert home.messages("demo")[1] == ("assistant", "Four.")


@pytest.mark.usefixtures("settings")
@pytest.mark.parametrize("flags", [("--stream",), ("--no-stream",)], ids=["stream", "whole"])
@pytest.mark.parametrize(
    "reply",
    [
        pytest.param({}, id="nothing at all"),
        pytest.param(
            {
                "tool_calls": (ToolCall(id="c1", name="f", arguments='{"a": 1}'),),
                "finish": "tool_calls",
            },
            id="a tool call nobody asked for",
        ),
        pytest.param({"finish": "content_filter"}, id="filtered"),
    ],
)
def test_a_reply_without_text_ends_without_a_traceback(reply, flags, home, provider, cllm):
    provider.queue_reply(**reply)

    result = cllm("Hello", "--conversation", "demo", *flags)

    assert result.code in (0, 1), result.report()
    assert "Traceback" not in result.err
    if result.code == 0:
        assert home.load("demo")["messages"][0] == {"role": "user", "content": "Hello"}
    else:
        result.failed_with_one_sentence()
        assert not home.file("demo").exists()
    cllm("Go on.", "--conversation", "demo").succeeded()


def test_output_to_a_pipe_that_is_closed_ends_quietly_and_the_answer_is_kept(
    home, provider, settings, cllm
):
    pieces = ("x", *["more and more " * 1000] * 50)
    gate = provider.queue_held_reply(*pieces, at=1)
    reading, writing = os.pipe()
    with subprocess.Popen(
        [*cllm.command, "Hello", "--conversation", "demo", "--stream"],
        stdin=subprocess.DEVNULL,
        stdout=writing,
        stderr=subprocess.PIPE,
        env=cllm.environment(),
        cwd=home.work,
    ) as process:
        os.close(writing)
        assert os.read(reading, 1) == b"x"
        os.close(reading)
        gate.open()
        _, err = process.communicate(timeout=60)

    assert err == b""
    assert home.messages("demo") == [("user", "Hello"), ("assistant", "".join(pieces))]


def test_a_list_to_a_pipe_that_is_closed_ends_quietly(home, settings, cllm):
    for number in range(300):
        home.write_old_conversation(
            f"conversation-number-{number}", ("user", "Hello"), ("assistant", "Hi.")
        )

    script = '"$@" --list-conversations | head -c1'
    result = cllm(wrapper=("sh", "-c", script, "sh"))

    assert result.err == ""
    assert len(result.out) == 1


@pytest.mark.parametrize(
    "locale",
    [
        pytest.param({"LC_ALL": "C", "LANG": None}, id="C"),
        pytest.param({"LC_ALL": "POSIX", "LANG": None}, id="POSIX"),
        pytest.param({"LC_ALL": "no_SUCH.ISO-8859-1", "LANG": None}, id="one that is not there"),
    ],
)
def test_unicode_in_a_locale_without_it(locale, home, provider, settings, cllm):
    provider.queue_reply("Grüße, ", "世界 🐈")

    result = cllm("Sprich: ä 🐈", "--conversation", "demo", env=locale).succeeded()

    assert "Traceback" not in result.err
    assert result.out == "Grüße, 世界 🐈\n"
    assert provider.requests[0].message_pairs == [("user", "Sprich: ä 🐈")]
    assert home.messages("demo") == [("user", "Sprich: ä 🐈"), ("assistant", "Grüße, 世界 🐈")]


def test_unicode_where_python_itself_speaks_ascii(home, provider, settings, cllm):
    ascii_only = {"LC_ALL": "C", "LANG": None, "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    provider.queue_reply("Grüße, ", "世界 🐈")

    result = cllm("Sprich: ä 🐈", "--conversation", "demo", env=ascii_only).succeeded()

    assert result.out.startswith("Gr")
    assert result.err == ""
    assert provider.requests[0].message_pairs == [("user", "Sprich: ä 🐈")]
    assert home.messages("demo") == [("user", "Sprich: ä 🐈"), ("assistant", "Grüße, 世界 🐈")]


def test_an_answer_cannot_break_the_file_with_what_is_not_a_character(
    home, provider, settings, cllm
):
    lone = '{"choices": [{"index": 0, "delta": {"content": "a \\ud83d b"}}]}'
    provider.queue_steps(
        Head(headers={"Content-Type": "text/event-stream"}, chunked=True),
        Send(f"data: {lone}\n\n".encode()),
        Send(b'data: {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}\n\n'),
        Send(b"data: [DONE]\n\n"),
    )

    result = cllm("Hello", "--conversation", "demo", "--stream")

    assert result.code in (0, 1), result.report()
    assert "Traceback" not in result.err
    cllm("Go on.", "--conversation", "demo").succeeded()

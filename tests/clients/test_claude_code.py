"""Claude Code, in print mode and on a terminal: the same bytes with and without `cllm serve`."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.clients.programs import CLAUDE, Terminal
from tests.clients.routes import Comparison, Route
from tests.fake_provider import Reply, Request, ToolCall
from tests.waits import wait_until

pytestmark = pytest.mark.clients

SESSION = "3f0a8a52-53a5-4a1c-9a35-1f6a2f0c7d11"
DEVICE = "0" * 64
KEY = "sk-ant-client-0123456789abcdef0123456789"
ESSENTIAL = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}
PRINT = ("-p", "--permission-mode", "acceptEdits")
EVENTS = ("--output-format", "stream-json", "--include-partial-messages", "--verbose")
OLDER_MODEL = "claude-sonnet-4-5"
"""Claude Code sends reminders to this model as blocks, and to newer ones as system messages."""
INPUT = "\N{HEAVY RIGHT-POINTING ANGLE QUOTATION MARK ORNAMENT}"
"""The mark of the input line and of a user's messages."""
FRAGMENT = ("First line.\n\n", "Second line.\n\n")
"""The part of a reply before the gate. The terminal shows whole paragraphs of a stream."""


def is_side(request: Request) -> bool:
    """Whether a request is for a title (without tools) or from a sub-agent."""
    identity = json.dumps(request.json.get("system"))
    return not request.json.get("tools") or "cc_is_subagent=true" in identity


def read_body_of_agents(request: Request) -> bytes:
    """Return a body without the IDs of sub-agents, which are random, and their durations."""
    return re.sub(rb"\ba[0-9a-f]{16}\b|duration_ms(: |>)\d+", b"", request.body)


@pytest.fixture
def comparison(tmp_path: Path) -> Comparison:
    return Comparison(folder=tmp_path, is_side=is_side)


def configure(route: Route, **variables: str) -> dict[str, str]:
    """Write the settings of a user who has seen all first dialogs; return the environment.

    The device ID is part of each request. Without this file it is random.
    """
    settings = {
        "userID": DEVICE,
        "hasCompletedOnboarding": True,
        "theme": "dark",
        "customApiKeyResponses": {"approved": [KEY[-20:]], "rejected": []},
        "projects": {str(route.project): {"hasTrustDialogAccepted": True}},
    }
    (route.home / ".claude.json").write_text(json.dumps(settings), encoding="utf-8")
    fixed = {
        "ANTHROPIC_API_KEY": KEY,
        "ANTHROPIC_BASE_URL": route.address,
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_ERROR_REPORTING": "1",
        "DISABLE_TELEMETRY": "1",
    }
    return fixed | variables


def make_call(number: int, name: str, **arguments: Any) -> ToolCall:
    return ToolCall(id=f"toolu_{number:02}", name=name, arguments=json.dumps(arguments))


def queue_call(route: Route, *pieces: str, call: ToolCall, **options: Any) -> None:
    route.provider.queue_reply(
        *pieces, tool_calls=(call,), finish="tool_calls", text_first=True, **options
    )


def queue_tool_loop(route: Route) -> None:
    """Queue replies that read, edit and print a file."""
    note = route.project / "note.txt"
    note.write_text("alpha\n", encoding="utf-8")
    path = str(note)
    read = make_call(1, "Read", file_path=path)
    edit = make_call(2, "Edit", file_path=path, old_string="alpha", new_string="beta")
    queue_call(route, "I will ", "read it.", call=read, reasoning=("A note.",))
    queue_call(route, "Now I ", "edit it.", call=edit, reasoning=("An edit.",))
    show = make_call(3, "Bash", command="cat note.txt")
    queue_call(route, call=show, reasoning=("A check.",))
    route.provider.queue_reply("The note ", "is beta.")


def open_session(route: Route, environment: dict[str, str]) -> Terminal:
    terminal = route.open_terminal(CLAUDE, "--session-id", SESSION, env=environment)
    terminal.wait_for(INPUT)
    return terminal


def submit(terminal: Terminal, text: str) -> None:
    """Send a message after the end of the turn. A message during a turn would be queued."""
    assert wait_until(lambda: "esc to interrupt" not in terminal.screen), terminal.screen
    terminal.type(text)
    terminal.wait_for(f"{INPUT} {text}")
    terminal.type("Enter")


def read_dialogue(terminal: Terminal) -> list[str]:
    """Return the messages on the screen, without random verbs, durations and tips."""
    lines = (line.strip() for line in terminal.screen.splitlines())
    return [line for line in lines if line[:1] in {INPUT, "●", "⎿"} and "Tip:" not in line]


@pytest.mark.parametrize("options", [(), ("--model", OLDER_MODEL)], ids=["default", "older"])
def test_a_tool_loop_and_a_continued_session(comparison: Comparison, options: tuple[str, ...]):
    def scenario(route: Route) -> list[str]:
        environment = configure(route, **ESSENTIAL)
        queue_tool_loop(route)
        route.provider.queue_reply("Nothing ", "more.")
        first = (CLAUDE, *PRINT, *options, "--session-id", SESSION, "Change the note.")
        second = (CLAUDE, *PRINT, *options, "--continue", "What next?")
        return [route.run(*command, env=environment) for command in (first, second)]

    served = comparison.run(scenario, last_reply="Nothing more.")

    assert list(served.output) == ["The note is beta.\n", "Nothing more.\n"]
    assert served.files == {"note.txt": b"beta\n"}
    assert len(served.requests) == 5
    assert b'"cache_control"' in served.requests[-1].body


def test_an_overloaded_provider_is_retried_by_the_client(comparison: Comparison):
    def scenario(route: Route) -> list[str]:
        environment = configure(route, **ESSENTIAL)
        route.provider.queue_error(529, "Overloaded")
        route.provider.queue_reply("After ", "a retry.")
        return [route.run(CLAUDE, *PRINT, "--session-id", SESSION, "Hello", env=environment)]

    served = comparison.run(scenario, last_reply="After a retry.")

    first, second = served.requests
    assert first.json == second.json
    assert list(served.output) == ["After a retry.\n"]


def test_ctrl_c_in_print_mode_ends_the_stream(comparison: Comparison):
    def scenario(route: Route) -> list[str]:
        environment = configure(route, **ESSENTIAL)
        gate = route.provider.queue_held_reply(*FRAGMENT, "Third line.", at=2)
        route.provider.queue_reply("Later.")
        command = (CLAUDE, *PRINT, *EVENTS, "--session-id", SESSION, "Count to three.")
        with route.start(*command, env=environment) as program:
            stream = route.wait_for_stream(gate)
            program.wait_for_output("Second line.")
            program.interrupt()
            stream.wait_disconnected()
            program.finish()
        return [route.run(CLAUDE, *PRINT, "--continue", "And now?", env=environment)]

    served = comparison.run(scenario, last_reply="Later.")

    assert list(served.output) == ["Later.\n"]


@pytest.mark.parametrize("key", ["Escape", "C-c"])
def test_a_key_on_the_terminal_ends_the_stream(comparison: Comparison, key: str):
    def scenario(route: Route) -> list[str]:
        environment = configure(route, **ESSENTIAL)
        route.provider.queue_reply("Good ", "morning.")
        gate = route.provider.queue_held_reply(*FRAGMENT, "Third line.", at=2)
        route.provider.queue_reply("Later, ", "of course.")
        with open_session(route, environment) as terminal:
            submit(terminal, "Hello")
            terminal.wait_for("● Good morning.")
            submit(terminal, "Count")
            stream = route.wait_for_stream(gate)
            terminal.wait_for("Second line.")
            terminal.type(key)
            stream.wait_disconnected()
            terminal.wait_for("Interrupted")
            submit(terminal, "And now?")
            terminal.wait_for("● Later, of course.")
            return read_dialogue(terminal)

    served = comparison.run(scenario, last_reply="Later, of course.")

    *_, fragment, after = served.requests[-1].messages
    assert fragment["content"][0]["text"].startswith("First line.")
    assert [block["text"].strip() for block in after["content"]] == [
        "[Request interrupted by user]",
        "And now?",
    ]


def test_a_tool_loop_on_the_terminal_with_a_title(comparison: Comparison):
    def scenario(route: Route) -> list[str]:
        environment = configure(route)
        route.reply_to_side_requests('{"title": "Change a note"}')
        queue_tool_loop(route)
        route.provider.queue_reply("Nothing ", "more.")
        with open_session(route, environment) as terminal:
            submit(terminal, "Change the text in the note.")
            terminal.wait_for("● The note is beta.")
            submit(terminal, "What next?")
            terminal.wait_for("● Nothing more.")
            return read_dialogue(terminal)

    served = comparison.run(scenario, last_reply="Nothing more.")

    assert len(served.side_requests) == 1
    assert served.files == {"note.txt": b"beta\n"}


def make_agent_call(number: int, topic: str, *, background: bool) -> ToolCall:
    arguments = {"description": topic, "prompt": f"Look at {topic}."}
    return make_call(number, "Agent", **arguments, run_in_background=background)


def test_two_sub_agents_in_parallel(comparison: Comparison):
    def scenario(route: Route) -> list[str]:
        environment = configure(route, **ESSENTIAL)
        route.reply_to_side_requests("I have looked.")
        topics = enumerate(("the north", "the south"), start=1)
        calls = tuple(make_agent_call(number, topic, background=False) for number, topic in topics)
        route.provider.queue_reply(
            "Two agents.", tool_calls=calls, finish="tool_calls", text_first=True
        )
        route.provider.queue_reply("Both ", "have looked.")
        return [route.run(CLAUDE, *PRINT, "--session-id", SESSION, "Look.", env=environment)]

    agents = replace(comparison, read_body=read_body_of_agents)
    served = agents.run(scenario, last_reply="Both have looked.", stored_sides=2)

    assert list(served.output) == ["Both have looked.\n"]
    assert len(served.requests) == 2
    assert len(served.side_requests) == 2


def test_a_sub_agent_in_the_background(comparison: Comparison):
    """The report of the sub-agent is a user message that contains only a reminder."""

    def scenario(route: Route) -> list[str]:
        environment = configure(route, **ESSENTIAL)
        gate = route.provider.gate()
        report = Reply(pieces=("I have ", "looked."), hold={1: gate})
        route.provider.choose = lambda request: report if is_side(request) else None
        call = make_agent_call(1, "the north", background=True)
        queue_call(route, "An agent.", call=call)
        route.provider.queue_reply("It ", "runs.")
        route.provider.queue_reply("It has ", "looked.")
        command = (CLAUDE, *PRINT, *EVENTS, "--session-id", SESSION, "Look.")
        with route.start(*command, env=environment) as program:
            program.wait_for_output("It runs.")
            gate.open()
            assert program.finish() == 0, program.err
        events = map(json.loads, program.out.splitlines())
        return [event["result"] for event in events if event["type"] == "result"]

    agents = replace(comparison, read_body=read_body_of_agents)
    served = agents.run(scenario, last_reply="It has looked.", stored_sides=1)

    assert list(served.output)[-1] == "It has looked."
    assert len(served.requests) == 3
    assert len(served.side_requests) == 1

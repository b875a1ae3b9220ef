"""The OpenAI Agents SDK, the Vercel AI SDK and pydantic-ai in their default settings.

Each calls the Responses API of `cllm serve`, over providers of four protocols. The tests compare
what the SDK returned, what the provider received, and what the server stored.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.clients.framework_runs import (
    CAPITAL,
    MODELS,
    TOOL_LOOP,
    FrameworkRun,
    open_run,
)
from tests.clients.recording import Item
from tests.fake_provider import ToolCall

pytestmark = pytest.mark.clients

THINKING = re.compile(r"<think>.*?</think>", re.DOTALL)
AGENTS, PYDANTIC, VERCEL = "agents_sdk.py", "pydantic_ai_sdk.py", "vercel.mjs"


@pytest.fixture(params=list(MODELS))
def run(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[FrameworkRun]:
    with open_run(tmp_path, request.param) as made:
        yield made


@pytest.fixture(params=[AGENTS, PYDANTIC, VERCEL])
def program(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


def remove_thinking(items: list[Item]) -> list[Item]:
    """Return the items without reasoning in texts: pydantic-ai sends that of other models so."""
    return [(*item[:-1], THINKING.sub("", item[-1])) for item in items]


def test_text(run: FrameworkRun, program: str):
    run.provider.queue_reply("Good ", "morning.")

    assert run.run(program, "text") == "Good morning."
    expected = [("user", "Hello."), ("assistant", "Good morning.")]
    assert run.read_sent("Good morning.") == run.read_stored() == expected
    assert "Be brief." in json.dumps(run.provider.requests[-1].json)


def test_a_stream(run: FrameworkRun, program: str):
    run.provider.queue_reply("Good ", "morning.")

    assert run.run(program, "stream") == {
        "pieces": ["Good ", "morning."],
        "output": "Good morning.",
    }
    assert run.read_stored() == [("user", "Hello."), ("assistant", "Good morning.")]


@pytest.mark.parametrize("scenario", ["tools", "streamed_tools"])
def test_tools_and_a_second_turn(run: FrameworkRun, program: str, scenario: str):
    run.queue_tool_loop()

    assert run.run(program, scenario)[-2:] == ["It rains everywhere.", "You are welcome."]
    assert remove_thinking(run.read_sent("You are welcome.")) == TOOL_LOOP
    assert run.read_stored() == TOOL_LOOP
    assert len(run.provider.requests) == 4


def test_structured_output(run: FrameworkRun, program: str):
    run.provider.queue_reply(json.dumps(CAPITAL))

    assert run.run(program, "structured") == CAPITAL


def test_reasoning_and_summaries(run: FrameworkRun, program: str):
    run.queue_tool_loop()

    [thoughts, text, *_] = run.run(program, "reasoning")

    assert (thoughts, text) == ([] if run.api == "chat" else ["Hm.", "Hm."], "It rains everywhere.")
    last = json.dumps(run.provider.requests[-1].json)
    if run.api == "responses":
        assert last.count("c2lnbmVk") == 2, "the encrypted content of both thoughts"
    [listed] = run.list_conversations()
    assert listed["message_count"] == len(run.provider.requests) * 2 + 1


def test_images_and_files(run: FrameworkRun, program: str):
    run.provider.queue_reply("A pixel.")

    assert run.run(program, "media") == "A pixel."
    sent = json.dumps(run.provider.requests[-1].json)
    assert "iVBORw0KGgo" in sent
    assert "JVBERi0xLjQKJSVFT0YK" in sent


ERRORS = {
    "invalid": (400, None, "invalid_request_error"),
    "key": (401, "invalid_api_key", "provider_key_refused"),
    "rate": (429, "rate_limit_exceeded", "rate_limited"),
    "length": (400, "context_length_exceeded", "context_length_exceeded"),
}
"""The status and code of the provider's error, and the code that the client receives."""
TYPES = {
    AGENTS: ("BadRequestError", "AuthenticationError", "RateLimitError", "BadRequestError"),
    PYDANTIC: (
        "ModelRequestRejectedError",
        "ModelAuthenticationError",
        "ModelRateLimitError",
        "ModelContextWindowExceededError",
    ),
    VERCEL: ("APICallError",) * 4,
}


@pytest.mark.parametrize("name", list(ERRORS))
def test_errors_are_typed(run: FrameworkRun, program: str, name: str):
    status, code, expected = ERRORS[name]
    if (run.api, name) == ("bedrock", "invalid"):
        expected = "ValidationException"
    for _ in range(4):  # the SDKs retry some of them
        run.provider.queue_error(status, "No.", code=code)

    kind = TYPES[program][list(ERRORS).index(name)]
    assert run.run(program, "error") == [kind, status, expected]


def test_a_cancelled_stream_ends_the_request(run: FrameworkRun, program: str):
    run.provider.queue_held_reply("One ", "two ", "three.", at=2)
    with run.start(program, "cancel") as process:
        run.provider.wait_for(1).wait_disconnected()
        assert process.finish() == 0, process.err


HISTORIES = [
    (AGENTS, "previous_response"),
    (AGENTS, "auto_previous_response"),
    (AGENTS, "conversation_id"),
    (AGENTS, "sqlite_session"),
    (PYDANTIC, "previous_response"),
]


@pytest.mark.parametrize(("program", "scenario"), HISTORIES, ids=lambda value: value)
def test_ways_to_continue(run: FrameworkRun, program: str, scenario: str):
    run.queue_tool_loop()

    assert run.run(program, scenario) == ["It rains everywhere.", "You are welcome."]
    assert run.read_sent("You are welcome.") == TOOL_LOOP
    assert run.read_stored() == TOOL_LOOP


def test_a_session_of_the_conversations_api(run: FrameworkRun):
    """The session adds the items itself; the responses have a conversation of their own."""
    run.queue_tool_loop()

    first, second, kinds = run.run(AGENTS, "conversations_session")

    assert (first, second) == ("It rains everywhere.", "You are welcome.")
    assert sorted(kind for kind in kinds if kind != "reasoning") == [
        *["function_call"] * 3,
        *["function_call_output"] * 3,
        *["message"] * 6,
    ]
    assert run.read_sent("You are welcome.") == TOOL_LOOP
    counts = [(one["source"], one["message_count"]) for one in run.list_conversations()]
    assert sorted(counts, key=str) == [("openai-conversations", 9), (None, 9)]


def test_a_handoff(run: FrameworkRun):
    call = ToolCall(id="call_1", name="transfer_to_meteorologist", arguments="{}")
    run.provider.queue_reply(tool_calls=(call,), finish="tool_calls")
    run.provider.queue_reply("Rain.")

    assert run.run(AGENTS, "handoff") == ["Meteorologist", "Rain."]
    sent = run.read_sent("Rain.")
    assert [item[0] for item in sent] == ["user", "call", "result", "assistant"]
    assert run.read_stored() == sent
    assert "Know all." in json.dumps(run.provider.requests[-1].json)


def test_a_previous_response_of_vercel(run: FrameworkRun):
    run.provider.queue_reply("Good morning.")
    run.provider.queue_reply("You are welcome.")

    assert run.run(VERCEL, "previous_response") == ["Good morning.", "You are welcome."]
    expected = [("user", "Hello."), ("assistant", "Good morning."), ("user", "Thanks.")]
    assert run.read_sent("")[:3] == run.read_stored()[:3] == expected


def test_a_history_that_is_not_stored(run: FrameworkRun):
    run.queue_tool_loop()

    assert run.run(VERCEL, "not_stored") == ["It rains everywhere.", "You are welcome."]
    assert run.read_sent("You are welcome.") == TOOL_LOOP
    assert run.list_conversations() == []

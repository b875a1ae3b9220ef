"""Codex with OpenAI, Anthropic and Bedrock: the same requests with and without `cllm serve`."""

import json
import re
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from tests.clients.programs import CODEX
from tests.clients.recording import LIST, read_recorded
from tests.clients.routes import Comparison, Route, read_files, start_server
from tests.fake_provider import FakeProvider, Request, ToolCall
from tests.fake_responses import PATH

pytestmark = pytest.mark.clients

OPENAI = "gpt-5.5"
OTHERS = ("claude-sonnet-4-5", "bedrock/anthropic.claude-sonnet-4-5-20250929-v1:0")
SERVED = """
model_provider = "served"
web_search = "disabled"
features.multi_agent = false

[model_providers.served]
name = "served"
base_url = "{address}/v1"
wire_api = "responses"
"""
DEFAULTS = SERVED.replace('web_search = "disabled"\nfeatures.multi_agent = false\n', "")
BUILT_IN = 'openai_base_url = "{address}/v1"'
LOCAL = """
analytics.enabled = false
check_for_update_on_startup = false
features.apps = false
features.plugins = false
"""
"""Without these settings Codex connects to other hosts."""
EXEC = (CODEX, "exec", "--dangerously-bypass-approvals-and-sandbox", "--skip-git-repo-check")
RESUME = (*EXEC, "resume", "--last")
PATCH = """*** Begin Patch
*** Update File: note.txt
@@
-alpha
+beta
*** End Patch
"""
RANDOM = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
    r"|(?<=Chunk ID: )[0-9a-f]+|(?<=Wall time: )[0-9.]+"
)
"""IDs and durations of a run."""


def is_side(_: Request) -> bool:
    return False


def read_body(request: Request) -> str:
    """Return a body with numbers for IDs and durations, and only the names of `client_metadata`.

    Codex writes `client_metadata` in a random order, with the time of the turn.
    """
    fields = request.json | {"client_metadata": sorted(request.json["client_metadata"])}
    numbers: dict[str, int] = {}
    following = count()
    return RANDOM.sub(
        lambda match: str(numbers.setdefault(match[0], next(following))), json.dumps(fields)
    )


@pytest.fixture
def comparison(tmp_path: Path) -> Comparison:
    return Comparison(folder=tmp_path, is_side=is_side, read_body=read_body, openai_api="responses")


def configure(route: Route, model: str, settings: str = SERVED) -> dict[str, str]:
    """Write the settings; return the environment."""
    folder, temporary = route.home / ".codex", route.home / "tmp"
    for path in (folder, temporary):
        path.mkdir()
    text = f'model = "{model}"{LOCAL}{settings.format(address=route.address)}'
    (folder / "config.toml").write_text(text, encoding="utf-8")
    return {"CODEX_HOME": str(folder), "TMPDIR": str(temporary)}


def queue_call(route: Route, *pieces: str, call: ToolCall, **options: Any) -> None:
    route.provider.queue_reply(
        *pieces, tool_calls=(call,), finish="tool_calls", text_first=True, **options
    )


def make_shell_call(number: int, command: str) -> ToolCall:
    arguments = json.dumps({"cmd": command})
    return ToolCall(id=f"call_{number:02}", name="exec_command", arguments=arguments)


def change_note(route: Route, model: str, patch: ToolCall) -> list[str]:
    """Read and patch a file, and continue the session."""
    environment = configure(route, model)
    (route.project / "note.txt").write_text("alpha\n", encoding="utf-8")
    read = make_shell_call(1, "cat note.txt")
    queue_call(route, "I will ", "read it.", call=read, reasoning=("A note.",))
    queue_call(route, "Now I ", "patch it.", call=patch, reasoning=("A patch.",))
    route.provider.queue_reply("The note ", "is beta.")
    route.provider.queue_reply("Nothing ", "more.")
    first, second = (*EXEC, "Change the note."), (*RESUME, "What next?")
    return [route.run(*command, env=environment) for command in (first, second)]


def test_a_tool_loop_and_a_resumed_session(comparison: Comparison):
    def scenario(route: Route) -> list[str]:
        patch = ToolCall(id="call_02", name="apply_patch", arguments=PATCH, is_custom=True)
        return change_note(route, OPENAI, patch)

    served = comparison.run(scenario, last_reply="Nothing more.")

    assert list(served.output) == ["The note is beta.\n", "Nothing more.\n"]
    assert served.files == {"note.txt": b"beta\n"}
    assert [request.path for request in served.requests] == [PATH] * 4
    kinds = [item["type"] for item in served.requests[-1].json["input"]]
    assert kinds.count("reasoning") == 2
    assert kinds.count("function_call_output") == kinds.count("custom_tool_call_output") == 1


@pytest.mark.parametrize("is_killed", [False, True], ids=["interrupted", "killed"])
def test_a_cancelled_run_ends_the_stream(comparison: Comparison, is_killed: bool):
    def scenario(route: Route) -> list[str]:
        environment = configure(route, OPENAI)
        route.provider.queue_reply("Good ", "morning.")
        gate = route.provider.queue_held_reply("One ", "two ", "three.", at=2)
        route.provider.queue_reply("Later.")
        first = route.run(*EXEC, "Hello", env=environment)
        with route.start(*RESUME, "Count to three.", env=environment) as program:
            stream = route.wait_for_stream(gate)
            if is_killed:
                program.kill()
            else:
                program.interrupt()
            stream.wait_disconnected()
            program.finish()
        return [first, route.run(*RESUME, "And now?", env=environment)]

    served = comparison.run(scenario, last_reply="Later.")

    assert list(served.output) == ["Good morning.\n", "Later.\n"]


@pytest.mark.parametrize("model", OTHERS)
def test_another_provider_completes_the_task(tmp_path: Path, model: str):
    """Codex has no tool `apply_patch` for an unknown model, and patches by the shell."""
    with FakeProvider() as provider, start_server(tmp_path / "server", provider) as server:
        route = Route(tmp_path, provider, server, is_side)
        output = change_note(route, model, make_shell_call(2, f"apply_patch <<'EOF'\n{PATCH}EOF\n"))

        assert output == ["The note is beta.\n", "Nothing more.\n"]
        assert read_files(route.project) == {"note.txt": b"beta\n"}
        assert "Traceback" not in server.log, server.log
        recorded = read_recorded(server)
        [listed] = server("GET", LIST).json["conversations"]
    assert (listed["title"], listed["source"]) == ("Change the note.", "codex")
    assert [(role, [item[1] for item in items]) for role, items in recorded[1:]] == [
        ("user", ["Change the note."]),
        ("assistant", ["I will read it.", "call_01"]),
        ("tool", ["call_01"]),
        ("assistant", ["Now I patch it.", "call_02"]),
        ("tool", ["call_02"]),
        ("assistant", ["The note is beta."]),
        ("user", ["What next?"]),
        ("assistant", ["Nothing more."]),
    ]
    last = json.dumps(provider.requests[-1].json)
    assert last.count("c2lnbmVk") == 2, "the signatures of both thoughts"


def test_the_built_in_provider_continues_without_a_websocket(tmp_path: Path):
    folder = tmp_path / "server"
    with (
        FakeProvider() as provider,
        start_server(folder, provider, openai_api="responses") as server,
    ):
        route = Route(tmp_path, provider, server, is_side)
        environment = configure(route, OPENAI, BUILT_IN) | {"CODEX_API_KEY": "unused"}
        provider.queue_reply("Good ", "morning.")

        assert route.run(*EXEC, "Hello", env=environment) == "Good morning.\n"
        assert server.log.count('"status":426') == 1
    tools = {tool["type"] for tool in provider.requests[-1].json["tools"]}
    assert tools == {"custom", "function", "tool_search", "web_search"}


def test_another_provider_refuses_tools_of_openai(tmp_path: Path):
    with FakeProvider() as provider, start_server(tmp_path / "server", provider) as server:
        route = Route(tmp_path, provider, server, is_side)
        environment = configure(route, "claude-sonnet-4-5", DEFAULTS)
        with route.start(*EXEC, "Hello", env=environment) as program:
            assert program.finish() == 1

    assert "only OpenAI's Responses API has the tool 'namespace'" in program.err
    assert provider.requests == []

"""opencode with providers of both protocols: the same bytes with and without `cllm serve`."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.clients.programs import OPENCODE
from tests.clients.routes import Comparison, Route
from tests.fake_provider import Request, ToolCall

pytestmark = pytest.mark.clients

MODELS = {"anthropic": "claude-sonnet-4-5", "openai": "gpt-test"}
PACKAGES = {"anthropic": "@ai-sdk/anthropic", "openai": "@ai-sdk/openai-compatible"}
ENVIRONMENT = {
    "OPENCODE_DISABLE_AUTOUPDATE": "1",
    "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
    "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
    "OPENCODE_DISABLE_MODELS_FETCH": "1",
}
TITLE = "A note"
protocols = pytest.mark.parametrize("protocol", MODELS)


def is_side(request: Request) -> bool:
    """Whether a request is for a title: it has no tools."""
    return not request.json.get("tools")


@pytest.fixture
def comparison(tmp_path: Path) -> Comparison:
    return Comparison(folder=tmp_path, is_side=is_side)


def configure(route: Route, protocol: str) -> None:
    """Write settings with one provider; its package is part of opencode."""
    model = MODELS[protocol]
    provider = {
        "npm": PACKAGES[protocol],
        "options": {"baseURL": f"{route.address}/v1", "apiKey": "client-key"},
        "models": {model: {"name": model, "tool_call": True}},
    }
    settings = {
        "autoupdate": False,
        "share": "disabled",
        "model": f"scripted/{model}",
        "small_model": f"scripted/{model}",
        "provider": {"scripted": provider},
        "permission": {"bash": "allow", "edit": "allow"},
    }
    path = route.home / ".config/opencode/opencode.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(settings), encoding="utf-8")
    route.reply_to_side_requests(TITLE)


def queue_call(route: Route, *pieces: str, name: str, number: int, **arguments: Any) -> None:
    call = ToolCall(id=f"call_{number:02}", name=name, arguments=json.dumps(arguments))
    route.provider.queue_reply(*pieces, tool_calls=(call,), finish="tool_calls", text_first=True)


@protocols
def test_a_tool_loop_and_a_continued_session(comparison: Comparison, protocol: str):
    def scenario(route: Route) -> list[str]:
        configure(route, protocol)
        note = route.project / "note.txt"
        note.write_text("alpha\n", encoding="utf-8")
        queue_call(route, "I will ", "read it.", name="read", number=1, filePath=str(note))
        change = {"command": "sed -i s/alpha/beta/ note.txt", "description": "Change the note"}
        queue_call(route, "Now I ", "edit it.", name="bash", number=2, **change)
        route.provider.queue_reply("The note ", "is beta.")
        route.provider.queue_reply("Nothing ", "more.")
        first = (OPENCODE, "run", "Change the note.")
        second = (OPENCODE, "run", "--continue", "What next?")
        return [route.run(*command, env=ENVIRONMENT) for command in (first, second)]

    served = comparison.run(scenario, last_reply="Nothing more.")

    assert "The note is beta." in served.output[0]
    assert "Nothing more." in served.output[1]
    assert served.files == {"note.txt": b"beta\n"}
    assert len(served.requests) == 4
    assert len(served.side_requests) == 1
    assert (b'"cache_control"' in served.requests[-1].body) == (protocol == "anthropic")


@protocols
def test_ctrl_c_ends_the_stream(comparison: Comparison, protocol: str):
    def scenario(route: Route) -> list[str]:
        configure(route, protocol)
        gate = route.provider.queue_held_reply("One ", "two ", "three.", at=2)
        route.provider.queue_reply("Later.")
        with route.start(OPENCODE, "run", "Count to three.", env=ENVIRONMENT) as program:
            stream = route.wait_for_stream(gate)
            program.interrupt()
            stream.wait_disconnected()
            program.finish()
        return [route.run(OPENCODE, "run", "--continue", "And now?", env=ENVIRONMENT)]

    served = comparison.run(scenario, last_reply="Later.")

    assert "Later." in served.output[0]

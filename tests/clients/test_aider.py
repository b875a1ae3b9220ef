"""aider in a git repository: the same bytes with and without `cllm serve`."""

import json
from pathlib import Path

import pytest
from tests.clients.programs import AIDER, Terminal
from tests.clients.routes import Comparison, Route, read_body_without_usage
from tests.fake_provider import Request

pytestmark = pytest.mark.clients

DATE = "2026-01-01T00:00:00Z"
PERSON = {
    f"GIT_{role}_{key}": value
    for role in ("AUTHOR", "COMMITTER")
    for key, value in {"NAME": "Ann", "EMAIL": "ann@example.com", "DATE": DATE}.items()
}
"""The author and the date of all commits: prompts contain the hashes of commits."""
OPTIONS = (
    *("--model", "openai/gpt-4o", "--weak-model", "openai/gpt-4o-mini"),
    *("--no-analytics", "--no-check-update", "--no-show-release-notes"),
    *("--no-fancy-input", "--no-pretty", "--no-gitignore", "--yes-always"),
)
PROMPT = "note.py\n>"
EDIT = """I change it.

note.py
```python
<<<<<<< SEARCH
x = "alpha"
=======
x = "beta"
>>>>>>> REPLACE
```
"""


def is_side(request: Request) -> bool:
    """Whether a request is for a commit message: it is not streamed."""
    return not request.json.get("stream")


@pytest.fixture
def comparison(tmp_path: Path) -> Comparison:
    """aider does not request the usage of a stream."""
    return Comparison(folder=tmp_path, is_side=is_side, read_body=read_body_without_usage)


def configure(route: Route) -> dict[str, str]:
    """Create a repository with one file; return the environment.

    aider downloads prices of models unless it has a file of them that is not older than a day.
    """
    prices = route.home / ".aider/caches/model_prices_and_context_window.json"
    prices.parent.mkdir(parents=True)
    prices.write_text(json.dumps({"none": {}}), encoding="utf-8")
    (route.project / "note.py").write_text('x = "alpha"\n', encoding="utf-8")
    for command in (("init", "-q"), ("add", "."), ("commit", "-q", "-m", "Start")):
        route.run("git", *command, env=PERSON)
    route.reply_to_side_requests("Change x")
    return PERSON | {
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "OPENAI_API_BASE": f"{route.address}/v1",
        "OPENAI_API_KEY": "client-key",
    }


def submit(terminal: Terminal, text: str) -> None:
    terminal.wait_for_prompt(PROMPT)
    terminal.type(text)
    terminal.wait_for_prompt(f"> {text}")
    terminal.type("Enter")


def test_an_edit_is_committed(comparison: Comparison):
    def scenario(route: Route) -> list[str]:
        environment = configure(route)
        route.provider.queue_reply(EDIT[:20], EDIT[20:])
        route.provider.queue_reply("It is ", "beta.")
        first = (AIDER, *OPTIONS, "--message", "Change x to beta.", "note.py")
        second = (AIDER, *OPTIONS, "--restore-chat-history", "--message", "What is x?", "note.py")
        return [route.run(*command, env=environment) for command in (first, second)]

    served = comparison.run(scenario, last_reply="It is beta.", stored_sides=1)

    assert served.files == {"note.py": b'x = "beta"\n'}
    assert "Change x" in served.output[0]
    assert "It is beta." in served.output[1]
    assert len(served.requests) == 2
    assert len(served.side_requests) == 1


def test_ctrl_c_on_the_terminal_ends_the_stream(comparison: Comparison):
    def scenario(route: Route) -> list[str]:
        environment = configure(route)
        route.provider.queue_reply(EDIT[:20], EDIT[20:])
        gate = route.provider.queue_held_reply("One line.\n", "Two lines.\n", "Three.", at=2)
        route.provider.queue_reply("Later, ", "of course.")
        with route.open_terminal(AIDER, *OPTIONS, "note.py", env=environment) as terminal:
            submit(terminal, "Change x to beta.")
            submit(terminal, "Count.")
            stream = route.wait_for_stream(gate)
            terminal.wait_for("Two lines.")
            terminal.type("C-c")
            stream.wait_disconnected()
            submit(terminal, "And now?")
            terminal.wait_for_prompt(PROMPT)
            return [terminal.screen]

    served = comparison.run(scenario, last_reply="Later, of course.", stored_sides=1)

    assert "Later, of course." in served.output[0]
    assert len(served.requests) == 3

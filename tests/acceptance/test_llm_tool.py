"""The tool `llm` against `cllm serve`, by an ordinary entry among its OpenAI-compatible models.

It runs in a process of its own, with a folder of its own for its settings and its log. Where it is
not installed a test skips; in CI it fails.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.fake_provider import WAIT, FakeProvider, ToolCall
from tests.forking import fork_server, open_outputs
from tests.server_process import Server, list_messages

pytestmark = pytest.mark.parametrize(
    "server",
    ["sqlite"],
    indirect=True,
)

BESIDE = Path(sys.executable).parent / "llm"
PROGRAM = "from llm.cli import cli; cli()"
CAT = ("user", "My cat is called Luna.")
QUESTION = ("user", "What is my cat called?")
WEATHER = """
def weather(city: str) -> str:
    "The weather in a city."
    return "Rain in " + city
"""


def command() -> str:
    """The tool beside this Python, or wherever it is found."""
    found = str(BESIDE) if BESIDE.exists() else shutil.which("llm")
    if found is None and os.environ.get("CI"):
        pytest.fail("This test needs `llm`; install it with pip.", pytrace=False)
    if found is None:
        pytest.skip("This test needs `llm`; install it with pip.")
    return found


class Llm:
    """Runs the tool with one model, which is the server's."""

    def __init__(self, folder: Path, server: Server) -> None:
        self.folder = folder
        self.server = server
        self.command = command()
        self.configure()

    def configure(self, **keys: Any) -> None:
        """Write the entry of the model, with these keys beside the address."""
        entry = {
            "model_id": "served",
            "model_name": "openai/gpt-test",
            "api_base": f"{self.server.address}/v1",
            "supports_schema": True,
            "supports_tools": True,
        }
        written = yaml.safe_dump([{**entry, **keys}])
        (self.folder / "extra-openai-models.yaml").write_text(written, encoding="utf-8")

    def run(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        environment = {
            "HOME": str(self.folder),
            "LANG": "C.UTF-8",
            "LLM_USER_PATH": str(self.folder),
            "PATH": os.environ["PATH"],
        }
        words = ("-m", "served", *arguments)
        if self.command != str(BESIDE):
            return subprocess.run(
                [self.command, *words],
                check=False,
                capture_output=True,
                cwd=self.folder,
                encoding="utf-8",
                env=environment,
                stdin=subprocess.DEVNULL,
                timeout=WAIT,
            )
        forked = fork_server(("llm.cli",)).start(
            words, environment, self.folder, streams=open_outputs, source=PROGRAM
        )
        done = forked.communicate(b"", WAIT)
        return subprocess.CompletedProcess(
            words, done.returncode, done.stdout.decode(), done.stderr.decode()
        )

    def __call__(self, *arguments: str) -> str:
        """What it prints, once it has ended well."""
        done = self.run(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def llm(server: Server, tmp_path: Path) -> Llm:
    return Llm(tmp_path, server)


@pytest.mark.parametrize("way", ["stream", "whole"])
def test_a_prompt_is_answered_under_its_system_prompt(llm: Llm, upstream: FakeProvider, way: str):
    options = ["--no-stream"] if way == "whole" else []

    printed = llm("Hello.", "-s", "You are a pirate.", *options)

    assert printed == "echo: Hello.\n"
    asked = upstream.requests[-1]
    assert asked.message_pairs == [("system", "You are a pirate."), ("user", "Hello.")]
    assert bool(asked.json.get("stream")) == (way == "stream")


def test_its_own_conversation_is_continued(llm: Llm, upstream: FakeProvider):
    upstream.queue_reply("A good ", "name.")
    upstream.queue_reply("Luna.")

    first, second = llm(CAT[1]), llm("-c", QUESTION[1])

    assert (first, second) == ("A good name.\n", "Luna.\n")
    assert upstream.requests[-1].message_pairs == [CAT, ("assistant", "A good name."), QUESTION]


def test_a_conversation_of_the_servers_is_continued_by_a_header(
    llm: Llm, server: Server, upstream: FakeProvider
):
    upstream.queue_reply("A good name.")
    conversation = server.complete(CAT, conversation="").conversation
    llm.configure(headers={"X-Conversation-ID": conversation})
    upstream.queue_reply("Luna.")

    printed = llm(QUESTION[1])

    said = [CAT, ("assistant", "A good name."), QUESTION]
    assert printed == "Luna.\n"
    assert upstream.requests[-1].message_pairs == said
    assert list(list_messages(server, conversation)) == [*said, ("assistant", "Luna.")]


def test_an_answer_fits_its_schema(llm: Llm, upstream: FakeProvider):
    upstream.queue_reply('{"name": "Luna", "age": 3}')

    printed = llm("A cat.", "--schema", "name, age int")

    assert json.loads(printed) == {"name": "Luna", "age": 3}
    asked = upstream.requests[-1].json["response_format"]["json_schema"]["schema"]
    assert set(asked["properties"]) == {"name", "age"}


def test_its_tools_are_asked_for_and_used(llm: Llm, upstream: FakeProvider):
    call = ToolCall(id="call_1", name="weather", arguments='{"city": "Paris"}')
    upstream.queue_reply(tool_calls=(call,), finish="tool_calls")
    upstream.queue_reply("It rains.")

    printed = llm("The weather in Paris?", "--functions", WEATHER)

    assert printed.strip() == "It rains."
    assert [message["role"] for message in upstream.requests[-1].messages][-1] == "tool"
    assert upstream.requests[-1].messages[-1]["content"] == "Rain in Paris"


def test_a_refusal_is_shown_in_our_words(llm: Llm):
    llm.configure(headers={"X-Conversation-ID": "not an id"})

    done = llm.run("Hello.")

    assert done.returncode == 1
    assert "X-Conversation-ID must be the UUID or name of a conversation" in done.stderr
    assert "Traceback" not in done.stderr

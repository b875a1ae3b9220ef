"""Runs scenarios of client frameworks through `cllm serve`, over four protocols."""

import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from tests.clients.programs import ROOT, Program
from tests.clients.recording import Item, Transcript, read_recorded
from tests.fake_provider import FakeProvider, ToolCall
from tests.fake_responses import PATH
from tests.home import SECRET
from tests.server_process import Server

PYTHON = ROOT / ".venv-sdks/bin/python"
PACKAGES = ROOT / ".cache/clients/node_modules"
PROGRAMS = Path(__file__).with_name("frameworks")
BEDROCK = "bedrock/anthropic.claude-sonnet-4-5-20250929-v1:0"
MODELS = {
    "responses": "gpt-5.5",
    "chat": "plain-chat",
    "anthropic": "claude-sonnet-4-5",
    "bedrock": "bedrock-claude",
}
"""Names without a slash: the Agents SDK reads a prefix as the name of a provider of its own."""
PATHS = {
    "responses": PATH,
    "chat": "/v1/chat/completions",
    "anthropic": "/v1/messages",
    "bedrock": "/model/",
}
CITIES = ("Oslo", "Rome", "Paris")
CALLS = tuple(
    ToolCall(id=f"call_{city}", name="weather", arguments=json.dumps({"city": city}))
    for city in CITIES
)
CAPITAL = {"city": "Paris", "inhabitants": 2100000}


class FrameworkRun:
    """A provider, a server in front of it, and the programs in a separate folder."""

    def __init__(self, folder: Path, provider: FakeProvider, server: Server, api: str) -> None:
        self.provider = provider
        self.server = server
        self.api = api
        self._folder = folder
        for program in PROGRAMS.iterdir():
            if program.is_file():
                shutil.copy(program, folder)
        (folder / "node_modules").symlink_to(PACKAGES)

    def start(self, program: str, scenario: str) -> Program:
        interpreter = "node" if program.endswith(".mjs") else str(PYTHON)
        environment = {
            "AI_SDK_LOG_WARNINGS": "false",
            "HOME": str(self._folder),
            "HTTPS_PROXY": self.provider.root,  # which refuses to connect to other hosts
            "LANG": "C.UTF-8",
            "NO_PROXY": "127.0.0.1,localhost",
            "OPENAI_AGENTS_DISABLE_TRACING": "1",
            "OPENAI_API_KEY": "any",
            "OPENAI_BASE_URL": f"{self.server.address}/v1",
            "PATH": "/usr/local/bin:/usr/bin:/bin",
        }
        return Program(
            [interpreter, program, scenario, MODELS[self.api]], environment, self._folder
        )

    def run(self, program: str, scenario: str) -> Any:
        """Run a scenario to its end; return what it prints."""
        with self.start(program, scenario) as process:
            code = process.finish()
        assert code == 0, f"exit {code}\n{process.out}\n{process.err}\n{self.server.log}"
        assert all(one.path.startswith(PATHS[self.api]) for one in self.provider.requests)
        return json.loads(process.out)

    def queue_tool_loop(self) -> None:
        """Queue two parallel calls, one call, and the replies to two turns."""
        reasoning = {} if self.api == "chat" else {"reasoning": ("Hm.",)}
        self._queue_calls("I look.", CALLS[:2], **reasoning)
        self._queue_calls("One more.", CALLS[2:], **reasoning)
        self.provider.queue_reply("It rains ", "everywhere.")
        self.provider.queue_reply("You are ", "welcome.")

    def _queue_calls(self, text: str, calls: Sequence[ToolCall], **options: Any) -> None:
        self.provider.queue_reply(
            text, tool_calls=tuple(calls), finish="tool_calls", text_first=True, **options
        )

    def read_sent(self, reply: str) -> list[Item]:
        """Return the messages of the last request, and its reply."""
        last = self.provider.requests[-1].json
        return flatten(Transcript(request=last, reply=reply).messages)

    def read_stored(self) -> list[Item]:
        """Return the messages of the only conversation."""
        return flatten(read_recorded(self.server))

    def list_conversations(self) -> list[Any]:
        listed: list[Any] = self.server("GET", "/v1/conversations").json["conversations"]
        return listed


TOOL_LOOP: list[Item] = [
    ("user", "How is the weather?"),
    ("assistant", "I look."),
    ("call", "call_Oslo", "weather"),
    ("call", "call_Rome", "weather"),
    ("result", "call_Oslo", "Rain in Oslo."),
    ("result", "call_Rome", "Rain in Rome."),
    ("assistant", "One more."),
    ("call", "call_Paris", "weather"),
    ("result", "call_Paris", "Rain in Paris."),
    ("assistant", "It rains everywhere."),
    ("user", "Thanks."),
    ("assistant", "You are welcome."),
]
"""The conversation of the scenarios with tools."""


def flatten(messages: Sequence[tuple[str, list[Item]]]) -> list[Item]:
    """Return the texts, each with its role, the calls and the results in order."""
    return [
        (role, item[-1]) if item[0] == "text" else item
        for role, items in messages
        for item in items
    ]


@contextmanager
def open_run(folder: Path, api: str) -> Iterator[FrameworkRun]:
    home, programs = folder / "home", folder / "programs"
    (home / ".cllm").mkdir(parents=True)
    programs.mkdir()
    with FakeProvider() as provider:
        row = {"api_key": SECRET}
        values = {
            "num_retries": 0,
            "providers": {
                "anthropic": {**row, "api_base": provider.root},
                "bedrock": {**row, "api_base": provider.root},
                "chat": {**row, "type": "openai", "api": "chat", "api_base": provider.url},
                "openai": {**row, "api": "responses", "api_base": provider.url},
            },
            "server": {
                "on_disconnect": "cancel",
                "routes": {"plain-chat": "chat/gpt-test", "bedrock-claude": BEDROCK},
            },
        }
        (home / ".cllm/Cllmfile.yml").write_text(yaml.safe_dump(values), encoding="utf-8")
        environment = {"HOME": str(home), "LANG": "C.UTF-8", "PATH": "/usr/bin:/bin"}
        store = f"sqlite:{folder / 'served.db'}"
        with Server(environment=environment, directory=home, store=store) as server:
            yield FrameworkRun(programs, provider, server, api)
            assert "Traceback" not in server.log, server.log

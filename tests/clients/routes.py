"""Runs a scenario of a client twice, directly and through `cllm serve`, and compares the runs.

Both runs use the same paths, because clients put paths into their prompts, and start with empty
folders. The scenarios set session IDs, device IDs and dates of commits, so bodies are compared byte
for byte, without normalisation. Model names are equal too: the server routes by them.
"""

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

import yaml
from tests.clients.programs import Program, Terminal
from tests.clients.recording import RECORDING, Transcript, assert_recorded
from tests.fake_provider import FakeProvider, Gate, Reply, Request
from tests.home import SECRET
from tests.server_process import Server

API_PATHS = ("/v1/messages", "/v1/chat/completions", "/v1/responses")
HEADERS = ("anthropic-beta", "anthropic-version")
"""Headers of a client that change the meaning of the body."""
CONTEXT = 120
"""Bytes to show on both sides of a difference."""

IsSide = Callable[[Request], bool]
"""Whether a request is not part of the conversation, such as a request for a title."""


class Route:
    """The provider, the server in front of it if any, and the folders of one run."""

    def __init__(
        self, folder: Path, provider: FakeProvider, server: Server | None, is_side: IsSide
    ) -> None:
        self.provider = provider
        self.server = server
        self.is_side = is_side
        self.home = folder / "home"
        self.project = folder / "project"
        for path in (self.home, self.project):
            shutil.rmtree(path, ignore_errors=True)
            path.mkdir()

    @property
    def address(self) -> str:
        """The base URL for clients, without `/v1`."""
        return self.provider.root if self.server is None else self.server.address

    @property
    def environment(self) -> dict[str, str]:
        """Variables of every client.

        The proxy is the provider, which refuses to connect to other hosts. So no request leaves
        the machine, even if a client ignores the settings that turn telemetry and updates off.
        """
        return {
            "HOME": str(self.home),
            "HTTPS_PROXY": self.provider.root,
            "LANG": "C.UTF-8",
            "NO_PROXY": "127.0.0.1,localhost",
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "TERM": "xterm-256color",
            "TMPDIR": str(self.home),
            "TZ": "UTC",
        }

    @property
    def requests(self) -> list[Request]:
        """The requests that call a model, in the order of their arrival."""
        return [request for request in self.provider.requests if is_model_call(request)]

    def reply_to_side_requests(self, text: str) -> None:
        """Reply with this text to every side request; others get the queued replies."""
        reply = Reply(pieces=(text,))
        self.provider.choose = lambda request: reply if self.is_side(request) else None

    def wait_for_stream(self, gate: Gate) -> Request:
        """Wait until a stream has reached the gate; return its request."""
        gate.wait_reached()
        return [request for request in self.requests if not self.is_side(request)][-1]

    def start(self, *command: object, env: Mapping[str, str]) -> Program:
        return Program([*map(str, command)], {**self.environment, **env}, self.project)

    def open_terminal(self, *command: object, env: Mapping[str, str]) -> Terminal:
        return Terminal([*map(str, command)], {**self.environment, **env}, self.project)

    def run(self, *command: object, env: Mapping[str, str]) -> str:
        """Run a client to its end; return its output. Fails if the client fails."""
        with self.start(*command, env=env) as program:
            code = program.finish()
        assert code == 0, f"exit {code}\n{program.out}\n{program.err}"
        return program.out


Scenario = Callable[[Route], Sequence[str]]
"""Runs a client, and returns the output that a user sees."""


@dataclass(frozen=True, kw_only=True)
class Trace:
    """The requests and the output of one run."""

    requests: Sequence[Request]
    side_requests: Sequence[Request]
    output: Sequence[str]
    files: Mapping[str, bytes]


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Compares the two runs of a scenario in a folder.

    `read_body` returns the part of a request that must be equal, by default all bytes of its body.
    `openai_api` is the API of the provider `openai`.
    """

    folder: Path
    is_side: IsSide
    read_body: Callable[[Request], Any] = attrgetter("body")
    openai_api: str = "chat"

    def run(self, scenario: Scenario, *, last_reply: str, stored_sides: int = 0) -> Trace:
        """Run the scenario directly and through a server, and assert that both are equal.

        The conversation ends with `last_reply`. The server stores the conversation, and this
        number of side conversations. Returns the run through the server.
        """
        with FakeProvider() as provider:
            direct = self._trace(scenario, Route(self.folder, provider, None, self.is_side))
        with (
            FakeProvider() as provider,
            start_server(self.folder / "server", provider, openai_api=self.openai_api) as server,
        ):
            served = self._trace(scenario, Route(self.folder, provider, server, self.is_side))
            assert server("GET", "/ready").status == 200
            assert "Traceback" not in server.log, server.log
            self._compare_requests(direct.requests, served.requests)
            self._compare_requests(direct.side_requests, served.side_requests)
            assert direct.output == served.output, (direct.output, served.output)
            assert direct.files == served.files
            last = served.requests[-1].json
            transcript = Transcript(request=last, reply=last_reply, sides=stored_sides)
            assert transcript.messages[-1] == ("assistant", [("text", last_reply)])
            if RECORDING:
                assert_recorded(server, transcript)
        return served

    def _compare_requests(self, direct: Sequence[Request], served: Sequence[Request]) -> None:
        """Assert that the provider received equal requests in the same order."""
        for one, other in zip(direct, served, strict=False):
            is_equal = self.read_body(one) == self.read_body(other)
            assert is_equal, describe_difference(one.body, other.body)
            for name in HEADERS:
                values = one.headers.get(name), other.headers.get(name)
                assert values[0] == values[1], f"{name}: {values}"
        assert len(direct) == len(served), f"{len(direct)} and {len(served)} requests"

    def _trace(self, scenario: Scenario, route: Route) -> Trace:
        output = scenario(route)
        sides = [request for request in route.requests if self.is_side(request)]
        return Trace(
            requests=[request for request in route.requests if not self.is_side(request)],
            side_requests=sorted(sides, key=lambda request: request.body),  # they run in parallel
            output=output,
            files=read_files(route.project),
        )


def is_model_call(request: Request) -> bool:
    return request.path.partition("?")[0] in API_PATHS and request.method == "POST"


def start_server(folder: Path, provider: FakeProvider, *, openai_api: str = "chat") -> Server:
    """Start `cllm serve` with the provider for all protocols. Only the client retries."""
    home = folder / "home"
    (home / ".cllm").mkdir(parents=True)
    values = {
        "num_retries": 0,
        "providers": {
            "anthropic": {"api_base": provider.root, "api_key": SECRET},
            "bedrock": {"api_base": provider.root, "api_key": SECRET},
            "openai": {"api_base": provider.url, "api_key": SECRET, "api": openai_api},
        },
        **({"server": {"record": "auto"}} if RECORDING else {}),
    }
    (home / ".cllm/Cllmfile.yml").write_text(yaml.safe_dump(values), encoding="utf-8")
    environment = {"HOME": str(home), "LANG": "C.UTF-8", "PATH": "/usr/bin:/bin"}
    store = f"sqlite:{folder / 'served.db'}"
    return Server(environment=environment, directory=home, store=store)


def read_body_without_usage(request: Request) -> dict[str, str]:
    """Return the fields of a body without `stream_options`, each as JSON.

    If a client does not request the usage of a stream, cllm adds `stream_options` to count the
    tokens. It then writes the other fields in its own order. The order within each field is equal.
    """
    options = request.json.get("stream_options", {"include_usage": True})
    assert options == {"include_usage": True}
    fields = {name: value for name, value in request.json.items() if name != "stream_options"}
    return {name: json.dumps(value) for name, value in fields.items()}


def describe_difference(direct: bytes, served: bytes) -> str:
    """Return the bytes around the first difference of two bodies."""
    pairs = zip(direct, served, strict=False)
    shortest = min(len(direct), len(served))
    index = next((i for i, (one, other) in enumerate(pairs) if one != other), shortest)
    start = max(index - CONTEXT, 0)
    one, other = (
        body[start : index + CONTEXT].decode(errors="replace") for body in (direct, served)
    )
    return f"The bodies differ at byte {index}.\n  direct: {one}\n  through cllm: {other}"


def read_files(folder: Path) -> dict[str, bytes]:
    """Return the files of a project without hidden ones: git, and histories with times."""
    names = {path: path.relative_to(folder) for path in sorted(folder.rglob("*")) if path.is_file()}
    return {
        str(name): path.read_bytes()
        for path, name in names.items()
        if not any(part.startswith(".") for part in name.parts)
    }

"""Fixtures of the acceptance tests: an empty home, the real command, a provider on loopback.

The home is in `tests/home.py`, the command in `tests/command.py`, the server in
`tests/server_process.py`, the chat in `tests/terminal_chat.py`. Tests check the sent requests and
the files.
"""

import signal
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.command import Cllm, Running
from tests.fake_provider import WAIT, FakeProvider
from tests.home import SECRET, Home, write_settings
from tests.postgres import postgres_server
from tests.server_process import OWN_STORES, STORES, Server, open_empty_store
from tests.terminal_chat import TerminalChat
from tests.waits import wait_until, watch_file_opens

__all__ = ["postgres_server"]


@pytest.fixture(scope="session", autouse=True)
def ctrl_c_can_be_sent() -> Iterator[None]:
    """A background test run ignores SIGINT, and its children would too."""
    before = signal.getsignal(signal.SIGINT)
    if before == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


@pytest.fixture
def provider() -> Iterator[FakeProvider]:
    with FakeProvider() as running:
        yield running


@pytest.fixture
def settings(home: Home, provider: FakeProvider) -> Callable[..., Path]:
    """A Cllmfile for the fake provider, and a way to write another one.

    A key whose value is `...` is left out. The default folder is `~/.cllm`.
    """

    def write(folder: Path | None = None, **keys: Any) -> Path:
        values: dict[str, Any] = {
            "model": "openai/gpt-test",
            "api_base": provider.url,
            "api_key": SECRET,
            "num_retries": 0,
        } | keys
        path = (folder or home.path / ".cllm") / "Cllmfile.yml"
        path.parent.mkdir(parents=True, exist_ok=True)
        present = {key: value for key, value in values.items() if value is not ...}
        path.write_text(yaml.safe_dump(present, allow_unicode=True), encoding="utf-8")
        return path

    write()
    return write


@pytest.fixture
def cllm(home: Home) -> Iterator[Cllm]:
    runner = Cllm(home)
    yield runner
    runner.close()


@pytest.fixture
def start_chat(cllm: Cllm) -> Iterator[Callable[..., TerminalChat]]:
    """Starts a `cllm chat` on a terminal."""
    started: list[TerminalChat] = []

    def start(
        *arguments: str,
        env: Mapping[str, str | None] | None = None,
        columns: int = 100,
        lines: int = 40,
        ready: str = "You:",
    ) -> TerminalChat:
        found = TerminalChat(cllm.start("chat", *arguments, terminal=True, env=env))
        found.resize(columns, lines)
        started.append(found)
        found.wait_for(ready)
        return found

    yield start
    for one in started:
        one.close()


@pytest.fixture
def secret() -> str:
    return SECRET


@pytest.fixture
def until() -> Callable[..., bool]:
    """Waits until a condition is true; returns False after the timeout."""
    return wait_until


@pytest.fixture
def start_waiting(home: Home, cllm: Cllm) -> Callable[..., Running]:
    """Starts a command that must wait for another one's turn, and returns when it has got there.

    An onlooker sees that it opens a file among the conversations, which it does to take its turn,
    and again if it looks over and over; no event tells more. Without inotify it gets two seconds.
    """

    def start(*arguments: str, terminal: bool = False) -> Running:
        with watch_file_opens(home.conversations) as wait_for_one:
            running = cllm.start(*arguments, terminal=terminal)
            if wait_for_one(WAIT):
                wait_for_one(0.5)
            return running

    return start


@pytest.fixture
def mode() -> Callable[[Path], int]:
    return lambda path: stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(scope="module")
def upstream() -> Iterator[FakeProvider]:
    """The provider behind a server that the tests of a module share."""
    with FakeProvider() as running:
        yield running


@pytest.fixture(scope="module", params=STORES)
def server(
    request: pytest.FixtureRequest, upstream: FakeProvider, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """A `cllm serve` that the tests of a module share, once for each kind of store."""
    home = Home(tmp_path_factory.mktemp("served"))
    write_settings(home, upstream)
    with (
        open_empty_store(request.param, home.path, request) as store,
        Server(environment=home.environment, directory=home.work, store=store) as running,
    ):
        yield running


@pytest.fixture(params=OWN_STORES)
def store_url(request: pytest.FixtureRequest, home: Home) -> Iterator[str]:
    """An empty store of each kind, for the servers of one test."""
    with open_empty_store(request.param, home.path, request) as url:
        yield url


@pytest.fixture
def serve(store_url: str, home: Home, provider: FakeProvider) -> Iterator[Callable[..., Server]]:
    """Starts a `cllm serve` of the test's own, with keys of the Cllmfile and options."""
    started: list[Server] = []

    def start(*arguments: str, **keys: Any) -> Server:
        write_settings(home, provider, **keys)
        running = Server(
            environment=home.environment,
            directory=home.work,
            store=store_url,
            arguments=arguments,
        )
        started.append(running)
        return running

    yield start
    for running in started:
        running.close()

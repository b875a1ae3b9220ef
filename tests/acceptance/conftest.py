"""What the acceptance tests stand on: an empty home, the real command, a provider on loopback.

The command runs in a process of its own, with an environment that is written out here and not
inherited; one that runs to its end is a fork where that is the same (`tests/forking.py`). Tests
look at what was sent and at what is on disk.
"""

import contextlib
import ctypes
import json
import os
import pty
import select
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.fake_provider import WAIT, FakeProvider
from tests.forking import fork_server, is_forkable
from tests.postgres import postgres_server
from tests.serving import OWN_STORES, STORES, Server, store_for

__all__ = ["postgres_server"]

COMMAND = (sys.executable, "-m", "cllm")
SECRET = "sk-test-0123456789abcdef"
IN_OPEN = 0x20

TAKE_THE_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""

LIMIT_FILE_SIZE = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2)
os.execv(sys.argv[2], sys.argv[2:])
"""

LIMIT_MEMORY = LIMIT_FILE_SIZE.replace("FSIZE", "AS")


@pytest.fixture(scope="session", autouse=True)
def ctrl_c_can_be_sent() -> Iterator[None]:
    """A test run in the background of a shell ignores SIGINT, and its children would too."""
    before = signal.getsignal(signal.SIGINT)
    if before == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@dataclass(frozen=True)
class Result:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def warnings(self) -> list[str]:
        return [line for line in self.err.splitlines() if line.strip()]

    def succeeded(self) -> "Result":
        assert self.code == 0, self.report()
        return self

    def failed_with_one_sentence(self, *words: str, prefix: str = "Error: ") -> str:
        """Exit 1 and one line on stderr with these words in it; returns the line."""
        assert self.code == 1, self.report()
        assert "Traceback" not in self.err, self.report()
        assert len(self.warnings) == 1, self.report()
        line = self.warnings[0]
        assert line.startswith(prefix), self.report()
        assert self.err.endswith("\n"), self.report()
        for word in words:
            assert word.lower() in line.lower(), self.report()
        assert SECRET not in self.out + self.err, self.report()
        return line

    def report(self) -> str:
        return f"exit {self.code}\n--- stdout\n{self.out}\n--- stderr\n{self.err}"


class Home:
    """An empty home directory and the directory that the command is started in."""

    def __init__(self, root: Path) -> None:
        self.path = root / "home"
        self.work = root / "work"
        self.temporary = root / "tmp"
        self.cache = self.path / ".cache"
        for folder in (self.path, self.work, self.temporary):
            folder.mkdir()

    @property
    def environment(self) -> dict[str, str]:
        return {
            "HOME": str(self.path),
            "LANG": "C.UTF-8",
            "PATH": os.environ["PATH"],
            "TMPDIR": str(self.temporary),
            "XDG_CACHE_HOME": str(self.cache),
            "XDG_CONFIG_HOME": str(self.path / ".config"),
            "XDG_DATA_HOME": str(self.path / ".local/share"),
            "XDG_RUNTIME_DIR": str(self.path / ".run"),
            "XDG_STATE_HOME": str(self.path / ".local/state"),
        }

    @property
    def conversations(self) -> Path:
        return self.path / ".cllm/conversations"

    def file(self, conversation: str) -> Path:
        return self.conversations / f"{conversation}.json"

    def load(self, conversation: str) -> dict[str, Any]:
        loaded: dict[str, Any] = json.loads(self.file(conversation).read_bytes())
        return loaded

    def messages(self, conversation: str) -> list[tuple[str, Any]]:
        return [
            (message["role"], message["content"]) for message in self.load(conversation)["messages"]
        ]

    def turn_states(self, conversation: str) -> list[str]:
        """The states of the turns that are recorded; one that is not written is complete."""
        turns = self.load(conversation)["metadata"]["cllm"]["turns"]
        return [turn.get("state", "complete") for turn in turns]

    def keep(self, conversation: str, content: Any) -> bytes:
        """Put a file among the conversations; what is not bytes is written as JSON."""
        data = content if isinstance(content, bytes) else json.dumps(content, indent=2).encode()
        self.conversations.mkdir(parents=True, exist_ok=True)
        self.file(conversation).write_bytes(data)
        return data

    def keep_old(self, conversation: str, *said: tuple[str, str], **more: Any) -> bytes:
        """A conversation file as it was written before system prompts were captured."""
        messages = [{"role": role, "content": content} for role, content in said]
        return self.keep(
            conversation,
            {
                "id": conversation,
                "model": "openai/gpt-test",
                "messages": messages,
                "created_at": "2025-10-31T12:00:00Z",
                "updated_at": "2025-10-31T12:00:15Z",
                "metadata": {"total_tokens": 150},
            }
            | more,
        )

    def snapshot(self, folder: Path | None = None) -> dict[str, bytes]:
        """Every file below the home (or the folder) and its bytes; lock files do not count."""
        root = folder or self.path
        return {
            str(path.relative_to(root)): path.read_bytes()
            for path in sorted(root.rglob("*"))
            if path.is_file() and "lock" not in path.name
        }

    def entries(self) -> list[str]:
        """Everything in the home and the work folder, directories too."""
        roots = (self.path, self.work)
        return [str(path) for root in roots for path in sorted(root.rglob("*"))]


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
        kept = {key: value for key, value in values.items() if value is not ...}
        path.write_text(yaml.safe_dump(kept, allow_unicode=True), encoding="utf-8")
        return path

    write()
    return write


class Running:
    """A started command. Its output is collected while it runs, so that tests can wait for it."""

    def __init__(self, process: subprocess.Popen[bytes], terminal: int | None) -> None:
        self.process = process
        self._terminal = terminal
        self._changed = threading.Condition()
        self._collected = {"out": b"", "err": b""}
        self._descriptors: dict[str, int] = {}
        if terminal is not None:
            self._descriptors["out"] = terminal
        else:
            assert process.stdout is not None
            assert process.stderr is not None
            self._descriptors["out"] = process.stdout.fileno()
            self._descriptors["err"] = process.stderr.fileno()
        self._threads = [
            threading.Thread(target=self._collect, args=(name, descriptor), daemon=True)
            for name, descriptor in self._descriptors.items()
        ]
        for thread in self._threads:
            thread.start()

    def _collect(self, name: str, descriptor: int) -> None:
        while True:
            try:
                data = os.read(descriptor, 65536)
            except OSError:  # the other end of a terminal is closed
                data = b""
            if not data:
                return
            with self._changed:
                self._collected[name] += data
                self._changed.notify_all()

    @property
    def out(self) -> str:
        with self._changed:
            return self._collected["out"].decode("utf-8", "replace")

    @property
    def err(self) -> str:
        with self._changed:
            return self._collected["err"].decode("utf-8", "replace")

    def wait_for_output(self, text: str, *, stream: str = "out", timeout: float = WAIT) -> None:
        wanted = text.encode()
        with self._changed:
            seen = self._changed.wait_for(lambda: wanted in self._collected[stream], timeout)
            assert seen, f"{text!r} was not printed: {self._collected}"

    def type(self, data: bytes) -> None:
        """What a person types at the terminal."""
        assert self._terminal is not None
        os.write(self._terminal, data)

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def finish(self, timeout: float = WAIT) -> Result:
        self.process.wait(timeout)
        for thread in self._threads:
            thread.join(timeout)
        return Result(self.process.returncode, self.out, self.err)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(WAIT)
        for thread in self._threads:
            thread.join(WAIT)
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        if self._terminal is not None:
            os.close(self._terminal)
            self._terminal = None


class Cllm:
    """Runs the command. Standard input is empty unless it is given."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.command: tuple[str, ...] = COMMAND
        self._started: list[Running] = []

    def __call__(
        self,
        *arguments: str | bytes,
        stdin: bytes = b"",
        env: Mapping[str, str | None] | None = None,
        cwd: Path | None = None,
        wrapper: tuple[str, ...] = (),
        memory: int | None = None,
        timeout: float = WAIT,
    ) -> Result:
        environment, directory = self.environment(env), cwd or self.home.work
        if not wrapper and self.command == COMMAND and is_forkable(arguments, environment):
            forked = fork_server().start(arguments, environment, directory, memory)
            done = forked.communicate(stdin, timeout)
        else:
            if memory is not None:
                wrapper = (*wrapper, sys.executable, "-c", LIMIT_MEMORY, str(memory))
            done = subprocess.run(
                [*wrapper, *self.command, *arguments],
                check=False,
                input=stdin,
                capture_output=True,
                env=environment,
                cwd=directory,
                timeout=timeout,
            )
        out, err = done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")
        return Result(done.returncode, out, err)

    def with_file_size_limit(self, limit: int, *arguments: str) -> Result:
        """Run where no file can grow beyond so many bytes, as on a disk that is full."""
        return self(*arguments, wrapper=(sys.executable, "-c", LIMIT_FILE_SIZE, str(limit)))

    def start(
        self,
        *arguments: str,
        terminal: bool = False,
        env: Mapping[str, str | None] | None = None,
    ) -> Running:
        """Start the command, with a terminal of its own for everything if one is asked for."""
        wrapper: tuple[str, ...]
        master: int | None
        slave: int | None
        if terminal:
            master, slave = pty.openpty()
            wrapper = (sys.executable, "-c", TAKE_THE_TERMINAL)
            streams: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), slave)
        else:
            master = slave = None
            wrapper = ()
            streams = {
                "stdin": subprocess.DEVNULL,
                "stdout": subprocess.PIPE,
                "stderr": subprocess.PIPE,
            }
        process = subprocess.Popen(
            [*wrapper, *self.command, *arguments],
            env=self.environment({"TERM": "xterm-256color"} | dict(env or {})),
            cwd=self.home.work,
            start_new_session=terminal,
            **streams,
        )
        if slave is not None:
            os.close(slave)
        running = Running(process, master)
        self._started.append(running)
        return running

    def environment(self, changes: Mapping[str, str | None] | None = None) -> dict[str, str]:
        merged = self.home.environment | dict(changes or {})
        return {name: value for name, value in merged.items() if value is not None}

    def close(self) -> None:
        for running in self._started:
            running.close()


@pytest.fixture
def cllm(home: Home) -> Iterator[Cllm]:
    runner = Cllm(home)
    yield runner
    runner.close()


@pytest.fixture
def secret() -> str:
    return SECRET


@pytest.fixture
def until() -> Callable[..., bool]:
    """Waits until something is true, or for the time given; says which of the two it was."""

    def wait(condition: Callable[[], bool], timeout: float = WAIT) -> bool:
        deadline = time.monotonic() + timeout
        while not condition():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.005)
        return True

    return wait


@pytest.fixture
def start_waiting(home: Home, cllm: Cllm) -> Callable[..., Running]:
    """Starts a command that must wait for another one's turn, and returns when it has got there.

    An onlooker sees that it opens a file among the conversations, which it does to take its turn,
    and again if it looks over and over; no event tells more. Without inotify it gets two seconds.
    """

    def start(*arguments: str, terminal: bool = False) -> Running:
        with opened_files(home.conversations) as wait_for_one:
            running = cllm.start(*arguments, terminal=terminal)
            if wait_for_one(WAIT):
                wait_for_one(0.5)
            return running

    return start


def _two_seconds(_: float) -> bool:
    time.sleep(2)
    return False


@contextlib.contextmanager
def opened_files(folder: Path) -> Iterator[Callable[[float], bool]]:
    """A way to wait until somebody opens a file below the folder; says whether somebody did."""
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "inotify_init1"):
        yield _two_seconds
        return
    watch = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    for watched in (folder, *(path for path in folder.rglob("*") if path.is_dir())):
        added = libc.inotify_add_watch(watch, os.fsencode(watched), IN_OPEN)
        assert added >= 0, os.strerror(ctypes.get_errno())

    def wait(timeout: float) -> bool:
        ready, _, _ = select.select([watch], [], [], timeout)
        return bool(ready and os.read(watch, 65536))

    try:
        yield wait
    finally:
        os.close(watch)


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
        store_for(request.param, home.path, request) as store,
        Server(environment=home.environment, directory=home.work, store=store) as running,
    ):
        yield running


def write_settings(home: Home, provider: FakeProvider, **keys: Any) -> None:
    values = {"model": "openai/gpt-test", "api_base": provider.url, "api_key": SECRET}
    path = home.path / ".cllm/Cllmfile.yml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump({**values, "num_retries": 0, **keys}), encoding="utf-8")


@pytest.fixture(params=OWN_STORES)
def store_url(request: pytest.FixtureRequest, home: Home) -> Iterator[str]:
    """An empty store of each kind, for the servers of one test."""
    with store_for(request.param, home.path, request) as url:
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

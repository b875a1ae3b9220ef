"""Starts the gateways that `server.py` and `streams.py` compare, each with one worker, on loopback.

Each is configured as its documentation recommends for production. A gateway is a process with its
children. All forward to the same provider (`upstream.py`). Configuration files are written to the
folder of the run.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from machine import command_version, package_versions

CLLM, BARE, LITELLM, PORTKEY, NGINX = "cllm", "bare proxy", "LiteLLM", "Portkey", "nginx"
HERE = Path(__file__).parent
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
START_SECONDS = 120.0
LITELLM_ENVIRONMENT = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_LOG": "ERROR",
    "LITELLM_MODE": "PRODUCTION",
    "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
}


@dataclass(frozen=True, kw_only=True)
class Gateway:
    """A running gateway: its port, its process and the headers that its requests need."""

    name: str
    port: int
    process: int
    headers: Mapping[str, str] = field(default_factory=dict)

    def cpu(self) -> float:
        """Return the CPU seconds of the process and its children so far."""
        return sum(_cpu(process) for process in list_processes(self.process))

    def memory(self) -> int:
        """Return the resident bytes of the process and its children."""
        return sum(_resident(process) for process in list_processes(self.process))


@dataclass(frozen=True, kw_only=True)
class Peers:
    """Where the other gateways are installed. Those that are None are not started."""

    litellm: Path | None = None
    """The command `litellm`."""
    portkey: tuple[Path, Path] | None = None
    """Node and the file `start-server.js`."""
    nginx: Path | None = None

    def versions(self) -> dict[str, str]:
        versions: dict[str, str] = {}
        if self.litellm is not None:
            versions |= package_versions(self.litellm.with_name("python"), ["litellm"])
        if self.portkey is not None:
            node, server = self.portkey
            package = server.parents[1] / "package.json"
            versions["Portkey"] = json.loads(package.read_text(encoding="utf-8"))["version"]
            versions["Node"] = command_version([str(node), "--version"])
        if self.nginx is not None:
            versions["nginx"] = command_version([str(self.nginx), "-v"])
        return versions


def store_url(folder: Path) -> str:
    """Return the store of cllm in the folder of a run."""
    return f"sqlite:{folder}/conversations.db"


@contextmanager
def start_gateways(folder: Path, peers: Peers) -> Iterator[dict[str, Gateway]]:
    """Start the provider, cllm, the bare proxy and the peers."""
    with ExitStack() as stack:
        upstream = free_port()
        provider = [sys.executable, str(HERE / "upstream.py"), str(upstream)]
        stack.enter_context(run_gateway("upstream", provider, port=upstream, folder=folder))
        url = f"http://127.0.0.1:{upstream}"
        gateways: dict[str, Gateway] = {}

        def start(name: str, command: list[str], port: int, **options: dict[str, str]) -> None:
            gateways[name] = stack.enter_context(
                run_gateway(name, command, port=port, folder=folder, **options)
            )

        port = free_port()
        write_cllmfile(folder, url)
        serve = [sys.executable, "-m", "cllm", "serve", "--port", str(port)]
        home = {"HOME": str(folder)}
        start(CLLM, [*serve, "--store", store_url(folder)], port, environment=home)
        port = free_port()
        start(BARE, [sys.executable, str(HERE / "bare_proxy.py"), str(port), url], port)
        if peers.litellm is not None:
            port = free_port()
            litellm = [str(peers.litellm), "--config", str(write_litellm(folder, url))]
            options = ["--host", "127.0.0.1", "--port", str(port), "--num_workers", "1"]
            start(LITELLM, [*litellm, *options], port, environment=LITELLM_ENVIRONMENT)
        if peers.portkey is not None:
            port = free_port()
            head = {"x-portkey-provider": "openai", "x-portkey-custom-host": f"{url}/v1"}
            command = [*map(str, peers.portkey), f"--port={port}", "--headless"]
            start(PORTKEY, command, port, headers=head)
        if peers.nginx is not None:
            port = free_port()
            config = str(write_nginx(folder, port, url))
            start(NGINX, [str(peers.nginx), "-p", str(folder), "-c", config], port)
        yield gateways


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def list_processes(process: int) -> Iterator[int]:
    """Yield the ID of a process and of all its descendants."""
    yield process
    try:
        children = Path(f"/proc/{process}/task/{process}/children").read_text(encoding="ascii")
    except OSError:
        return
    for child in children.split():
        yield from list_processes(int(child))


def _cpu(process: int) -> float:
    """Return the CPU seconds of all threads. The kernel counts in nanoseconds."""
    nanoseconds = 0
    for thread in Path(f"/proc/{process}/task").glob("*"):
        try:
            nanoseconds += int((thread / "schedstat").read_text(encoding="ascii").split()[0])
        except OSError:
            continue
    return nanoseconds / 1e9


def _resident(process: int) -> int:
    try:
        return (
            int(Path(f"/proc/{process}/statm").read_text(encoding="ascii").split()[1]) * PAGE_BYTES
        )
    except OSError:
        return 0


@contextmanager
def run_gateway(
    name: str,
    command: Sequence[str],
    *,
    port: int,
    environment: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
    folder: Path,
) -> Iterator[Gateway]:
    """Start a gateway, wait until it listens, and stop it with all its children."""
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            command,
            env={**os.environ, **(environment or {})},
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        _wait_for_port(port, process, folder / f"{name}.log")
        yield Gateway(name=name, port=port, process=process.pid, headers=headers or {})
    finally:
        _stop(process)


def _stop(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _wait_for_port(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    output = log.read_text(encoding="utf-8", errors="replace")[-2000:]
    raise SystemExit(f"{log.stem} does not listen on its port. Its output: {output}")


def write_cllmfile(home: Path, upstream: str) -> None:
    folder = home / ".cllm"
    folder.mkdir(parents=True, exist_ok=True)
    settings = {
        "model": "openai/gpt-4o",
        "providers": {
            "openai": {"api_base": f"{upstream}/v1", "api_key": "unused"},
            "anthropic": {"api_base": upstream, "api_key": "unused"},
            "lab": {
                "type": "openai",
                "api": "responses",
                "models": ["gpt-4.1"],
                "api_base": f"{upstream}/v1",
                "api_key": "unused",
            },
        },
    }
    (folder / "Cllmfile.yml").write_text(json.dumps(settings), encoding="utf-8")


def write_litellm(folder: Path, upstream: str) -> Path:
    models = [
        ("gpt-4o", "openai/gpt-4o", f"{upstream}/v1"),
        ("claude-sonnet-4-5", "anthropic/claude-sonnet-4-5", upstream),
    ]
    model_list = [
        {
            "model_name": name,
            "litellm_params": {"model": model, "api_base": base, "api_key": "unused"},
        }
        for name, model, base in models
    ]
    path = folder / "litellm.json.yaml"
    path.write_text(json.dumps({"model_list": model_list}), encoding="utf-8")
    return path


def write_nginx(folder: Path, port: int, upstream: str) -> Path:
    path = folder / "nginx.conf"
    temporary = "".join(
        f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi")
    )
    path.write_text(
        f"daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/nginx.err;"
        "events { worker_connections 4096; }"
        f"http {{ access_log off; {temporary} "
        f"uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;"
        f"upstream provider {{ server {upstream.removeprefix('http://')}; keepalive 512; }}"
        f"server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://provider;"
        'proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off; } } }',
        encoding="utf-8",
    )
    return path

"""Starts the gateways that `server.py` compares, each as its documentation shows, on loopback.

A gateway is a process with its children. Configuration files are written to the folder of the run.
"""

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
START_SECONDS = 120.0


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
        "events { worker_connections 512; }"
        f"http {{ access_log off; {temporary} "
        f"uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;"
        f"upstream provider {{ server {upstream.removeprefix('http://')}; keepalive 64; }}"
        f"server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://provider;"
        'proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off; } } }',
        encoding="utf-8",
    )
    return path

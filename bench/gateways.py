"""The gateways that `server.py` compares, each started as its own users would, on loopback.

A gateway is a process with its children; `Gateway.cpu` is what all of them have used so far. What
a peer needs to be told is written into a folder of the run.
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

PAGE = os.sysconf("SC_PAGE_SIZE")
PATIENCE = 120.0


@dataclass(frozen=True, kw_only=True)
class Gateway:
    """One that is running: where it listens, and what it wants in a request's head."""

    name: str
    port: int
    process: int
    headers: Mapping[str, str] = field(default_factory=dict)

    def cpu(self) -> float:
        """Seconds of the processor that it and its children have used."""
        return sum(_cpu(process) for process in family(self.process))

    def memory(self) -> int:
        """Bytes that it and its children hold."""
        return sum(_resident(process) for process in family(self.process))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def family(process: int) -> Iterator[int]:
    """A process and all that came of it."""
    yield process
    try:
        children = Path(f"/proc/{process}/task/{process}/children").read_text(encoding="ascii")
    except OSError:
        return
    for child in children.split():
        yield from family(int(child))


def _cpu(process: int) -> float:
    """The time of all its threads, which the kernel counts in nanoseconds."""
    spent = 0
    for thread in Path(f"/proc/{process}/task").glob("*"):
        try:
            spent += int((thread / "schedstat").read_text(encoding="ascii").split()[0])
        except OSError:
            continue
    return spent / 1e9


def _resident(process: int) -> int:
    try:
        return int(Path(f"/proc/{process}/statm").read_text(encoding="ascii").split()[1]) * PAGE
    except OSError:
        return 0


@contextmanager
def running(
    name: str,
    command: Sequence[str],
    *,
    port: int,
    environment: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
    folder: Path,
) -> Iterator[Gateway]:
    """Start it, wait until it listens, and end it with all its children."""
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
        _wait_for(port, process, folder / f"{name}.log")
        yield Gateway(name=name, port=port, process=process.pid, headers=headers or {})
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        if process.poll() is not None:
            break
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    said = log.read_text(encoding="utf-8", errors="replace")[-2000:]
    raise SystemExit(f"{log.stem} does not listen: {said}")


def write_cllmfile(home: Path, upstream: str) -> None:
    folder = home / ".cllm"
    folder.mkdir(parents=True, exist_ok=True)
    settings = {
        "model": "openai/gpt-4o",
        "providers": {
            "openai": {"api_base": f"{upstream}/v1", "api_key": "unused"},
            "anthropic": {"api_base": upstream, "api_key": "unused"},
        },
    }
    (folder / "Cllmfile.yml").write_text(json.dumps(settings), encoding="utf-8")


def write_litellm(folder: Path, upstream: str) -> Path:
    models = [
        ("gpt-4o", "openai/gpt-4o", f"{upstream}/v1"),
        ("claude-sonnet-4-5", "anthropic/claude-sonnet-4-5", upstream),
    ]
    listed = [
        {
            "model_name": name,
            "litellm_params": {"model": model, "api_base": base, "api_key": "unused"},
        }
        for name, model, base in models
    ]
    path = folder / "litellm.json.yaml"
    path.write_text(json.dumps({"model_list": listed}), encoding="utf-8")
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

"""Starts and stops the child process, which also ends when its standard input closes."""

import asyncio
import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO

import msgspec

from cllm.core.errors import LocalModelError

DEFAULT_CONTEXT = 8192
GRACE_SECONDS = 2.0
EXIT_SECONDS = 0.5
TAIL_BYTES = 4096

# The child loads files of unknown origin, so it gets no API keys: these variables only.
INHERITED_VARIABLES = (
    "PATH",
    "HOME",
    "TMPDIR",
    "LANG",
    "LD_LIBRARY_PATH",
    "PYTHONPATH",
    "PYTHONHOME",
)
INHERITED_PREFIXES = ("LC_", "OMP_", "GOMP_", "GGML_", "CUDA_", "HIP_", "ROCR_", "VK_")


class ModelProcessSettings(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    model: Path
    slots: Path
    template: str | None = None
    context: int = DEFAULT_CONTEXT
    threads: int = 1

    def encode_line(self, key: str) -> bytes:
        fields = msgspec.to_builtins(self, enc_hook=str) | {"key": key}
        return json.dumps(fields).encode() + b"\n"


class ModelProcess:
    def __init__(
        self, process: subprocess.Popen[bytes], *, settings: ModelProcessSettings, errors: IO[bytes]
    ) -> None:
        self.key = secrets.token_urlsafe(32)
        self.address = ""
        self._process = process
        self._settings = settings
        self._errors = errors
        if process.stdin is None or process.stdout is None:
            raise ValueError("the child process needs pipes for stdin and stdout")
        self._stdin, self._stdout = process.stdin, process.stdout
        # `wait_until_ready` reports a child that has died.
        with contextlib.suppress(BrokenPipeError):
            self._stdin.write(settings.encode_line(self.key))
            self._stdin.flush()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    async def has_ended(self) -> bool:
        """Wait up to EXIT_SECONDS, because the sockets close before the process ends."""
        try:
            await asyncio.to_thread(self._process.wait, EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            return False
        return True

    async def wait_until_ready(self) -> None:
        """Wait until the child listens; stop it on failure."""
        reading = asyncio.get_running_loop().run_in_executor(None, self._read_address)
        try:
            # Not `shield`, which reports an error of the child after a cancellation (Python 3.14).
            await asyncio.wait([reading])
            reading.result()
        except (asyncio.CancelledError, LocalModelError):
            if not reading.done():
                self._process.kill()
                await asyncio.wait([reading])
            reading.exception()
            self.stop()
            raise

    def _read_address(self) -> None:
        line = self._stdout.readline()
        if not line:
            raise LocalModelError(self._describe_exit())
        self.address = json.loads(line)["address"]

    def stop(self) -> None:
        """Close the input; kill the child after GRACE_SECONDS."""
        with contextlib.suppress(BrokenPipeError):
            self._stdin.close()
        try:
            self._process.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._stdout.close()
        self._errors.close()

    def _describe_exit(self) -> str:
        code = self._process.wait()
        failure = f"The local model {self._settings.name} did not start"
        if code == -signal.SIGKILL:
            return f"{failure}: it was killed, perhaps out of memory; use a smaller model."
        size = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, size - TAIL_BYTES))
        reason = _find_reason(self._errors.read().decode("utf-8", "replace"))
        return (
            f"{failure} ({reason}); the file {self._settings.model} may be damaged or unsupported "
            "by llama.cpp: download it again or use another model."
        )


def launch(settings: ModelProcessSettings, environ: Mapping[str, str]) -> ModelProcess:
    with contextlib.ExitStack() as on_failure:
        try:
            errors = on_failure.enter_context(tempfile.TemporaryFile())
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "cllm.providers.local.child"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=_child_environment(environ),
                start_new_session=True,
            )
        except OSError as error:
            raise LocalModelError(
                f"Cannot start the local model's process ({error.strerror}); "
                "free some memory and disk space and try again."
            ) from error
        # From here on `ModelProcess.stop` closes the file.
        on_failure.pop_all()
    return ModelProcess(process, settings=settings, errors=errors)


def _child_environment(environ: Mapping[str, str]) -> dict[str, str]:
    inherited = {
        name: value
        for name, value in environ.items()
        if name in INHERITED_VARIABLES or name.startswith(INHERITED_PREFIXES)
    }
    # Waiting threads that spin starve a second process on the same cores.
    return {"GOMP_SPINCOUNT": "2000"} | inherited


def _find_reason(tail: str) -> str:
    """Return the first error that llama.cpp printed, else the last line."""
    lines = [line.strip() for line in tail.splitlines() if line.strip()]
    errors = [line.partition(" E ")[2] for line in lines if " E " in line]
    return (errors or lines[-1:] or ["no reason reported"])[0].rstrip(".")

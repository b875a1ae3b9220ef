"""Starts and ends the child process, which also ends with its standard input."""

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
DYING_SECONDS = 0.5
TAIL_BYTES = 4096

# The child runs foreign files, so it gets no API keys: these variables only.
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

    def line(self, key: str) -> bytes:
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
            raise ValueError("a child needs pipes for its input and output")
        self._stdin, self._stdout = process.stdin, process.stdout
        # `wait_until_ready` reports a child that died at once.
        with contextlib.suppress(BrokenPipeError):
            self._stdin.write(settings.line(self.key))
            self._stdin.flush()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    async def has_ended(self) -> bool:
        """Waits a moment: the sockets close before the process ends."""
        try:
            await asyncio.to_thread(self._process.wait, DYING_SECONDS)
        except subprocess.TimeoutExpired:
            return False
        return True

    async def wait_until_ready(self) -> None:
        """Wait until the child listens; end it on failure."""
        answering = asyncio.get_running_loop().run_in_executor(None, self._read_answer)
        try:
            await asyncio.shield(answering)
        except (asyncio.CancelledError, LocalModelError):
            if not answering.done():
                self._process.kill()
                await asyncio.wait([answering])
            answering.exception()
            self.stop()
            raise

    def _read_answer(self) -> None:
        answer = self._stdout.readline()
        if not answer:
            raise LocalModelError(self._why_it_ended())
        self.address = json.loads(answer)["address"]

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

    def _why_it_ended(self) -> str:
        code = self._process.wait()
        what = f"The local model {self._settings.name} did not start"
        if code == -signal.SIGKILL:
            return f"{what}: it was killed, perhaps for want of memory; try a smaller model."
        size = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, size - TAIL_BYTES))
        reason = _reason_in(self._errors.read().decode("utf-8", "replace"))
        return (
            f"{what} ({reason}); the file {self._settings.model} may be damaged or of a kind that "
            "llama.cpp does not run: fetch it again or choose another."
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
                f"The local model's process cannot be started ({error.strerror}); "
                "free some memory and disk space and ask again."
            ) from error
        # From here on `ModelProcess.end` closes the file.
        on_failure.pop_all()
    return ModelProcess(process, settings=settings, errors=errors)


def _child_environment(environ: Mapping[str, str]) -> dict[str, str]:
    passed = {
        name: value
        for name, value in environ.items()
        if name in INHERITED_VARIABLES or name.startswith(INHERITED_PREFIXES)
    }
    # Waiting threads that spin starve a second process on the same cores.
    return {"GOMP_SPINCOUNT": "2000"} | passed


def _reason_in(tail: str) -> str:
    """The first error that llama.cpp printed, or the last line."""
    lines = [line.strip() for line in tail.splitlines() if line.strip()]
    errors = [line.partition(" E ")[2] for line in lines if " E " in line]
    return (errors or lines[-1:] or ["it gave no reason"])[0].rstrip(".")

"""A program that imports the installed package, in a process of its own."""

import subprocess
import sys
import textwrap

import pytest
from tests.fake_provider import WAIT
from tests.forking import LIBRARY_MODULES, fork_server
from tests.torture import TORTURE


@pytest.fixture
def program(home, cllm, settings):
    """Runs a Python program with warnings as errors; what it prints."""

    def program(source: str, *, code: int = 0) -> str:
        source = textwrap.dedent(source)
        if TORTURE:
            done = subprocess.run(
                [sys.executable, "-W", "error", "-c", source],
                cwd=home.work,
                env=cllm.environment(),
                capture_output=True,
                check=False,
                timeout=WAIT,
            )
        else:
            server = fork_server(LIBRARY_MODULES, "-W error")
            forked = server.start((), cllm.environment(), home.work, source=source)
            done = forked.communicate(b"", WAIT)
        out, error = done.stdout.decode(), done.stderr.decode()
        assert done.returncode == code, error
        if code == 0:
            assert error == ""
        return out if code == 0 else error

    return program


@pytest.fixture
def start_program(home, cllm, settings):
    """Starts a Python program; the process."""

    def start(source: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-W", "error", "-c", textwrap.dedent(source)],
            cwd=home.work,
            env=cllm.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return start

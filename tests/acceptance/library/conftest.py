"""A program that imports the installed package, in a process of its own."""

import subprocess
import sys
import textwrap

import pytest


@pytest.fixture
def program(home, cllm, settings):
    """Runs a Python program with warnings as errors; what it prints."""

    def program(source: str, *, code: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", textwrap.dedent(source)],
            cwd=home.work,
            env=cllm.environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == code, done.stderr
        if code == 0:
            assert done.stderr == ""
        return done.stdout if code == 0 else done.stderr

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

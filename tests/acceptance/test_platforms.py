"""On Windows, cllm says where it runs instead of failing on a missing module."""

import subprocess
import sys

from tests.home import Home

import cllm

WINDOWS = """
import sys

sys.platform = "win32"
for name in ("fcntl", "grp", "pwd", "resource", "termios"):
    sys.modules[name] = None
from cllm.__main__ import main

sys.argv = ["cllm", *sys.argv[1:]]
main()
"""
LIBRARY = (
    WINDOWS.partition("from cllm")[0] + "import cllm; print(cllm.__version__); cllm.ask('Hello')"
)


def run_program(home: Home, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", *arguments],
        env=home.environment,
        cwd=home.work,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_library_on_windows_names_the_supported_platforms(home):
    done = run_program(home, LIBRARY)

    assert done.returncode == 1
    assert done.stdout == f"{cllm.__version__}\n"
    assert "ImportError: cllm runs on Linux and macOS." in done.stderr.splitlines()[-1]


def test_the_command_on_windows_prints_one_sentence_that_says_what_to_do(home):
    for arguments in (["Hello"], ["--version"], ["serve"]):
        done = run_program(home, WINDOWS, *arguments)

        assert done.returncode == 1
        assert not done.stdout
        (line,) = done.stderr.splitlines()
        assert "Linux and macOS" in line
        assert "WSL" in line

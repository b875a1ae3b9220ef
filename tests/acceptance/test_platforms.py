"""On Windows, the command says where it runs instead of failing on a missing module."""

import subprocess
import sys

WINDOWS = """
import sys

sys.platform = "win32"
for name in ("fcntl", "grp", "pwd", "resource", "termios"):
    sys.modules[name] = None
from cllm.__main__ import main

sys.argv = ["cllm", *sys.argv[1:]]
main()
"""


def test_the_command_on_windows_prints_one_sentence_that_says_what_to_do(home):
    for arguments in (["Hello"], ["--version"], ["serve"]):
        done = subprocess.run(
            [sys.executable, "-c", WINDOWS, *arguments],
            env=home.environment,
            cwd=home.work,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

        assert done.returncode == 1
        assert not done.stdout
        (line,) = done.stderr.splitlines()
        assert "Linux and macOS" in line
        assert "WSL" in line

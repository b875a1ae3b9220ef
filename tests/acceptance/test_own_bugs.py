"""A bug of cllm's is called one: nobody is told that a file of theirs is broken."""

import subprocess
import sys

BROKEN = """
import sys

from cllm.stores import edits


def fail(*_, **__):
    raise TypeError("unsupported operand type(s)")


edits.build_running_turn = fail
from cllm.__main__ import main

sys.argv = ["cllm", *sys.argv[1:]]
main()
"""


def test_a_bug_in_a_store_is_reported_as_a_bug_and_the_database_stays_usable(
    home, settings, cllm, provider
):
    settings()
    store = f"sqlite:{home.path / 'cats.db'}"
    cllm("Hello", "--store", store, "--conversation", "demo").succeeded()
    done = subprocess.run(
        [sys.executable, "-c", BROKEN, "Hello", "--store", store, "--conversation", "demo"],
        env=home.environment,
        cwd=home.work,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 1
    assert done.stderr.splitlines()[-2:] == [
        "TypeError: unsupported operand type(s)",
        "cllm itself failed; please report this with the lines above.",
    ]
    assert "cannot be read" not in done.stderr
    cllm("Hello", "--store", store, "--conversation", "demo").succeeded()

"""The child process, started with a model file that does not exist."""

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("template", [None, "{{ messages }}"])
def test_a_failed_start_reports_on_stderr_and_never_on_stdout(template: str | None, tmp_path: Path):
    settings = {
        "name": "a",
        "model": str(tmp_path / "missing.gguf"),
        "slots": str(tmp_path),
        "template": template,
        "context": 512,
        "threads": 1,
        "key": "secret",
    }
    done = subprocess.run(
        [sys.executable, "-P", "-m", "cllm.providers.local.child"],
        input=json.dumps(settings).encode() + b"\n",
        capture_output=True,
        check=False,
    )

    assert done.returncode != 0
    assert done.stdout == b""
    assert b"missing.gguf" in done.stderr
    assert b"secret" not in done.stderr

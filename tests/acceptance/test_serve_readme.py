"""The server commands of the README: no configuration, the local model, curl."""

import os
import re
import subprocess
from pathlib import Path

import pytest
from tests.server_process import Server

README = Path(__file__).parents[2] / "README.md"


@pytest.fixture
def fetched(home, local_model):
    models = home.cache / "cllm/models"
    models.mkdir(parents=True)
    (models / "smollm2-135m.gguf").symlink_to(local_model)


def printed_commands() -> str:
    """The indented block that calls the server."""
    blocks: list[str] = re.findall(r"(?m)^((?:    .*\n)+)", README.read_text(encoding="utf-8"))
    (block,) = (block for block in blocks if "curl " in block)
    return block


@pytest.mark.usefixtures("fetched")
def test_the_commands_of_the_readme_run_when_they_are_pasted(home):
    with Server(environment=home.environment, directory=home.work, store=None) as server:
        address = server.address.removeprefix("http://")
        done = subprocess.run(
            ["bash", "-c", printed_commands().replace("localhost:3000", address)],
            env={name: value for name, value in os.environ.items() if name != "ID"},
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        )

    assert '"content"' in done.stderr
    assert "Luna" in done.stdout
    assert (home.path / ".cllm/cllm.db").exists()

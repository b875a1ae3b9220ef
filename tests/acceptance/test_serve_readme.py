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


def printed_commands() -> list[str]:
    lines = README.read_text(encoding="utf-8").replace("\\\n", "").splitlines()
    return [line.strip() for line in lines if line.startswith("    curl ")]


def run(command: str, server: Server, conversation: str = "") -> str:
    at_port = command.replace("localhost:3000", server.address.removeprefix("http://"))
    done = subprocess.run(
        ["bash", "-c", at_port],
        env={**os.environ, "ID": conversation},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return done.stdout


@pytest.mark.usefixtures("fetched")
def test_the_commands_of_the_readme_start_and_continue_a_conversation(home):
    begin, go_on = printed_commands()
    with Server(environment=home.environment, directory=home.work, store=None) as server:
        first = run(begin, server)
        named = re.search(r"(?im)^x-conversation-id: (\S+)", first)
        assert named is not None, first
        second = run(go_on, server, named[1])

    assert "Luna" in second
    assert (home.path / ".cllm/cllm.db").exists()

"""The four requests of the seed's test plan, as they are printed there, through `curl`.

Only the port is another. The first and the third are for a server whose default provider is
Bedrock, the others bring a key for Anthropic.
"""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.fake_provider import WAIT, FakeProvider
from tests.messages_api import SONNET, make_settings, start_server
from tests.server_process import Server

from cllm.providers.local.models import CachePaths

pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")

MULTI_TURN_BEDROCK = """
curl -X POST http://localhost:3000/v1/messages \\
  -H "Authorization: Bearer <key>" \\
  -d '{
    "model": "claude-3-7-sonnet-20250219",
    "messages": [
      {"role": "user", "content": "My name is Alice"},
      {"role": "assistant", "content": "Hello Alice!"},
      {"role": "user", "content": "What is my name?"}
    ]
  }'
"""
MULTI_TURN_ANTHROPIC = """
curl -X POST http://localhost:3000/v1/messages \\
  -H "Authorization: Bearer <key>" \\
  -H "x-anthropic-api-key: sk-ant-..." \\
  -H "X-Provider: anthropic" \\
  -d '{
    "model": "claude-3-7-sonnet-20250219",
    "messages": [
      {"role": "user", "content": "My name is Alice"},
      {"role": "assistant", "content": "Hello Alice!"},
      {"role": "user", "content": "What is my name?"}
    ]
  }'
"""
SYSTEM_BEDROCK = """
curl -X POST http://localhost:3000/v1/messages \\
  -H "Authorization: Bearer <key>" \\
  -d '{
    "model": "claude-3-7-sonnet-20250219",
    "system": "You are a pirate. Always respond like a pirate.",
    "messages": [
      {"role": "user", "content": "Hello!"}
    ]
  }'
"""
SYSTEM_ANTHROPIC = """
curl -X POST http://localhost:3000/v1/messages \\
  -H "Authorization: Bearer <key>" \\
  -H "x-anthropic-api-key: sk-ant-..." \\
  -H "X-Provider: anthropic" \\
  -d '{
    "model": "claude-3-7-sonnet-20250219",
    "system": "You are a pirate. Always respond like a pirate.",
    "messages": [
      {"role": "user", "content": "Hello!"}
    ]
  }'
"""
PIRATE = "You are a pirate. Always respond like a pirate."
SAID = [
    ("user", "My name is Alice"),
    ("assistant", "Hello Alice!"),
    ("user", "What is my name?"),
]
CONVERSE = "/model/us.anthropic.claude-3-7-sonnet-20250219-v1%3A0/converse"


def run(command: str, server: Server) -> dict[str, Any]:
    """What a printed command answers, with the server's port in it."""
    printed = command.replace("localhost:3000", f"localhost:{server.port}")
    done = subprocess.run(
        ["bash", "-c", printed], capture_output=True, check=False, timeout=WAIT, cwd="/"
    )
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    assert answer["type"] == "message", answer
    return answer


def text(answer: dict[str, Any]) -> str:
    return "".join(block["text"] for block in answer["content"])


@pytest.fixture(scope="module")
def server(upstream: FakeProvider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Without a key of its own for Anthropic."""
    values = make_settings(upstream)
    del values["providers"]["anthropic"]["api_key"]
    folder = tmp_path_factory.mktemp("seed")
    with start_server(folder, values, environment={"DEFAULT_PROVIDER": "bedrock"}) as running:
        yield running


def test_the_whole_history_goes_to_bedrock(server: Server, upstream: FakeProvider):
    upstream.queue_reply("Your name is Alice.")
    answer = run(MULTI_TURN_BEDROCK, server)

    request = upstream.requests[-1]
    assert request.path == CONVERSE
    assert [(m["role"], m["content"][0]["text"]) for m in request.messages] == SAID
    assert "system" not in request.json
    assert text(answer) == "Your name is Alice."


def test_the_whole_history_goes_to_anthropic_with_the_callers_key(
    server: Server, upstream: FakeProvider
):
    upstream.queue_reply("Your name is Alice.")
    answer = run(MULTI_TURN_ANTHROPIC, server)

    request = upstream.requests[-1]
    assert request.path == "/v1/messages"
    assert request.headers["x-api-key"] == "sk-ant-..."
    assert "authorization" not in request.headers
    assert request.message_pairs == SAID
    assert request.json["max_tokens"] == 1024
    assert text(answer) == "Your name is Alice."


def test_the_system_prompt_goes_to_bedrock(server: Server, upstream: FakeProvider):
    run(SYSTEM_BEDROCK, server)

    assert upstream.requests[-1].path == CONVERSE
    assert upstream.requests[-1].json["system"] == [{"text": PIRATE}]


def test_the_system_prompt_goes_to_anthropic(server: Server, upstream: FakeProvider):
    run(SYSTEM_ANTHROPIC, server)

    assert upstream.requests[-1].json["system"] == PIRATE
    assert upstream.requests[-1].message_pairs == [("user", "Hello!")]


@pytest.mark.parametrize("command", [SYSTEM_BEDROCK, SYSTEM_ANTHROPIC])
def test_the_system_prompt_goes_on_as_blocks_too(
    server: Server, upstream: FakeProvider, command: str
):
    blocks = f'[{{"type": "text", "text": "{PIRATE}", "cache_control": {{"type": "ephemeral"}}}}]'
    run(command.replace(f'"{PIRATE}"', blocks), server)

    sent = upstream.requests[-1].json["system"]
    assert sent[0]["text"] == PIRATE
    marked = sent[0] if "ANTHROPIC" in command or "x-anthropic" in command else sent[1]
    assert "cache_control" in marked or "cachePoint" in marked


@pytest.fixture(scope="module")
def local(
    local_model: Path, model_cache: CachePaths, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """A server that has the local model in Claude's place."""
    assert local_model.is_file()
    values = {
        "model": "local/smollm2-135m",
        "providers": {"local": {"threads": 1, "names": {SONNET: "smollm2-135m"}}},
    }
    environment = {"DEFAULT_PROVIDER": "local", "XDG_CACHE_HOME": str(model_cache.root.parent)}
    with start_server(tmp_path_factory.mktemp("local"), values, environment=environment) as running:
        yield running


@pytest.fixture(scope="module")
def before(local: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server for which that one is Anthropic."""
    values = {"providers": {"anthropic": {"api_base": local.address}}}
    with start_server(tmp_path_factory.mktemp("before"), values) as running:
        yield running


@pytest.mark.parametrize("command", [MULTI_TURN_BEDROCK, SYSTEM_BEDROCK])
def test_the_local_model_answers_in_claudes_place(local: Server, command: str):
    answer = run(command, local)

    assert text(answer).strip()
    assert answer["model"] == "smollm2-135m"


def test_the_local_model_reads_the_whole_history_and_the_system_prompt(local: Server):
    earlier = MULTI_TURN_BEDROCK.split('"messages": [')[1].split('{"role": "user", "content": "W')
    whole = run(MULTI_TURN_BEDROCK, local)["usage"]
    last = run(MULTI_TURN_BEDROCK.replace(earlier[0], ""), local)["usage"]
    pirate = run(SYSTEM_BEDROCK, local)["usage"]
    longer = run(SYSTEM_BEDROCK.replace(PIRATE, f"{PIRATE} {PIRATE} {PIRATE}"), local)["usage"]

    assert read(whole) > read(last) + 10
    assert read(longer) > read(pirate) + 10


@pytest.mark.parametrize("command", [MULTI_TURN_ANTHROPIC, SYSTEM_ANTHROPIC])
def test_the_local_model_is_asked_as_anthropic_with_the_callers_key(before: Server, command: str):
    assert text(run(command, before)).strip()


def read(usage: dict[str, int]) -> int:
    return usage["input_tokens"] + usage["cache_read_input_tokens"]

"""A `cllm serve` with four providers, and requests to its Messages API."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from tests.fake_provider import FakeProvider, Request
from tests.request_validation import (
    validate_anthropic_request,
    validate_bedrock_request,
    validate_compatible_request,
)
from tests.server_process import Client, Response, Server

from cllm.core.message import Dialect, Message
from cllm.history.rules import find_problems, profile_for
from cllm.wire.convert import build_outgoing_message

MESSAGES = "/v1/messages"
COUNT = f"{MESSAGES}/count_tokens"
SONNET = "claude-3-7-sonnet-20250219"
MODELS = {
    "anthropic": f"anthropic/{SONNET}",
    "bedrock": f"bedrock/{SONNET}",
    "openai": "openai/gpt-test",
}
OPERATORS_KEY = "sk-ant-operator-0123456789"
BEDROCK_KEY = "bedrock-key-0123456789"


def make_settings(upstream: FakeProvider, **server: Any) -> dict[str, Any]:
    """Return settings with Anthropic, Bedrock and OpenAI at one fake provider."""
    return {
        "model": MODELS["anthropic"],
        "num_retries": 0,
        "providers": {
            "anthropic": {"api_base": upstream.root, "api_key": OPERATORS_KEY},
            "bedrock": {"endpoint_url": upstream.root, "api_key": BEDROCK_KEY},
            "openai": {"api_base": upstream.url, "api_key": "sk-openai-0123456789"},
            "local": {"threads": 1},
        },
        "server": server,
    }


def start_server(
    folder: Path,
    values: dict[str, Any],
    *arguments: str,
    environment: Mapping[str, str] | None = None,
    store: str = "memory:",
) -> Server:
    """Start a server with these settings and a separate home directory."""
    home = folder / "home"
    (home / ".cllm").mkdir(parents=True, exist_ok=True)
    (home / ".cllm/Cllmfile.yml").write_text(yaml.safe_dump(values), encoding="utf-8")
    defaults = {"HOME": str(home), "LANG": "C.UTF-8", "PATH": "/usr/bin:/bin"}
    return Server(
        environment={**defaults, **(environment or {})},
        directory=home,
        store=store,
        arguments=arguments,
    )


def post_message(
    server: Client,
    *messages: tuple[str, Any],
    headers: Mapping[str, str] | None = None,
    path: str = MESSAGES,
    **fields: Any,
) -> Response:
    """Send a request to the Messages API, by default for Anthropic's model."""
    encoded = [{"role": role, "content": content} for role, content in messages]
    body = {"model": SONNET, "max_tokens": 100, "messages": encoded, **fields}
    return server("POST", path, {k: v for k, v in body.items() if v is not None}, headers)


def read_text(answer: Response) -> str:
    """Return the text of a complete message."""
    return "".join(block.get("text", "") for block in answer.json["content"])


def event_names(answer: Response) -> list[str]:
    """Return the names of a stream's events."""
    lines = answer.body.decode().splitlines()
    return [line.removeprefix("event: ") for line in lines if line.startswith("event: ")]


def list_notice_codes(answer: Response) -> list[str]:
    return [notice["code"] for notice in answer.notices]


def validate_provider_request(request: Request) -> None:
    """Check a provider's request with the provider's types and with the history rules."""
    dialect: Dialect
    if request.path == "/v1/messages":
        validate_anthropic_request(request.body, sampling=True)
        dialect, model = "anthropic", SONNET
    elif request.path.startswith("/model/"):
        model = request.path.split("/")[2].replace("%3A", ":")
        validate_bedrock_request(request.body, model=model)
        dialect = "bedrock"
    else:
        validate_compatible_request(request.body)
        dialect, model = "openai", "gpt-test"
    messages = [
        Message(role=message["role"], raw=json.dumps(message).encode(), dialect=dialect)
        for message in request.messages
        if message["role"] != "system"
    ]
    spoken = [
        build_outgoing_message(message, dialect, prompt_index=n)
        for n, message in enumerate(messages)
    ]
    assert find_problems(spoken, profile_for(dialect, model)) == ()

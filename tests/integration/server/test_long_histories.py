"""Requests of an agent, each with the whole history."""

from pathlib import Path
from typing import Any

import pytest
from tests.fake_provider import FakeProvider
from tests.server_app import open_server_app

ROUNDS = 6
LONG = "Sunny, 21 degrees. " * 300
MODELS = {"openai": "openai/gpt-4o", "anthropic": "anthropic/claude-sonnet-4-5"}
TOOLS: dict[str, list[dict[str, Any]]] = {
    "openai": [{"type": "function", "function": {"name": "weather", "parameters": {}}}],
    "anthropic": [{"name": "weather", "input_schema": {"type": "object"}}],
}
PATHS = {"openai": "/v1/chat/completions", "anthropic": "/v1/messages"}


def make_round(client: str, number: int) -> list[dict[str, Any]]:
    """Return a tool call and its result in the client's protocol."""
    call_id = f"call_{number}"
    if client == "openai":
        function = {"name": "weather", "arguments": "{}"}
        call = {"id": call_id, "type": "function", "function": function}
        return [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": call_id, "content": f"{number}: {LONG}"},
        ]
    use = {"type": "tool_use", "id": call_id, "name": "weather", "input": {}}
    result = {"type": "tool_result", "tool_use_id": call_id, "content": f"{number}: {LONG}"}
    return [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]


@pytest.mark.parametrize("client", ["openai", "anthropic"])
async def test_every_request_arrives_with_its_whole_history(client: str, tmp_path: Path):
    target = "anthropic" if client == "openai" else "openai"
    messages: list[dict[str, Any]] = [{"role": "user", "content": f"Hello from {client}."}]
    body = {"model": MODELS[target], "max_tokens": 100, "tools": TOOLS[client]}
    with FakeProvider() as provider:
        settings = f"providers: {{{target}: {{api_base: '{provider.url}', api_key: x}}}}"
        async with open_server_app(tmp_path, settings) as server:
            for number in range(ROUNDS):
                messages += make_round(client, number)
                response = await server("POST", PATHS[client], json=body | {"messages": messages})
                assert response.status_code == 200, response.text

        sent = [request.body.decode() for request in provider.requests]

    assert len(sent) == ROUNDS
    for rounds, body_sent in enumerate(sent, start=1):
        assert all(f"{number}: {LONG}" in body_sent for number in range(rounds))

"""An agent's requests through the server: each message is translated once, and all arrive."""

from pathlib import Path
from typing import Any

import pytest
from tests.fake_provider import FakeProvider
from tests.served import served

from cllm.wire.anthropic import request as anthropic_request
from cllm.wire.openai import request as openai_request

ROUNDS = 6
LONG = "Sunny, 21 degrees. " * 300
MODELS = {"openai": "openai/gpt-4o", "anthropic": "anthropic/claude-sonnet-4-5"}
TOOLS: dict[str, list[dict[str, Any]]] = {
    "openai": [{"type": "function", "function": {"name": "weather", "parameters": {}}}],
    "anthropic": [{"name": "weather", "input_schema": {"type": "object"}}],
}
PATHS = {"openai": "/v1/chat/completions", "anthropic": "/v1/messages"}
TARGETS = {"openai": anthropic_request, "anthropic": openai_request}


def asked(client: str, number: int) -> list[dict[str, Any]]:
    """A call and its result, in the words of a client."""
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


@pytest.fixture
def looked_at(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many messages were looked at for each request."""
    counts: list[int] = []
    for codec in TARGETS.values():
        monkeypatch.setattr(codec, "say_history", counting(codec.say_history, counts))
    return counts


def counting(say: Any, counts: list[int]) -> Any:
    def counted(messages: Any, **how: Any) -> Any:
        counts.append(len(messages))
        return say(messages, **how)

    return counted


@pytest.mark.parametrize("client", ["openai", "anthropic"])
async def test_what_was_sent_before_is_not_translated_again_and_arrives(
    client: str, tmp_path: Path, looked_at: list[int]
):
    target = "anthropic" if client == "openai" else "openai"
    messages: list[dict[str, Any]] = [{"role": "user", "content": f"Hello from {client}."}]
    body = {"model": MODELS[target], "max_tokens": 100, "tools": TOOLS[client]}
    with FakeProvider() as provider:
        settings = f"providers: {{{target}: {{api_base: '{provider.url}', api_key: x}}}}"
        async with served(tmp_path, settings) as server:
            for number in range(ROUNDS):
                messages += asked(client, number)
                answer = await server("POST", PATHS[client], json=body | {"messages": messages})
                assert answer.status_code == 200, answer.text

        sent = provider.requests[-1].body.decode()

    assert looked_at == [3] + [2] * (ROUNDS - 1)
    assert all(f"{number}: {LONG}" in sent for number in range(ROUNDS))

"""The table of paths and protocols of the fake provider."""

import json
import re

from tests.fake_provider.anthropic import AnthropicMessages
from tests.fake_provider.bedrock import BedrockConverse
from tests.fake_provider.model import Reply, Request, Step, WireProtocol
from tests.fake_provider.openai import OpenAIChat
from tests.fake_provider.steps import response_steps


class CountTokens:
    """A token-counting endpoint; returns the number of characters of the request."""

    def __init__(self, protocol: WireProtocol, name: str) -> None:
        self._protocol = protocol
        self._name = name

    def echo(self, request: Request) -> Reply:
        return Reply(usage=(len(request.body), 0))

    def steps(self, reply: Reply, request: Request, number: int) -> tuple[Step, ...]:  # noqa: ARG002
        sent, _ = reply.usage or (0, 0)
        return response_steps(200, json.dumps({self._name: sent, "novel": True}).encode())

    def error(self, status: int, message: str, code: str | None) -> bytes:
        return self._protocol.error(status, message, code)

    def error_headers(self, status: int, code: str | None) -> dict[str, str]:
        return self._protocol.error_headers(status, code)


PROTOCOLS: dict[str, WireProtocol] = {
    "/v1/chat/completions": OpenAIChat(),
    "/v1/messages": AnthropicMessages(),
    "/model/{id}/converse": BedrockConverse(),
    "/model/{id}/converse-stream": BedrockConverse(),
    "/v1/messages/count_tokens": CountTokens(AnthropicMessages(), "input_tokens"),
    "/model/{id}/count-tokens": CountTokens(BedrockConverse(), "inputTokens"),
}


def find_protocol(path: str) -> WireProtocol | None:
    """Return the protocol of a path. A model ID in it is escaped, between two slashes."""
    path, _, _ = path.partition("?")
    return PROTOCOLS.get(re.sub(r"^/model/[^/]+/", "/model/{id}/", path))

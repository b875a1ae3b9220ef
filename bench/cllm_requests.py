"""cllm's path from a client's request body to a provider's, for `wire.py`.

Decodes the client's body as the server does and calls the provider in an event loop, with a
transport that responds from memory. The stopwatch starts inside the event loop.
"""

import asyncio
from collections.abc import Callable, Mapping

from cllm.core.prompt import Prompt
from cllm.providers.anthropic import AnthropicProvider
from cllm.providers.bedrock import AwsAccount, BedrockProvider
from cllm.providers.http.provider import HttpProvider
from cllm.providers.http.transport import HttpResponse, HttpTransport, Timeouts
from cllm.providers.openai import OpenAIProvider
from cllm.wire.anthropic import request as anthropic_request
from cllm.wire.openai import request as openai_request
from stopwatch import Stopwatch
from traffic import PROTOCOLS, Client, Protocol, response_body

DECODERS: dict[Client, Callable[[bytes], Prompt]] = {
    "openai": openai_request.decode_request,
    "anthropic": anthropic_request.decode_request,
}


class MemoryResponse(HttpResponse):
    """A response whose body is in memory."""

    status = 200

    def __init__(self, body: bytes, *, provider: str, timeouts: Timeouts) -> None:
        super().__init__(provider=provider, timeouts=timeouts)
        self.headers = {"Content-Type": "application/json"}
        self._body = body

    async def _read_chunk(self, limit: float) -> bytes:
        del limit
        body, self._body = self._body, b""
        return body

    async def close(self) -> None:
        """Nothing to close."""


class MemoryTransport(HttpTransport):
    """A transport without a network: stops the stopwatch and responds immediately."""

    def __init__(self, protocol: Protocol, watch: Stopwatch) -> None:
        self._response = response_body(protocol)
        self._watch = watch

    async def post(
        self,
        url: str,
        *,
        headers: Mapping[str, str],
        body: bytes,
        provider: str,
        timeouts: Timeouts,
    ) -> HttpResponse:
        del url, headers
        self._watch.stop(body)
        return MemoryResponse(self._response, provider=provider, timeouts=timeouts)

    async def close(self) -> None:
        """Nothing to close."""


def make_providers(watch: Stopwatch) -> dict[Protocol, HttpProvider]:
    """Return a provider for each protocol, without a network."""
    http = {protocol: MemoryTransport(protocol, watch) for protocol in PROTOCOLS}
    url, key = "http://127.0.0.1:9", "unused"
    account = AwsAccount(endpoint_url=url, bearer=key)
    return {
        "openai": OpenAIProvider(name="openai", base_url=url, api_key=key, http=http["openai"]),
        "anthropic": AnthropicProvider(
            name="anthropic", base_url=url, api_key=key, http=http["anthropic"]
        ),
        "bedrock": BedrockProvider(name="bedrock", account=account, http=http["bedrock"]),
    }


class CllmClient:
    """Sends requests through cllm, with one provider object per protocol."""

    def __init__(self, watch: Stopwatch, runner: asyncio.Runner) -> None:
        self.providers = make_providers(watch)
        self._watch = watch
        self._runner = runner

    def send(self, body: bytes, client: Client, provider: Protocol) -> None:
        """Send a client's request to a provider and read the response."""
        self._runner.run(self._send(body, client, self.providers[provider]))

    async def _send(self, body: bytes, client: Client, provider: HttpProvider) -> None:
        self._watch.restart()
        async for _ in provider.ask(DECODERS[client](body)):
            pass

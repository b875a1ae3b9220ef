"""Our whole way from a client's body to a provider's, for `wire.py`.

The decoding of the client's body as at our own door and the provider's `ask`, in an event loop, to
where the network would be, which answers from memory. The clock begins in the loop.
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
from sending import Stopwatch
from traffic import PROTOCOLS, Client, Protocol, whole_answer

DECODERS: dict[Client, Callable[[bytes], Prompt]] = {
    "openai": openai_request.decode_request,
    "anthropic": anthropic_request.decode_request,
}


class MemoryResponse(HttpResponse):
    """An answer that was there before it was asked for."""

    status = 200

    def __init__(self, body: bytes, *, provider: str, timeouts: Timeouts) -> None:
        super().__init__(provider=provider, timeouts=timeouts)
        self.headers = {"Content-Type": "application/json"}
        self._body = body

    async def _next(self, limit: float) -> bytes:
        del limit
        body, self._body = self._body, b""
        return body

    async def close(self) -> None:
        """There is nothing to close."""


class MemoryHttp(HttpTransport):
    """Stands where the network would be: says when a request was sent, and answers at once."""

    def __init__(self, protocol: Protocol, watch: Stopwatch) -> None:
        self._answer = whole_answer(protocol)
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
        self._watch.sent(body)
        return MemoryResponse(self._answer, provider=provider, timeouts=timeouts)

    async def close(self) -> None:
        """There is nothing to close."""


def providers(watch: Stopwatch) -> dict[Protocol, HttpProvider]:
    """One of each, without a network."""
    http = {protocol: MemoryHttp(protocol, watch) for protocol in PROTOCOLS}
    url, key = "http://127.0.0.1:9", "unused"
    account = AwsAccount(endpoint_url=url, bearer=key)
    return {
        "openai": OpenAIProvider(name="openai", base_url=url, api_key=key, http=http["openai"]),
        "anthropic": AnthropicProvider(
            name="anthropic", base_url=url, api_key=key, http=http["anthropic"]
        ),
        "bedrock": BedrockProvider(name="bedrock", account=account, http=http["bedrock"]),
    }


class Ours:
    """Asks through cllm, with a provider that is kept for each protocol."""

    def __init__(self, watch: Stopwatch, runner: asyncio.Runner) -> None:
        self.providers = providers(watch)
        self._watch = watch
        self._runner = runner

    def ask(self, body: bytes, client: Client, provider: Protocol) -> None:
        """Send the request of a client to a provider, and wait for the answer."""
        self._runner.run(self._ask(body, client, self.providers[provider]))

    async def _ask(self, body: bytes, client: Client, provider: HttpProvider) -> None:
        self._watch.begin()
        async for _ in provider.ask(DECODERS[client](body)):
            pass

"""LiteLLM's path from a client's request body to a provider's, for `wire.py`.

Calls LiteLLM's public functions unchanged: `litellm.completion` for an OpenAI client's body and
`litellm.anthropic_messages` for an Anthropic client's, each with the client library or HTTP client
that LiteLLM uses for the provider and a transport that responds from memory. The stopwatch starts
before `json.loads` of the client's body and stops when the transport gets the request. LiteLLM's
processing of the response (reading, logging, prices) is not measured.

Two settings make the comparison fair. An Anthropic client's request for OpenAI goes to Chat
Completions (`use_chat_completions_url_for_anthropic_messages`), as it does in cllm. Bedrock gets a
bearer key, as in cllm, so that neither signs requests. LiteLLM's own choices stay: it sends an
Anthropic client's request for Claude on Bedrock to InvokeModel in Anthropic's format; cllm
translates it to Converse.
"""

import asyncio
import json
import logging
import os
import time
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from typing import Any

# Read at import: makes LiteLLM load its prices from its own file instead of the network.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import httpx
import httpx2
import litellm
import openai
from litellm.llms.custom_httpx.http_handler import AsyncHTTPHandler, HTTPHandler

from litellm_streams import MODEL_IDS
from stopwatch import Stopwatch
from traffic import Client, Fields, Protocol, response_body

URL = "http://127.0.0.1:9/v1"
KEY = "unused"
# LiteLLM logs in threads and tasks after a call; wait, so that the next call does not include it.
LOGGING_SECONDS = 0.02

litellm.use_chat_completions_url_for_anthropic_messages = True
logging.getLogger("LiteLLM").setLevel(logging.ERROR)


class LitellmClient:
    """Sends requests through LiteLLM, with one client per protocol, as LiteLLM keeps its own."""

    def __init__(self, watch: Stopwatch, runner: asyncio.Runner) -> None:
        if find_spec("mcp") is None:
            raise SystemExit("LiteLLM needs another package for tools: pip install 'litellm[mcp]'.")
        self._watch = watch
        self._runner = runner
        self._http = cache(self._make_http)

    def send(self, body: bytes, client: Client, provider: Protocol) -> None:
        """Send a client's request to a provider; wait for the response and LiteLLM's logging."""
        if client == "openai":
            litellm.completion(**self._arguments(body, client, provider))
            time.sleep(LOGGING_SECONDS)
        else:
            self._runner.run(self._send_for_anthropic(body, provider))

    async def _send_for_anthropic(self, body: bytes, provider: Protocol) -> None:
        # Excludes the start of the event loop, as for cllm.
        self._watch.restart()
        await litellm.anthropic_messages(**self._arguments(body, "anthropic", provider))
        await asyncio.sleep(LOGGING_SECONDS)

    def _arguments(self, body: bytes, client: Client, provider: Protocol) -> Fields:
        """Return the arguments of LiteLLM's functions."""
        fields = json.loads(body)
        fields["model"] = f"{provider}/{MODEL_IDS[provider]}"
        arguments = {**fields, "api_key": KEY, "client": self._http(client, provider)}
        if provider == "openai":
            arguments["api_base"] = URL
        if provider == "bedrock":
            arguments["aws_region_name"] = "us-east-1"
        return arguments

    def _make_http(self, client: Client, provider: Protocol) -> Any:
        if provider == "openai":
            return _openai_client(
                client, httpx2.MockTransport(self._respond(httpx2.Response, "openai"))
            )
        protocol: Protocol = "anthropic" if client == "anthropic" else provider
        transport = httpx.MockTransport(self._respond(httpx.Response, protocol))
        if client == "openai":
            return HTTPHandler(client=httpx.Client(transport=transport))
        handler = AsyncHTTPHandler()
        handler.client = httpx.AsyncClient(transport=transport)
        return handler

    def _respond(self, response: Callable[..., Any], protocol: Protocol) -> Callable[[Any], Any]:
        content, headers = response_body(protocol), {"Content-Type": "application/json"}

        def respond(request: Any) -> Any:
            self._watch.stop(request.content)
            return response(200, content=content, headers=headers)

        return respond


def _openai_client(client: Client, transport: httpx2.MockTransport) -> Any:
    if client == "openai":
        http = httpx2.Client(transport=transport)
        return openai.OpenAI(api_key=KEY, base_url=URL, http_client=http)
    async_http = httpx2.AsyncClient(transport=transport)
    return openai.AsyncOpenAI(api_key=KEY, base_url=URL, http_client=async_http)

"""LiteLLM's whole way from a client's body to a provider's, for `wire.py`.

What its users call, with nothing taken out: `litellm.completion` for an OpenAI client's body and
`litellm.anthropic_messages` for an Anthropic client's, each with the provider's client library or
HTTP client that it brings, whose transport answers from memory. The clock begins before the
`json.loads` of the client's body and stops when the transport is handed the request; what LiteLLM
does with the answer (reading it, logging, prices) comes after that and is not counted.

Two choices are made for it. An Anthropic client's request for OpenAI goes to Chat Completions
(`use_chat_completions_url_for_anthropic_messages`), where ours goes as well. For Bedrock it has a
bearer key, as ours has, so that neither signs. What it chooses by itself stays: an Anthropic
client's request for Claude on Bedrock goes to InvokeModel there, in Anthropic's own words, while
ours is translated to Converse.
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

# Read when the package is imported: its prices come from a file of its own then, not the network.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import httpx
import httpx2
import litellm
import openai
from litellm.llms.custom_httpx.http_handler import AsyncHTTPHandler, HTTPHandler

from litellm_peer import NAMES
from sending import Stopwatch
from traffic import Client, Fields, Protocol, whole_answer

URL = "http://127.0.0.1:9/v1"
KEY = "unused"
# Its logging goes on in threads and tasks after a call; the next one's cost is not to have it.
AFTERWARDS_SECONDS = 0.02

litellm.use_chat_completions_url_for_anthropic_messages = True
logging.getLogger("LiteLLM").setLevel(logging.ERROR)


class Peer:
    """Asks through LiteLLM, with a client that is kept for each protocol, as its own are."""

    def __init__(self, watch: Stopwatch, runner: asyncio.Runner) -> None:
        if find_spec("mcp") is None:
            raise SystemExit("LiteLLM wants another package for tools; pip install 'litellm[mcp]'.")
        self._watch = watch
        self._runner = runner
        self._http = cache(self._new_http)

    def ask(self, body: bytes, client: Client, provider: Protocol) -> None:
        """Send the request of a client to a provider, and wait for the answer and what follows."""
        if client == "openai":
            litellm.completion(**self._said(body, client, provider))
            time.sleep(AFTERWARDS_SECONDS)
        else:
            self._runner.run(self._ask_for_anthropic(body, provider))

    async def _ask_for_anthropic(self, body: bytes, provider: Protocol) -> None:
        # What it takes to start an event loop is not counted, nor is it for ours.
        self._watch.begin()
        await litellm.anthropic_messages(**self._said(body, "anthropic", provider))
        await asyncio.sleep(AFTERWARDS_SECONDS)

    def _said(self, body: bytes, client: Client, provider: Protocol) -> Fields:
        """What is asked for, as its functions take it."""
        fields = json.loads(body)
        fields["model"] = f"{provider}/{NAMES[provider]}"
        said = {**fields, "api_key": KEY, "client": self._http(client, provider)}
        if provider == "openai":
            said["api_base"] = URL
        if provider == "bedrock":
            said["aws_region_name"] = "us-east-1"
        return said

    def _new_http(self, client: Client, provider: Protocol) -> Any:
        if provider == "openai":
            return _openai_client(
                client, httpx2.MockTransport(self._answer(httpx2.Response, "openai"))
            )
        spoken: Protocol = "anthropic" if client == "anthropic" else provider
        transport = httpx.MockTransport(self._answer(httpx.Response, spoken))
        if client == "openai":
            return HTTPHandler(client=httpx.Client(transport=transport))
        handler = AsyncHTTPHandler()
        handler.client = httpx.AsyncClient(transport=transport)
        return handler

    def _answer(self, response: Callable[..., Any], spoken: Protocol) -> Callable[[Any], Any]:
        content, headers = whole_answer(spoken), {"Content-Type": "application/json"}

        def answer(request: Any) -> Any:
            self._watch.sent(request.content)
            return response(200, content=content, headers=headers)

        return answer


def _openai_client(client: Client, transport: httpx2.MockTransport) -> Any:
    if client == "openai":
        http = httpx2.Client(transport=transport)
        return openai.OpenAI(api_key=KEY, base_url=URL, http_client=http)
    later = httpx2.AsyncClient(transport=transport)
    return openai.AsyncOpenAI(api_key=KEY, base_url=URL, http_client=later)

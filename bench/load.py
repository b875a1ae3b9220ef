"""Sends concurrent requests to a gateway and measures its CPU time per request, for `server.py`.

Every response is read to its end and checked, so that a gateway that returns errors does not appear
fast.
"""

import asyncio
import json
import statistics
import time
from dataclasses import dataclass

import aiohttp

from gateways import Gateway
from measurement import Cost
from upstream import FIRST_WORD, PACED_SECONDS, request_words

CHAT = "/v1/chat/completions"
MESSAGES = "/v1/messages"
RESPONSES = "/v1/responses"
MODELS = {CHAT: "gpt-4o", MESSAGES: "claude-sonnet-4-5", RESPONSES: "gpt-4.1"}
HISTORY = (
    {"role": "user", "content": "My cat is called Luna."},
    {"role": "assistant", "content": "A fine name for a cat."},
)
QUESTION = "What is the capital of France? Answer in one sentence."


@dataclass(frozen=True, kw_only=True)
class Load:
    """A number of equal requests, sent by concurrent workers."""

    requests: int
    concurrency: int = 16
    path: str = CHAT
    stream: bool = False
    words: int | None = None
    """The number of words in a streamed reply; None for the short default reply."""
    seconds: int = PACED_SECONDS
    """The time in which the upstream writes the words one by one; 0 for all at once."""
    continues: bool = False
    """Whether the request has only a new message, for a conversation that the server has stored."""

    def body(self) -> bytes:
        question = QUESTION
        if self.words is not None:
            question = f"{QUESTION} {request_words(self.words, self.seconds)}"
        history = () if self.continues else HISTORY
        messages = [*history, {"role": "user", "content": question}]
        fields: dict[str, object] = {"model": MODELS[self.path]}
        if self.path == RESPONSES:
            fields |= {"input": messages, "max_output_tokens": 256, "store": False}
        else:
            fields |= {"messages": messages, "max_tokens": 256}
        if self.stream:
            fields["stream"] = True
        return json.dumps(fields).encode()


def measure_load(gateway: Gateway, load: Load, headers: list[dict[str, str]] | None = None) -> Cost:
    """Return the gateway's CPU time per request, and the median wall time of a request.

    `headers` has the headers of each worker. A worker sends its requests one after another.
    """
    return asyncio.run(_measure_load(gateway, load, headers))


async def _measure_load(gateway: Gateway, load: Load, headers: list[dict[str, str]] | None) -> Cost:
    body, count = load.body(), load.requests // load.concurrency
    workers = headers or [{} for _ in range(load.concurrency)]
    connector = aiohttp.TCPConnector(limit=load.concurrency)
    async with aiohttp.ClientSession(
        connector=connector, timeout=aiohttp.ClientTimeout(total=120)
    ) as session:

        async def work(extra: dict[str, str]) -> list[float]:
            return [await _send(session, gateway, load.path, body, extra) for _ in range(count)]

        before = gateway.cpu()
        results = await asyncio.gather(*map(work, workers))
        cpu = gateway.cpu() - before
    times = [seconds for worker in results for seconds in worker]
    return Cost(cpu=cpu / len(times), wall=statistics.median(times))


async def _send(
    session: aiohttp.ClientSession, gateway: Gateway, path: str, body: bytes, extra: dict[str, str]
) -> float:
    """Return the seconds until the first word of a stream, or until the complete response."""
    url = f"http://127.0.0.1:{gateway.port}{path}"
    head = {"Content-Type": "application/json", "Authorization": "Bearer unused"}
    start = time.perf_counter()
    first: float | None = None
    received = b""
    async with session.post(
        url, data=body, headers={**head, **gateway.headers, **extra}
    ) as response:
        async for chunk in response.content.iter_any():
            received += chunk
            if first is None and FIRST_WORD in received:
                first = time.perf_counter() - start
    if response.status != 200 or first is None:
        raise SystemExit(f"{gateway.name} returned {response.status}: {received[:500]!r}")
    return first

"""Requests to a gateway, many at a time, and what they cost it: for `server.py`.

The requests are bounded by their number; every answer is read to its end and looked at, so that a
gateway which refuses is not the quickest one.
"""

import asyncio
import json
import statistics
import time
from dataclasses import dataclass

import aiohttp

from gateways import Gateway
from measure import Cost
from upstream import wanted

CHAT = "/v1/chat/completions"
MESSAGES = "/v1/messages"
HISTORY = (
    {"role": "user", "content": "My cat is called Luna."},
    {"role": "assistant", "content": "A fine name for a cat."},
)
SAID = "What is the capital of France? Answer in one sentence."


@dataclass(frozen=True, kw_only=True)
class Load:
    """So many requests of one kind, so many of them at once."""

    requests: int
    at_once: int = 16
    path: str = CHAT
    stream: bool = False
    words: int | None = None
    """How many words a stream has; None for a few."""
    burst: bool = False
    """Whether they all come at once, and not as from a model."""
    continues: bool = False
    """Whether only something new is said, in a conversation that the server knows."""

    def body(self) -> bytes:
        model = "gpt-4o" if self.path == CHAT else "claude-sonnet-4-5"
        said = SAID
        if self.words is not None:
            said = f"{SAID} {wanted(self.words, at_once=self.burst)}"
        history = () if self.continues else HISTORY
        fields: dict[str, object] = {"model": model, "max_tokens": 256}
        fields["messages"] = [*history, {"role": "user", "content": said}]
        if self.stream:
            fields["stream"] = True
        return json.dumps(fields).encode()


def cost_of(gateway: Gateway, load: Load, headers: list[dict[str, str]] | None = None) -> Cost:
    """The processor time of the gateway for one request, and the time one takes.

    `headers` are those of each worker, which sends its requests one after another.
    """
    return asyncio.run(_cost_of(gateway, load, headers))


async def _cost_of(gateway: Gateway, load: Load, headers: list[dict[str, str]] | None) -> Cost:
    body, each = load.body(), load.requests // load.at_once
    workers = headers or [{} for _ in range(load.at_once)]
    connector = aiohttp.TCPConnector(limit=load.at_once)
    async with aiohttp.ClientSession(
        connector=connector, timeout=aiohttp.ClientTimeout(total=120)
    ) as session:

        async def work(own: dict[str, str]) -> list[float]:
            return [await _send(session, gateway, load.path, body, own) for _ in range(each)]

        before = gateway.cpu()
        found = await asyncio.gather(*map(work, workers))
        spent = gateway.cpu() - before
    times = [seconds for worker in found for seconds in worker]
    return Cost(cpu=spent / len(times), wall=statistics.median(times))


async def _send(
    session: aiohttp.ClientSession, gateway: Gateway, path: str, body: bytes, own: dict[str, str]
) -> float:
    """The seconds until the first word of a stream, or the whole of an answer."""
    url = f"http://127.0.0.1:{gateway.port}{path}"
    head = {"Content-Type": "application/json", "Authorization": "Bearer unused"}
    began = time.perf_counter()
    first: float | None = None
    said = b""
    async with session.post(url, data=body, headers={**head, **gateway.headers, **own}) as answer:
        async for piece in answer.content.iter_any():
            said += piece
            if first is None and b"Paris" in said:
                first = time.perf_counter() - began
    if answer.status != 200 or first is None:
        raise SystemExit(f"{gateway.name} answered {answer.status}: {said[:500]!r}")
    return first

"""What translating between protocols costs, beside JSON alone and beside LiteLLM's translation.

Translation: the body of a client, 200 messages long and full of tool calls, becomes the body for a
provider the way a request really does: decoded to a prompt, checked, mended and encoded by the
provider. Beside it `json.loads` and `json.dumps` of the same body, the bare functions of LiteLLM's
translation (`litellm_peer.py`), and a floor that no translation can go below: reading the body and
writing it again with the quickest JSON we know. The limit beside JSON is held here. How we compare
with the bare functions is shown and not judged: the floor alone is more than a twentieth of them.

Whole way: the same from what a program calls to where the network would be. Ours is the decoding of
the client's body and the provider's `ask`, in an event loop, with its headers; LiteLLM's is what
its users call (`litellm_whole.py`). Both end when the body is handed to a transport that answers
from memory. The limit beside LiteLLM is held here, where client and provider differ in protocol.

Streams: an event of a provider's becomes an event of the client's, from bytes to bytes, through
the provider's own reader. What opens and ends a stream is not counted, on either side.

`litellm_peer.py` and `litellm_whole.py` say what of LiteLLM is timed. Where a client and a provider
speak the same protocol there is nothing to translate, and no limit is held beside LiteLLM.
"""

# The reader and the encoder of a provider are its own; a request would bring the network along.
# ruff: noqa: SLF001

import argparse
import asyncio
import gc
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import islice, product

import msgspec

import litellm_peer
import litellm_whole
from cllm.core.prompt import Prompt
from cllm.core.reply import ReplyEvent
from cllm.providers.anthropic import AnthropicProvider
from cllm.providers.asking import HttpProvider, Request
from cllm.providers.bedrock import Account, BedrockProvider
from cllm.providers.http import Http, Response, Timeouts
from cllm.providers.openai import OpenAIProvider
from cllm.wire import anthropic_answer, anthropic_request, openai_answer, openai_request
from measure import Cost, Sample, Targets, counted, interleave
from sending import Stopwatch
from traffic import (
    CLIENTS,
    KINDS,
    MODELS,
    PROTOCOLS,
    Client,
    Kind,
    Protocol,
    request_body,
    stream,
    whole_answer,
)

JSON_LIMIT = 5
REQUEST_LIMIT = 1 / 20
DELTA_LIMIT = 5
STREAM_LIMIT = 1 / 50
# The events before these open the stream, and bring what is used for the first time.
OPENING_EVENTS = 10
OUR_EVENTS = 350
THEIR_EVENTS = 100
Pair = tuple[Client, Protocol]
Restream = Callable[[], Iterator[bytes]]

PAIRS: tuple[Pair, ...] = tuple(product(CLIENTS, PROTOCOLS))
DECODERS: dict[Client, Callable[[bytes], Prompt]] = {
    "openai": openai_request.decode_request,
    "anthropic": anthropic_request.decode_request,
}


class MemoryResponse(Response):
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


class MemoryHttp(Http):
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
    ) -> Response:
        del url, headers
        self._watch.sent(body)
        return MemoryResponse(self._answer, provider=provider, timeouts=timeouts)

    async def close(self) -> None:
        """There is nothing to close."""


def providers(watch: Stopwatch) -> dict[Protocol, HttpProvider]:
    """One of each, without a network."""
    http = {protocol: MemoryHttp(protocol, watch) for protocol in PROTOCOLS}
    url, key = "http://127.0.0.1:9", "unused"
    account = Account(endpoint_url=url, bearer=key)
    return {
        "openai": OpenAIProvider(name="openai", base_url=url, api_key=key, http=http["openai"]),
        "anthropic": AnthropicProvider(
            name="anthropic", base_url=url, api_key=key, http=http["anthropic"]
        ),
        "bedrock": BedrockProvider(name="bedrock", account=account, http=http["bedrock"]),
    }


async def ask(body: bytes, client: Client, provider: HttpProvider) -> None:
    async for _ in provider.ask(DECODERS[client](body)):
        pass


def translate(body: bytes, client: Client, provider: HttpProvider) -> bytes:
    return provider._encode(DECODERS[client](body)).body


def through_json(body: bytes) -> bytes:
    return json.dumps(json.loads(body)).encode()


def through_msgspec(body: bytes) -> bytes:
    return msgspec.json.encode(msgspec.json.decode(body))


def encoder(client: Client) -> Callable[[ReplyEvent], bytes]:
    """What writes the stream of one answer for a client."""
    if client == "openai":
        return openai_answer.StreamEncoder(
            model=MODELS["openai"], id="chatcmpl-1", created=0, include_usage=True
        ).encode
    return anthropic_answer.StreamEncoder(message_id="msg_1", model=MODELS["anthropic"]).encode


def restream(pieces: list[bytes], client: Client, provider: HttpProvider) -> Iterator[bytes]:
    encode = encoder(client)
    reader = provider._stream_reader(Request(url="", body=b""))
    for piece in pieces:
        for event in reader.feed(piece):
            yield encode(event)


def cost_of_event(make: Restream, *, events: int) -> Cost:
    """The cost of one event in the middle of a stream."""
    sent = make()
    for _ in islice(sent, OPENING_EVENTS):
        pass
    wall, cpu = time.perf_counter(), time.process_time()
    count = sum(1 for _ in islice(sent, events))
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    assert count == events, f"only {count} events"
    return Cost(cpu=cpu / count, wall=wall / count)


def compared(pair: Pair) -> bool:
    return pair[0] != pair[1]


def name(tool: str, pair: Pair, kind: Kind | None = None) -> str:
    words = f"{tool}: {pair[0]} client, {pair[1]} provider"
    return words if kind is None else f"{words}, {kind}"


def measure_requests(ours: dict[Protocol, HttpProvider], rounds: int) -> dict[str, Sample]:
    runs: dict[str, Callable[[], Cost]] = {}
    for pair in PAIRS:
        client, protocol = pair
        body = request_body(client, MODELS[protocol])
        runs[name("json", pair)] = partial(counted, partial(through_json, body))
        runs[name("floor", pair)] = partial(counted, partial(through_msgspec, body))
        work = partial(translate, body, client, ours[protocol])
        runs[name("cllm", pair)] = partial(counted, work)
        if compared(pair):
            theirs = partial(litellm_peer.translate, body, client, protocol)
            runs[name("litellm", pair)] = partial(counted, theirs)
    return interleave(runs, rounds=rounds)


def measure_whole_ways(
    ours: dict[Protocol, HttpProvider], watch: Stopwatch, rounds: int
) -> dict[str, Sample]:
    runs: dict[str, Callable[[], Cost]] = {}
    with asyncio.Runner() as runner:
        peer = litellm_whole.Peer(watch, runner)

        def run_ours(body: bytes, client: Client, provider: HttpProvider) -> None:
            runner.run(ask(body, client, provider))

        for pair in PAIRS:
            client, protocol = pair
            body = request_body(client, MODELS[protocol], stream=False)
            work = partial(run_ours, body, client, ours[protocol])
            theirs = partial(peer.ask, body, client, protocol)
            runs[name("cllm", pair)] = partial(watch.time, work)
            runs[name("litellm", pair)] = partial(watch.time, theirs)
        return interleave(runs, rounds=rounds)


def measure_streams(ours: dict[Protocol, HttpProvider], rounds: int) -> dict[str, Sample]:
    runs: dict[str, Callable[[], Cost]] = {}
    for pair, kind in product(PAIRS, KINDS):
        client, protocol = pair
        pieces = stream(protocol, kind)
        make = partial(restream, pieces, client, ours[protocol])
        runs[name("cllm", pair, kind)] = partial(cost_of_event, make, events=OUR_EVENTS)
        if compared(pair):
            theirs = partial(litellm_peer.restream, pieces, client, protocol)
            runs[name("litellm", pair, kind)] = partial(cost_of_event, theirs, events=THEIR_EVENTS)
    return interleave(runs, rounds=rounds)


def print_requests(samples: dict[str, Sample]) -> None:
    print_milliseconds("translating 200 messages", ("json", "floor", "cllm", "litellm"), samples)


def print_whole_ways(samples: dict[str, Sample]) -> None:
    print_milliseconds("the whole way of 200 messages", ("cllm", "litellm"), samples)


def print_milliseconds(title: str, tools: tuple[str, ...], samples: dict[str, Sample]) -> None:
    """A row for each pair; at its end what ours is of LiteLLM's."""
    heads = "".join(f"{tool + ' ms':>12}" for tool in tools)
    print(f"{title:40}{heads}{'ratio':>12}")
    for pair in PAIRS:
        seen = [samples[name(tool, pair)] for tool in tools if name(tool, pair) in samples]
        costs = "".join(f"{sample.cpu * 1000:12.2f}" for sample in seen)
        ratio = f"{seen[-2].cpu / seen[-1].cpu:12.3f}" if len(seen) == len(tools) else ""
        print(f"{f'{pair[0]} client to {pair[1]}':40}{costs}{ratio}")


def print_streams(samples: dict[str, Sample]) -> None:
    """The medians, which the limits are held to, and our quickest round."""
    print(f"{'a delta of a stream':40}{'quickest µs':>12}{'cllm µs':>12}{'litellm µs':>12}")
    for pair, kind in product(PAIRS, KINDS):
        ours = samples[name("cllm", pair, kind)]
        quickest = min(cost.cpu for cost in ours.costs)
        theirs = samples.get(name("litellm", pair, kind))
        beside = "" if theirs is None else f"{theirs.cpu * 1e6:12.1f}"
        what = f"{pair[1]} to {pair[0]} client, {kind}"
        print(f"{what:40}{quickest * 1e6:12.2f}{ours.cpu * 1e6:12.2f}{beside}")


def judge_requests(samples: dict[str, Sample], targets: Targets) -> None:
    for pair in PAIRS:
        what = f"{pair[0]} client to {pair[1]}, request"
        ours = samples[name("cllm", pair)].cpu
        targets.at_most(f"{what} / json", ours / samples[name("json", pair)].cpu, JSON_LIMIT)


def judge_whole_ways(samples: dict[str, Sample], targets: Targets) -> None:
    for pair in filter(compared, PAIRS):
        what = f"{pair[0]} client to {pair[1]}, whole way / LiteLLM"
        ratio = samples[name("cllm", pair)].cpu / samples[name("litellm", pair)].cpu
        targets.at_most(what, ratio, REQUEST_LIMIT)


def judge_streams(samples: dict[str, Sample], targets: Targets) -> None:
    """A target is met if it is for the dearest kind of delta."""
    for pair in PAIRS:
        what = f"{pair[1]} to {pair[0]} client, delta"
        ours = {kind: samples[name("cllm", pair, kind)].cpu for kind in KINDS}
        targets.at_most(f"{what}, µs", max(ours.values()) * 1e6, DELTA_LIMIT)
        if compared(pair):
            ratio = max(ours[kind] / samples[name("litellm", pair, kind)].cpu for kind in KINDS)
            targets.at_most(f"{what} / LiteLLM", ratio, STREAM_LIMIT)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    watch = Stopwatch()
    ours = providers(watch)
    # What was imported is not looked through again: a large heap is not the translation's cost.
    gc.collect()
    gc.freeze()
    requests = measure_requests(ours, options.rounds)
    whole_ways = measure_whole_ways(ours, watch, options.rounds)
    streams = measure_streams(ours, options.rounds)
    print_requests(requests)
    print_whole_ways(whole_ways)
    print_streams(streams)
    targets = Targets()
    judge_requests(requests, targets)
    judge_whole_ways(whole_ways, targets)
    judge_streams(streams, targets)
    return targets.finish()


if __name__ == "__main__":
    sys.exit(main())

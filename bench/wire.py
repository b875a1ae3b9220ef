"""What translating between protocols costs, beside JSON alone and beside LiteLLM's translation.

Requests go the whole way, from what a program calls to where the network would be, which answers
from memory: ours is in `cllm_whole.py`, LiteLLM's, what its users call, in `litellm_whole.py`. A
client's conversation is 200 messages long and full of tool calls. It is sent in two ways.

Whole: all 200 messages at once. Beside it `json.loads` and `json.dumps` of the same body, and a
floor that no translation of all of it can go below: reading the body and writing it again with the
quickest JSON we know.

As an agent sends it: from the first question on, the whole conversation with every request, two or
three messages longer each time, each request timed. This is what a gateway sees. What is shown is
the mean of a conversation's requests; LiteLLM is sent exactly the same ones. Nothing is cached
between requests (docs/decisions/0019-no-cache-of-client-requests.md). Limits apply to both ways.

Streams: an event of a provider's becomes an event of the client's, from bytes to bytes, through
the provider's own reader. What opens and ends a stream is not counted, on either side.

Where a client and a provider speak the same protocol there is nothing to translate, and no limit is
held beside LiteLLM. `litellm_peer.py` says what of LiteLLM's streams is timed.
"""

# The reader and the encoder of a provider are its own; a request would bring the network along.
# ruff: noqa: SLF001

import argparse
import asyncio
import gc
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import count, islice, product

import msgspec

import litellm_peer
import litellm_whole
from cllm.core.reply import ReplyEvent
from cllm.providers.http.provider import HttpProvider, ProviderRequest
from cllm.wire.anthropic import response_encoder as anthropic_encoder
from cllm.wire.openai import response_encoder as openai_encoder
from cllm_whole import Ours
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
    requests_of_agent,
    stream,
)

JSON_LIMIT = 5
REQUEST_LIMIT = 0.6
# botocore parses Bedrock's frames, which costs more than the rest of an event.
DELTA_LIMITS: dict[Protocol, float] = {"openai": 5, "anthropic": 5, "bedrock": 15}
STREAM_LIMITS: dict[Protocol, float] = {"openai": 1 / 50, "anthropic": 1 / 50, "bedrock": 1 / 20}
# The events before these open the stream, and bring what is used for the first time.
OPENING_EVENTS = 10
OUR_EVENTS = 350
THEIR_EVENTS = 100
Pair = tuple[Client, Protocol]
Ask = Callable[[bytes, Client, Protocol], object]
Restream = Callable[[], Iterator[bytes]]

PAIRS: tuple[Pair, ...] = tuple(product(CLIENTS, PROTOCOLS))


def through_json(body: bytes, _client: Client, _provider: Protocol) -> bytes:
    return json.dumps(json.loads(body)).encode()


def through_msgspec(body: bytes, _client: Client, _provider: Protocol) -> bytes:
    return msgspec.json.encode(msgspec.json.decode(body))


def encoder(client: Client) -> Callable[[ReplyEvent], bytes]:
    """What writes the stream of one answer for a client."""
    if client == "openai":
        return openai_encoder.OpenAIStreamEncoder(
            model=MODELS["openai"], id="chatcmpl-1", created=0, include_usage=True
        ).encode
    return anthropic_encoder.AnthropicStreamEncoder(
        message_id="msg_1", model=MODELS["anthropic"]
    ).encode


def restream(pieces: list[bytes], client: Client, provider: HttpProvider) -> Iterator[bytes]:
    encode = encoder(client)
    reader = provider._stream_reader(ProviderRequest(url="", body=b""))
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


class Requests:
    """Sends conversations of one pair through one tool, another one with each run."""

    def __init__(
        self,
        ask: Ask,
        pair: Pair,
        time_of: Callable[[Callable[[], object]], Cost],
    ) -> None:
        self._ask = ask
        self._pair = pair
        self._time_of = time_of
        self._conversations = count()

    def whole(self) -> Cost:
        """The cost of a whole conversation at once."""
        client, protocol = self._pair
        number = next(self._conversations)
        return self._cost(request_body(client, MODELS[protocol], stream=False, conversation=number))

    def as_agent(self) -> Cost:
        """The mean cost of the requests by which a conversation comes to be."""
        client, protocol = self._pair
        number = next(self._conversations)
        bodies = requests_of_agent(client, MODELS[protocol], stream=False, conversation=number)
        return mean(map(self._cost, bodies))

    def _cost(self, body: bytes) -> Cost:
        return self._time_of(partial(self._ask, body, *self._pair))


def mean(costs: Iterable[Cost]) -> Cost:
    seen = list(costs)
    return Cost(
        cpu=sum(cost.cpu for cost in seen) / len(seen),
        wall=sum(cost.wall for cost in seen) / len(seen),
    )


def measure_requests(tools: dict[str, Requests], way: str, rounds: int) -> dict[str, Sample]:
    runs = {words: getattr(requests, way) for words, requests in tools.items()}
    return interleave(runs, rounds=rounds)


def requests_of(watch: Stopwatch, ours: Ours, peer: litellm_whole.Peer) -> dict[str, Requests]:
    tools: dict[str, Requests] = {}
    for pair in PAIRS:
        tools[name("json", pair)] = Requests(through_json, pair, counted)
        tools[name("floor", pair)] = Requests(through_msgspec, pair, counted)
        tools[name("cllm", pair)] = Requests(ours.ask, pair, watch.time)
        if compared(pair):
            tools[name("litellm", pair)] = Requests(peer.ask, pair, watch.time)
    return tools


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


def print_requests(title: str, samples: dict[str, Sample]) -> None:
    """A row for each pair; at its end what ours is of LiteLLM's."""
    tools = ("json", "floor", "cllm", "litellm")
    heads = "".join(f"{tool + ' ms':>12}" for tool in tools)
    print(f"{title:40}{heads}{'ratio':>12}")
    for pair in PAIRS:
        seen = [samples[name(tool, pair)].cpu for tool in tools if name(tool, pair) in samples]
        costs = "".join(f"{cpu * 1000:12.2f}" for cpu in seen)
        ratio = f"{seen[-2] / seen[-1]:12.3f}" if compared(pair) else ""
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


def judge_json(way: str, samples: dict[str, Sample], targets: Targets) -> None:
    for pair in PAIRS:
        ratio = samples[name("cllm", pair)].cpu / samples[name("json", pair)].cpu
        targets.at_most(f"{pair[0]} client to {pair[1]}, {way} / json", ratio, JSON_LIMIT)


def judge_peer(way: str, samples: dict[str, Sample], targets: Targets) -> None:
    for pair in filter(compared, PAIRS):
        ratio = samples[name("cllm", pair)].cpu / samples[name("litellm", pair)].cpu
        targets.at_most(f"{pair[0]} client to {pair[1]}, {way} / LiteLLM", ratio, REQUEST_LIMIT)


def judge_streams(samples: dict[str, Sample], targets: Targets) -> None:
    """A target is met if it is for the dearest kind of delta."""
    for pair in PAIRS:
        what = f"{pair[1]} to {pair[0]} client, delta"
        ours = {kind: samples[name("cllm", pair, kind)].cpu for kind in KINDS}
        targets.at_most(f"{what}, µs", max(ours.values()) * 1e6, DELTA_LIMITS[pair[1]])
        if compared(pair):
            ratio = max(ours[kind] / samples[name("litellm", pair, kind)].cpu for kind in KINDS)
            targets.at_most(f"{what} / LiteLLM", ratio, STREAM_LIMITS[pair[1]])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--conversations", type=int, default=3, help="sent as an agent does")
    options = parser.parse_args()
    watch = Stopwatch()
    with asyncio.Runner() as runner:
        ours = Ours(watch, runner)
        tools = requests_of(watch, ours, litellm_whole.Peer(watch, runner))
        # What was imported is not looked through again: a large heap is not the translation's cost.
        gc.collect()
        gc.freeze()
        whole = measure_requests(tools, "whole", options.rounds)
        agent = measure_requests(tools, "as_agent", options.conversations)
    streams = measure_streams(ours.providers, options.rounds)
    print_requests("200 messages", whole)
    print_requests("a request as an agent sends it", agent)
    print_streams(streams)
    targets = Targets()
    judge_json("whole", whole, targets)
    judge_json("as an agent", agent, targets)
    judge_peer("whole", whole, targets)
    judge_peer("as an agent", agent, targets)
    judge_streams(streams, targets)
    return targets.finish()


if __name__ == "__main__":
    sys.exit(main())

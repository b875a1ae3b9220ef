"""What translating between protocols costs, beside JSON alone and beside LiteLLM's translation.

Requests: the body of a client, 200 messages long and full of tool calls, becomes the body for a
provider the way a request really does: decoded to a prompt, checked, mended and encoded by the
provider. Beside it `json.loads` and `json.dumps` of the same body, LiteLLM, and a floor that no
translation can go below: reading the body and writing it again with the quickest JSON we know.

Streams: an event of a provider's becomes an event of the client's, from bytes to bytes, through
the provider's own reader. What opens and ends a stream is not counted, on either side.

`litellm_peer.py` says what of LiteLLM is timed. Where a client and a provider speak the same
protocol there is nothing to translate, and LiteLLM is not compared.
"""

# The reader and the encoder of a provider are its own; a request would bring the network along.
# ruff: noqa: SLF001

import argparse
import gc
import json
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice, product

import msgspec

import litellm_peer
from cllm.core.prompt import Prompt
from cllm.core.reply import ReplyEvent
from cllm.providers.anthropic import AnthropicProvider
from cllm.providers.asking import HttpProvider, Request
from cllm.providers.bedrock import Account, BedrockProvider
from cllm.providers.http_once import OnceHttp
from cllm.providers.openai import OpenAIProvider
from cllm.wire import anthropic_answer, anthropic_request, openai_answer, openai_request
from measure import Cost, Sample, Targets, counted, interleave
from traffic import CLIENTS, KINDS, MODELS, PROTOCOLS, Client, Kind, Protocol, request_body, stream

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


def providers() -> dict[Protocol, HttpProvider]:
    """One of each; nobody listens there, and nothing is sent."""
    http, url = OnceHttp(), "http://127.0.0.1:9"
    account = Account(endpoint_url=url, bearer="unused")
    return {
        "openai": OpenAIProvider(name="openai", base_url=url, api_key="unused", http=http),
        "anthropic": AnthropicProvider(name="anthropic", base_url=url, api_key="unused", http=http),
        "bedrock": BedrockProvider(name="bedrock", account=account, http=http),
    }


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
    tools = ("json", "floor", "cllm", "litellm")
    heads = "".join(f"{tool + ' ms':>12}" for tool in tools)
    print(f"{'a request of 200 messages':40}{heads}")
    for pair in PAIRS:
        seen = [samples[name(tool, pair)] for tool in tools if name(tool, pair) in samples]
        costs = "".join(f"{sample.cpu * 1000:12.2f}" for sample in seen)
        print(f"{f'{pair[0]} client to {pair[1]}':40}{costs}")


def print_streams(samples: dict[str, Sample]) -> None:
    print(f"{'a delta of a stream':40}{'cllm µs':>12}{'litellm µs':>12}")
    for pair, kind in product(PAIRS, KINDS):
        ours = samples[name("cllm", pair, kind)].cpu * 1e6
        theirs = samples.get(name("litellm", pair, kind))
        beside = "" if theirs is None else f"{theirs.cpu * 1e6:12.1f}"
        print(f"{f'{pair[1]} to {pair[0]} client, {kind}':40}{ours:12.2f}{beside}")


def judge_requests(samples: dict[str, Sample], targets: Targets) -> None:
    for pair in PAIRS:
        what = f"{pair[0]} client to {pair[1]}, request"
        ours = samples[name("cllm", pair)].cpu
        targets.at_most(f"{what} / json", ours / samples[name("json", pair)].cpu, JSON_LIMIT)
        if compared(pair):
            ratio = ours / samples[name("litellm", pair)].cpu
            targets.at_most(f"{what} / LiteLLM", ratio, REQUEST_LIMIT)


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
    ours = providers()
    # What was imported is not looked through again: a large heap is not the translation's cost.
    gc.collect()
    gc.freeze()
    requests = measure_requests(ours, options.rounds)
    streams = measure_streams(ours, options.rounds)
    print_requests(requests)
    print_streams(streams)
    targets = Targets()
    judge_requests(requests, targets)
    judge_streams(streams, targets)
    return targets.finish()


if __name__ == "__main__":
    sys.exit(main())

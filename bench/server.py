"""Measures a request to `cllm serve`, compared with LiteLLM's proxy, Portkey's gateway and nginx.

All gateways forward to the same provider on loopback, one process each, and are measured
alternately in every round. CPU time is the gateway's with its children, per request, without the
provider and the client. The bare proxy is Starlette and aiohttp without any other work. Compare
only ratios of medians from one run.
"""

import argparse
import asyncio
import sys
import tempfile
import uuid
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from cllm.core.message import Message, plain_message
from cllm.library.stores import open_store
from gateways import (
    BARE,
    CLLM,
    LITELLM,
    NGINX,
    PORTKEY,
    Gateway,
    Peers,
    start_gateways,
    store_url,
)
from load import CHAT, MESSAGES, RESPONSES, Load, measure_load
from measurement import Cost, Sample, interleave
from results import WALL, Results, make_parser, program
from sample_conversations import make_conversation
from stream_events import measure_events

# Portkey 1.15 fails with the error "immutable" for a stream on Node 20 and 24.
WITHOUT_STREAMS = (PORTKEY,)
LONG_CONVERSATION = 10_000
SHORT_CONVERSATION = 100
CONVERSATIONS = 4
CONCURRENCY = 16
TURNS = 10
DURABLE = "cllm, durable turn"
MAX_RESIDENT_MEBIBYTES = 135


def make_messages(number: int) -> tuple[Message, Message]:
    return (
        plain_message("user", f"What is {number} and {number}? " + "Think well. " * 20),
        plain_message("assistant", f"It is {2 * number}. " + "That is well known. " * 20),
    )


async def create_conversations(url: str, messages: int, count: int) -> list[dict[str, str]]:
    """Create conversations of this length; return the headers that continue them."""
    store, ids = open_store(url), [str(uuid.uuid4()) for _ in range(count)]
    try:
        for ref in ids:
            pairs = map(make_messages, range(messages // 2))
            await store.add(make_conversation(ref, pairs, model="gpt-4o"))
    finally:
        await store.close()
    return [{"X-Conversation-ID": ref} for ref in ids]


def report_costs(results: Results, title: str, samples: Mapping[str, Sample]) -> None:
    """Print and record the medians of a request; print multiples of the bare proxy's CPU time."""
    print(f"\n{title}")
    baseline = samples.get(BARE)
    heading = "" if baseline is None else f"{'x bare proxy':>14}"
    print(f"  {'median of one request':34}{'CPU µs':>10}{'wall ms':>10}{heading}")
    for name, sample in samples.items():
        ratio = "" if baseline is None else f"{sample.cpu / baseline.cpu:14.2f}"
        print(f"  {name:34}{sample.cpu * 1e6:10.0f}{sample.wall * 1e3:10.2f}{ratio}")
    results.add_samples(title, samples)


def measure(gateways: Mapping[str, Gateway], load: Load, rounds: int) -> dict[str, Sample]:
    runs = {
        name: partial(measure_load, gateway, load)
        for name, gateway in gateways.items()
        if not load.stream or name not in WITHOUT_STREAMS
    }
    return interleave(runs, rounds=rounds)


def report_stateless(
    results: Results, gateways: Mapping[str, Gateway], *, rounds: int, requests: int
) -> None:
    """Measure stateless chat completions, complete and streamed."""
    for kind, stream in (("complete", False), ("streamed", True)):
        name = f"stateless chat completion, {kind}"
        samples = measure(gateways, Load(requests=requests, stream=stream), rounds)
        report_costs(results, name, samples)
        for peer, limit in ((LITELLM, 1 / 14), (PORTKEY, 1 / 3.5)):
            if peer in samples:
                results.compare(name, samples[CLLM], samples[peer], limit, peer=peer)
        results.compare(name, samples[CLLM], samples[BARE], 2.75, floor=BARE)
        if NGINX in samples:
            results.compare(name, samples[CLLM], samples[NGINX], floor=NGINX)


def report_first_word(results: Results, gateways: Mapping[str, Gateway], rounds: int) -> None:
    """Measure the time that a gateway adds to the first word, one request at a time."""
    samples = measure(gateways, Load(requests=24, concurrency=1, stream=True), rounds)
    report_costs(results, "one stream at a time (wall time: until the first word)", samples)
    added = {name: sample.wall - samples[NGINX].wall for name, sample in samples.items()}
    name = "time until the first word, minus that of nginx"
    results.compare(name, added[CLLM], added[LITELLM], 1 / 5, peer=LITELLM, measure=WALL)
    results.compare(name, added[CLLM], added[BARE], floor=BARE, measure=WALL)


def report_durable_turns(
    results: Results, gateways: Mapping[str, Gateway], rounds: int, folder: Path
) -> None:
    """Measure turns that continue conversations, with the concurrency of stateless requests.

    Each round uses new conversations, so that all rounds have the same length.
    """
    cllm, name = gateways[CLLM], "durable turn"
    turns = Load(requests=CONCURRENCY * TURNS, concurrency=CONCURRENCY, continues=True)
    headers = iter(
        [
            asyncio.run(create_conversations(store_url(folder), SHORT_CONVERSATION, CONCURRENCY))
            for _ in range(rounds + 1)
        ]
    )
    runs: dict[str, Callable[[], Cost]] = {
        f"{gateway}, stateless": partial(measure_load, gateways[gateway], Load(requests=320))
        for gateway in (CLLM, LITELLM)
        if gateway in gateways
    }
    runs[DURABLE] = lambda: measure_load(cllm, turns, next(headers))
    samples = interleave(runs, rounds=rounds)
    report_costs(results, "durable turn on SQLite, 40 to 60 messages in its window", samples)
    if LITELLM in gateways:
        stateless = samples[f"{LITELLM}, stateless"]
        peer = f"{LITELLM}, stateless request"
        results.compare(name, samples[DURABLE], stateless, 0.16, peer=peer)
    stateless = samples[f"{CLLM}, stateless"]
    results.compare(name, samples[DURABLE], stateless, itself="stateless request")


def report_lengths(results: Results, cllm: Gateway, rounds: int, folder: Path) -> None:
    """Measure durable turns by the length of their conversation."""
    lengths = (SHORT_CONVERSATION, LONG_CONVERSATION)
    few = Load(requests=CONVERSATIONS * 20, concurrency=CONVERSATIONS, continues=True)
    by_length = {
        length: asyncio.run(create_conversations(store_url(folder), length, CONVERSATIONS))
        for length in lengths
    }
    runs = {
        f"{length} messages": partial(measure_load, cllm, few, by_length[length])
        for length in lengths
    }
    both = interleave(runs, rounds=rounds)
    report_costs(results, "durable turn, by the length of its conversation", both)
    short, long = (both[f"{length} messages"] for length in lengths)
    name = f"durable turn after {LONG_CONVERSATION:,} messages"
    results.compare(name, long, short, 1.3, itself=f"after {SHORT_CONVERSATION} messages")


def report_messages(results: Results, gateways: Mapping[str, Gateway], rounds: int) -> None:
    """Measure the Messages API: a request that is passed through."""
    name, load = "Messages API request, passed through", Load(requests=160, path=MESSAGES)
    if LITELLM in gateways:
        pair = {each: gateways[each] for each in (CLLM, LITELLM)}
        messages = measure(pair, load, rounds)
        report_costs(results, name, messages)
        results.compare(name, messages[CLLM], messages[LITELLM], peer=LITELLM)
    # Without other gateways in between: their work would make the next request more expensive.
    cllm = gateways[CLLM]
    runs = {each.path: partial(measure_load, cllm, each) for each in (Load(requests=160), load)}
    samples = interleave(runs, rounds=rounds)
    results.compare(name, samples[MESSAGES], samples[CHAT], 1.2, itself="chat completion")


def report_responses(results: Results, cllm: Gateway, rounds: int) -> None:
    """Measure stateless requests of the Responses API to a provider that has it."""
    for stream, kind in ((False, "complete"), (True, "streamed")):
        runs: dict[str, Callable[[], Cost]] = {
            path: partial(measure_load, cllm, Load(requests=160, stream=stream, path=path))
            for path in (CHAT, RESPONSES)
        }
        name = f"Responses API request, {kind}"
        samples = interleave(runs, rounds=rounds)
        report_costs(results, f"{name}, and chat completion", samples)
        results.compare(name, samples[RESPONSES], samples[CHAT], 1.3, itself="chat completion")


def report_events(
    results: Results, gateways: Mapping[str, Gateway], rounds: int, *, burst: bool
) -> None:
    """Measure one additional event of a stream, paced as from a model or in a burst.

    In a burst the cost is the gateway's work on an event. Paced, most of the cost is the kernel's
    reads and writes, which is all that nginx does.
    """
    streaming = {name: each for name, each in gateways.items() if name not in WITHOUT_STREAMS}
    costs = measure_events(streaming, path=MESSAGES, rounds=rounds, burst=burst)
    name = f"one event of a stream, {'in a burst' if burst else 'paced'}"
    print(f"\n{name}: CPU µs")
    for gateway, cost in costs.items():
        values = ", ".join(f"{value * 1e6:.1f}" for value in sorted(cost.rounds))
        print(f"  {gateway:34}{cost.median * 1e6:10.1f}   (rounds: {values})")
    cllm = costs[CLLM].median
    if LITELLM in costs:
        results.compare(name, cllm, costs[LITELLM].median, peer=LITELLM)
    results.compare(name, cllm, costs[BARE].median, 4, floor=BARE)
    if NGINX in costs:
        results.compare(name, cllm, costs[NGINX].median, floor=NGINX)


def report_memory(results: Results, cllm: Gateway, requests: int) -> None:
    before = cllm.memory()
    measure_load(cllm, Load(requests=requests))
    after = cllm.memory()
    name = f"resident memory after {requests:,} more requests"
    results.check(name, after / 2**20, MAX_RESIDENT_MEBIBYTES, unit="MiB")
    results.compare(
        name, after, before, 1.05, itself="before these requests", measure="memory", unit="bytes"
    )


def parse_options() -> argparse.Namespace:
    parser = make_parser(__doc__, rounds=5)
    parser.add_argument("--litellm", type=program, required=True, help="the command `litellm`")
    parser.add_argument("--portkey", type=program, required=True, help="Portkey's start-server.js")
    parser.add_argument("--node", type=program, required=True, help="runs Portkey")
    parser.add_argument("--nginx", type=program, required=True)
    parser.add_argument("--requests", type=int, default=320, help="requests per round")
    parser.add_argument(
        "--flat", type=int, default=10_000, help="requests before the second measurement of memory"
    )
    return parser.parse_args()


def main() -> int:
    options = parse_options()
    rounds: int = options.rounds
    results = Results("server")
    portkey = (options.node, options.portkey)
    peers = Peers(litellm=options.litellm, portkey=portkey, nginx=options.nginx)
    results.versions |= peers.versions()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with start_gateways(folder, peers) as gateways:
            report_stateless(results, gateways, rounds=rounds, requests=options.requests)
            report_first_word(results, gateways, rounds)
            report_durable_turns(results, gateways, rounds, folder)
            report_lengths(results, gateways[CLLM], rounds, folder)
            report_messages(results, gateways, rounds)
            report_events(results, gateways, rounds, burst=False)
            report_events(results, gateways, rounds, burst=True)
            report_responses(results, gateways[CLLM], rounds)
            report_memory(results, gateways[CLLM], options.flat)
    return results.finish(options.json)


if __name__ == "__main__":
    sys.exit(main())

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
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import msgspec

from cllm.core.conversation import Turn, WindowRecord
from cllm.core.message import plain_message
from cllm.core.ports import NewConversation, Store, TurnStart
from cllm.library.stores import open_store
from gateways import Gateway, free_port, run_gateway, write_cllmfile, write_litellm, write_nginx
from load import CHAT, MESSAGES, RESPONSES, Load, measure_load
from measurement import Cost, Limits, Sample, interleave
from recording import STORED_MESSAGES, report_recording
from stream_events import measure_events

HERE = Path(__file__).parent
CLLM, BARE, LITELLM, PORTKEY, NGINX = "cllm", "bare proxy", "LiteLLM", "Portkey", "nginx"
# Portkey 1.15 fails with the error "immutable" for a stream on Node 20.
WITHOUT_STREAMS = (PORTKEY,)
LONG_CONVERSATION = 10_000
SHORT_CONVERSATION = 100
CONVERSATIONS = 4
CONCURRENCY = 16
TURNS = 10
DURABLE = "cllm, durable turn"
MAX_RESIDENT_BYTES = 135 * 2**20


@contextmanager
def start_gateways(
    peers: Path, portkey: Path, nginx: str, folder: Path
) -> Iterator[dict[str, Gateway]]:
    """Start all gateways and the provider behind them."""
    with ExitStack() as stack:
        upstream = free_port()
        provider = [sys.executable, str(HERE / "upstream.py"), str(upstream)]
        stack.enter_context(run_gateway("upstream", provider, port=upstream, folder=folder))
        url = f"http://127.0.0.1:{upstream}"
        gateways: dict[str, Gateway] = {}

        def start(name: str, command: list[str], port: int, **options: dict[str, str]) -> None:
            gateways[name] = stack.enter_context(
                run_gateway(name, command, port=port, folder=folder, **options)
            )

        port = free_port()
        write_cllmfile(folder, url)
        store = f"sqlite:{folder}/conversations.db"
        serve = [sys.executable, "-m", "cllm", "serve", "--port", str(port), "--store", store]
        start(CLLM, serve, port, environment={"HOME": str(folder)})
        port = free_port()
        start(BARE, [sys.executable, str(HERE / "bare_proxy.py"), str(port), url], port)
        port = free_port()
        config = write_litellm(folder, url)
        litellm = [str(peers / "litellm"), "--config", str(config), "--port", str(port)]
        local = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR"}
        local["LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY"] = "true"
        start(LITELLM, [*litellm, "--host", "127.0.0.1"], port, environment=local)
        if portkey.exists():
            port = free_port()
            head = {"x-portkey-provider": "openai", "x-portkey-custom-host": f"{url}/v1"}
            start(
                PORTKEY,
                ["node", str(portkey), f"--port={port}", "--headless"],
                port,
                headers=head,
            )
        if Path(nginx).exists():
            port = free_port()
            start(
                NGINX, [nginx, "-p", str(folder), "-c", str(write_nginx(folder, port, url))], port
            )
        yield gateways


async def create_conversation(store: Store, messages: int) -> str:
    """Create a conversation with this number of messages; the last turn has a small window."""
    conversation = await store.create(NewConversation(id=str(uuid.uuid4()), model="gpt-4o"))
    for number in range(messages // 2):
        question = plain_message("user", f"What is {number} and {number}? " + "Think well. " * 20)
        lease = await store.begin_turn(
            conversation.id, TurnStart(id=str(uuid.uuid4()), messages=(question,)), tail=0
        )
        reply = plain_message("assistant", f"It is {2 * number}. " + "That is well known. " * 20)
        window = WindowRecord(first_sequence=max(1, 2 * number - 37), sent_messages=39)
        turn: Turn = lease.turn
        await store.finish_turn(lease, _complete(turn, reply, window))
    return conversation.id


def _complete(turn: Turn, reply: object, window: WindowRecord) -> Turn:
    return msgspec.structs.replace(
        turn,
        state="complete",
        messages=(*turn.messages, reply),
        window=window,
        ended_at=turn.started_at,
    )


async def create_conversations(url: str, messages: int, count: int) -> list[dict[str, str]]:
    """Create conversations of this length; return the headers that continue them."""
    store = open_store(url)
    try:
        return [
            {"X-Conversation-ID": await create_conversation(store, messages)} for _ in range(count)
        ]
    finally:
        await store.close()


def print_costs(title: str, samples: dict[str, Sample]) -> None:
    """Print the medians of a request, and its CPU time as a multiple of the bare proxy's."""
    print(f"\n{title}")
    baseline = samples.get(BARE)
    heading = "" if baseline is None else f"{'x bare proxy':>14}"
    print(f"  {'median of one request':34}{'CPU µs':>10}{'wall ms':>10}{heading}")
    for name, sample in samples.items():
        ratio = "" if baseline is None else f"{sample.cpu / baseline.cpu:14.2f}"
        print(f"  {name:34}{sample.cpu * 1e6:10.0f}{sample.wall * 1e3:10.2f}{ratio}")


def measure(gateways: dict[str, Gateway], load: Load, rounds: int) -> dict[str, Sample]:
    runs = {
        name: partial(measure_load, gateway, load)
        for name, gateway in gateways.items()
        if not load.stream or name not in WITHOUT_STREAMS
    }
    return interleave(runs, rounds=rounds)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--peers", type=Path, required=True, help="bin folder of LiteLLM's environment"
    )
    parser.add_argument("--portkey", type=Path, required=True, help="Portkey's start-server.js")
    parser.add_argument("--nginx", default="/usr/sbin/nginx")
    parser.add_argument("--rounds", type=int, default=5, help="measured rounds")
    parser.add_argument("--requests", type=int, default=320, help="requests per round")
    parser.add_argument(
        "--flat", type=int, default=20_000, help="requests before the second measurement of memory"
    )
    parser.add_argument(
        "--stored", type=int, default=STORED_MESSAGES, help="messages in the store of recordings"
    )
    parser.add_argument("--events", action="store_true", help="measure only streamed events")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        gateways = stack.enter_context(
            start_gateways(options.peers, options.portkey, options.nginx, folder)
        )
        if options.events:
            limits = Limits()
            report_events(gateways, limits, options.rounds)
            return limits.exit_code()
        return report(gateways, folder, options)


def report(gateways: dict[str, Gateway], folder: Path, options: argparse.Namespace) -> int:
    limits, rounds, count = Limits(), options.rounds, options.requests
    whole = measure(gateways, Load(requests=count), rounds)
    print_costs("Stateless chat completion, complete response", whole)
    streamed = measure(gateways, Load(requests=count, stream=True), rounds)
    print_costs("Stateless chat completion, streamed (wall: until the first word)", streamed)
    alone = measure(gateways, Load(requests=24, concurrency=1, stream=True), rounds)
    print_costs("The same, one request at a time (wall: until the first word)", alone)
    cllm = gateways[CLLM]
    for peer, limit in ((LITELLM, 1 / 17), (PORTKEY, 1 / 3.5), (BARE, 2.5)):
        for kind, samples in (("complete", whole), ("streamed", streamed)):
            if peer in samples:
                ratio = samples[CLLM].cpu / samples[peer].cpu
                limits.check(f"stateless, {kind}: cllm / {peer}, CPU time", ratio, limit)
    base = alone.get(NGINX, alone[BARE]).wall
    ratio = (alone[CLLM].wall - base) / (alone[LITELLM].wall - base)
    limits.check("added time to the first word: cllm / LiteLLM, wall time", ratio, 1 / 5)
    report_durable_turns(gateways, limits, rounds, folder)
    report_messages(gateways, limits, rounds)
    report_responses(cllm, limits, rounds)
    url = f"sqlite:{folder}/conversations.db"
    report_recording(cllm, url, limits, rounds=rounds, stored=options.stored)
    before = cllm.memory()
    measure_load(cllm, Load(requests=options.flat))
    after = cllm.memory()
    print(f"\nResident memory of cllm: {before / 2**20:.1f} MiB,", end=" ")
    print(f"after {options.flat} more requests {after / 2**20:.1f} MiB")
    limits.check("resident memory", after / 2**20, MAX_RESIDENT_BYTES / 2**20, unit="MiB")
    limits.check("resident memory after / before these requests", after / before, 1.05)
    return limits.exit_code()


def report_durable_turns(
    gateways: dict[str, Gateway], limits: Limits, rounds: int, folder: Path
) -> None:
    """Measure turns that continue conversations, with the concurrency of stateless requests.

    Each round uses new conversations, so that all rounds have the same length.
    """
    url, cllm = f"sqlite:{folder}/conversations.db", gateways[CLLM]
    stateless = {name: gateways[name] for name in (CLLM, LITELLM)}
    turns = Load(requests=CONCURRENCY * TURNS, concurrency=CONCURRENCY, continues=True)
    headers = iter(
        [
            asyncio.run(create_conversations(url, SHORT_CONVERSATION, CONCURRENCY))
            for _ in range(rounds + 1)
        ]
    )
    runs: dict[str, Callable[[], Cost]] = {
        f"{name}, stateless": partial(measure_load, gateway, Load(requests=320))
        for name, gateway in stateless.items()
    }
    runs[DURABLE] = lambda: measure_load(cllm, turns, next(headers))
    samples = interleave(runs, rounds=rounds)
    print_costs("Durable turn on SQLite, 40 to 60 messages in its window", samples)
    ratio = samples[DURABLE].cpu / samples[f"{LITELLM}, stateless"].cpu
    limits.check("durable turn of cllm / stateless request of LiteLLM, CPU time", ratio, 0.14)
    lengths = (SHORT_CONVERSATION, LONG_CONVERSATION)
    few = Load(requests=CONVERSATIONS * 20, concurrency=CONVERSATIONS, continues=True)
    by_length = {
        length: asyncio.run(create_conversations(url, length, CONVERSATIONS)) for length in lengths
    }
    lengths_runs = {
        f"{length} messages": partial(measure_load, cllm, few, by_length[length])
        for length in lengths
    }
    both = interleave(lengths_runs, rounds=rounds)
    print_costs("Durable turn, by the length of its conversation", both)
    short, long = (both[f"{length} messages"].cpu for length in lengths)
    limits.check("durable turn after 10,000 messages / after 100, CPU time", long / short, 1.3)


def report_messages(gateways: dict[str, Gateway], limits: Limits, rounds: int) -> None:
    """Measure the Messages API: a request that is passed through, and the events of a stream."""
    pair = {name: gateways[name] for name in (CLLM, LITELLM)}
    messages = measure(pair, Load(requests=160, path=MESSAGES), rounds)
    print_costs("Messages API request, passed through", messages)
    # Without other gateways in between: their work would make the next request more expensive.
    alone = {CLLM: gateways[CLLM]}
    chat = measure(alone, Load(requests=160), rounds)
    passed = measure(alone, Load(requests=160, path=MESSAGES), rounds)
    ratio = passed[CLLM].cpu / chat[CLLM].cpu
    limits.check("passed-through message / chat completion of cllm, CPU time", ratio, 1.2)
    report_events(gateways, limits, rounds)


def report_responses(cllm: Gateway, limits: Limits, rounds: int) -> None:
    """Measure stateless requests of the Responses API to a provider that has it."""
    for stream, kind in ((False, "complete"), (True, "streamed")):
        runs: dict[str, Callable[[], Cost]] = {
            path: partial(measure_load, cllm, Load(requests=160, stream=stream, path=path))
            for path in (CHAT, RESPONSES)
        }
        samples = interleave(runs, rounds=rounds)
        print_costs(f"Stateless response, {kind}, and chat completion", samples)
        ratio = samples[RESPONSES].cpu / samples[CHAT].cpu
        limits.check(f"response, {kind} / chat completion of cllm, CPU time", ratio, 1.3)


def report_events(found: dict[str, Gateway], limits: Limits, rounds: int) -> None:
    """Measure one additional event of a stream, paced as from a model and in a burst.

    In a burst the cost is the gateway's work on an event. Paced, most of the cost is the kernel's
    reads and writes, which is all that nginx does.
    """
    gateways = {name: found[name] for name in (CLLM, LITELLM, BARE, NGINX) if name in found}
    for burst, pace in ((False, "paced"), (True, "in a burst")):
        costs = measure_events(gateways, path=MESSAGES, rounds=rounds, burst=burst)
        print(f"\nStreamed event, {pace}: CPU µs of one event")
        for name, cost in costs.items():
            values = ", ".join(f"{value * 1e6:.1f}" for value in sorted(cost.rounds))
            print(f"  {name:34}{cost.median * 1e6:10.1f}   (rounds: {values})")
        ratio = costs[CLLM].median / costs[BARE].median
        limits.check(f"streamed event, {pace}: cllm / bare proxy, CPU time", ratio, 3)


if __name__ == "__main__":
    sys.exit(main())

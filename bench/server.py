"""What a request costs in `cllm serve`, beside LiteLLM's proxy, Portkey's gateway and nginx.

All stand before the same provider on loopback, one process each, and are asked in turn, round by
round. Processor time is that of the gateway with its children, per request; the provider's and
ours as a client are not counted. The bare proxy is Starlette and aiohttp and nothing else. Ratios
of medians of one run are what is compared.
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
from gateways import Gateway, free_port, running, write_cllmfile, write_litellm, write_nginx
from load import MESSAGES, Load, cost_of
from measure import Cost, Sample, Targets, interleave
from streaming import event_costs

HERE = Path(__file__).parent
CLLM, BARE, LITELLM, PORTKEY, NGINX = "cllm", "bare proxy", "LiteLLM", "Portkey", "nginx"
# Portkey 1.15 answers a stream with "immutable", an error of its own, on Node 20.
NOT_STREAMING = (PORTKEY,)
LONG_CONVERSATION = 10_000
SHORT_CONVERSATION = 100
CONVERSATIONS = 4
AT_ONCE = 16
TURNS = 10
DURABLE = "cllm, durable"
MOST_MEMORY = 135 * 2**20


@contextmanager
def gateways(peers: Path, portkey: Path, nginx: str, folder: Path) -> Iterator[dict[str, Gateway]]:
    """All of them at once, with the provider behind them."""
    with ExitStack() as stack:
        upstream = free_port()
        provider = [sys.executable, str(HERE / "upstream.py"), str(upstream)]
        stack.enter_context(running("upstream", provider, port=upstream, folder=folder))
        url = f"http://127.0.0.1:{upstream}"
        found: dict[str, Gateway] = {}

        def start(name: str, command: list[str], port: int, **more: dict[str, str]) -> None:
            found[name] = stack.enter_context(
                running(name, command, port=port, folder=folder, **more)
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
        yield found


async def fill(store: Store, messages: int) -> str:
    """A conversation with so many messages; the window of its last turn is a short one."""
    made = await store.create(NewConversation(id=str(uuid.uuid4()), model="gpt-4o"))
    for number in range(messages // 2):
        said = plain_message("user", f"What is {number} and {number}? " + "Think well. " * 20)
        lease = await store.begin_turn(
            made.id, TurnStart(id=str(uuid.uuid4()), messages=(said,)), tail=0
        )
        reply = plain_message("assistant", f"It is {2 * number}. " + "That is well known. " * 20)
        window = WindowRecord(first_sequence=max(1, 2 * number - 37), sent_messages=39)
        turn: Turn = lease.turn
        await store.finish_turn(lease, _answered(turn, reply, window))
    return made.id


def _answered(turn: Turn, reply: object, window: WindowRecord) -> Turn:
    return msgspec.structs.replace(
        turn,
        state="complete",
        messages=(*turn.messages, reply),
        window=window,
        ended_at=turn.started_at,
    )


async def filled(url: str, messages: int, count: int) -> list[dict[str, str]]:
    """Headers that continue conversations of such a length."""
    store = open_store(url)
    try:
        return [{"X-Conversation-ID": await fill(store, messages)} for _ in range(count)]
    finally:
        await store.close()


def print_costs(title: str, samples: dict[str, Sample]) -> None:
    print(f"\n{title}")
    floor = samples.get(f"{BARE}")
    for name, sample in samples.items():
        ratio = "" if floor is None else f"{sample.cpu / floor.cpu:8.2f} x bare"
        print(f"  {name:34}{sample.cpu * 1e6:10.0f} us cpu{sample.wall * 1e3:9.2f} ms{ratio}")


def measure(found: dict[str, Gateway], load: Load, rounds: int) -> dict[str, Sample]:
    runs = {
        name: partial(cost_of, gateway, load)
        for name, gateway in found.items()
        if not load.stream or name not in NOT_STREAMING
    }
    return interleave(runs, rounds=rounds)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", type=Path, required=True, help="bin/ of the peers' environment")
    parser.add_argument("--portkey", type=Path, required=True, help="Portkey's start-server.js")
    parser.add_argument("--nginx", default="/usr/sbin/nginx")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=320)
    parser.add_argument("--flat", type=int, default=20_000, help="requests for the memory")
    parser.add_argument("--events", action="store_true", help="only what a streamed event costs")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        found = stack.enter_context(gateways(given.peers, given.portkey, given.nginx, folder))
        if given.events:
            targets = Targets()
            streamed_report(found, targets, given.rounds)
            return targets.finish()
        return report(found, folder, given)


def report(found: dict[str, Gateway], folder: Path, given: argparse.Namespace) -> int:
    targets, rounds, count = Targets(), given.rounds, given.requests
    whole = measure(found, Load(requests=count), rounds)
    print_costs("A chat completion, stateless, whole", whole)
    streamed = measure(found, Load(requests=count, stream=True), rounds)
    print_costs("A chat completion, stateless, streamed", streamed)
    alone = measure(found, Load(requests=24, at_once=1, stream=True), rounds)
    print_costs("The first word of a stream, one request at a time", alone)
    ours = found[CLLM]
    for peer, limit in ((LITELLM, 1 / 17), (PORTKEY, 1 / 3.5), (BARE, 2.5)):
        for kind, samples in (("whole", whole), ("streamed", streamed)):
            if peer in samples:
                ratio = samples[CLLM].cpu / samples[peer].cpu
                targets.at_most(f"cllm / {peer}, stateless, {kind}", ratio, limit)
    floor = alone.get(NGINX, alone[BARE]).wall
    added = (alone[CLLM].wall - floor) / (alone[LITELLM].wall - floor)
    targets.at_most("time to the first word that cllm adds / LiteLLM adds", added, 1 / 5)
    durable_report(found, targets, rounds, folder)
    events_report(found, targets, rounds)
    before = ours.memory()
    cost_of(ours, Load(requests=given.flat))
    after = ours.memory()
    print(f"\nMemory: {before / 2**20:.1f} MB, after {given.flat} more {after / 2**20:.1f} MB")
    targets.at_most("resident MB", after / 2**20, MOST_MEMORY / 2**20)
    targets.at_most("memory after / before", after / before, 1.05)
    return targets.finish()


def durable_report(found: dict[str, Gateway], targets: Targets, rounds: int, folder: Path) -> None:
    """Turns that go on with conversations, as many at once as there are stateless requests.

    Each round has conversations of its own, so that all rounds are of the same length.
    """
    url, ours = f"sqlite:{folder}/conversations.db", found[CLLM]
    stateless = {name: found[name] for name in (CLLM, LITELLM)}
    turns = Load(requests=AT_ONCE * TURNS, at_once=AT_ONCE, continues=True)
    fresh = iter([asyncio.run(filled(url, SHORT_CONVERSATION, AT_ONCE)) for _ in range(rounds + 1)])
    runs: dict[str, Callable[[], Cost]] = {
        f"{name}, stateless": partial(cost_of, gateway, Load(requests=320))
        for name, gateway in stateless.items()
    }
    runs[DURABLE] = lambda: cost_of(ours, turns, next(fresh))
    kept = interleave(runs, rounds=rounds)
    print_costs("A durable turn on SQLite, 40 to 60 messages in its window", kept)
    ratio = kept[DURABLE].cpu / kept[f"{LITELLM}, stateless"].cpu
    targets.at_most("a durable turn / LiteLLM stateless", ratio, 0.14)
    lengths = (SHORT_CONVERSATION, LONG_CONVERSATION)
    few = Load(requests=CONVERSATIONS * 20, at_once=CONVERSATIONS, continues=True)
    heads = {length: asyncio.run(filled(url, length, CONVERSATIONS)) for length in lengths}
    lengths_runs = {
        f"{length} messages": partial(cost_of, ours, few, heads[length]) for length in lengths
    }
    both = interleave(lengths_runs, rounds=rounds)
    print_costs("A durable turn, by the length of its conversation", both)
    short, long = (both[f"{length} messages"].cpu for length in lengths)
    targets.at_most("a turn in 10,000 messages / in 100", long / short, 1.3)


def events_report(found: dict[str, Gateway], targets: Targets, rounds: int) -> None:
    """Anthropic's door: a request passed through, and what an event of a stream costs."""
    pair = {name: found[name] for name in (CLLM, LITELLM)}
    messages = measure(pair, Load(requests=160, path=MESSAGES), rounds)
    print_costs("A message, passed through", messages)
    # By themselves, both of them: a neighbour that works in between makes the next request dearer.
    alone = {CLLM: found[CLLM]}
    chat = measure(alone, Load(requests=160), rounds)
    passed = measure(alone, Load(requests=160, path=MESSAGES), rounds)
    ratio = passed[CLLM].cpu / chat[CLLM].cpu
    targets.at_most("a message passed through / a chat completion", ratio, 1.2)
    streamed_report(found, targets, rounds)


def streamed_report(found: dict[str, Gateway], targets: Targets, rounds: int) -> None:
    """What one event more of a stream costs, coming one by one as from a model, and in a burst.

    In a burst it is what a gateway does with an event. One by one it is mostly what the kernel does
    to read and to write, which is all that nginx does.
    """
    compared = {name: found[name] for name in (CLLM, LITELLM, BARE, NGINX) if name in found}
    for burst, way in ((False, "one by one"), (True, "all at once")):
        costs = event_costs(compared, path=MESSAGES, rounds=rounds, burst=burst)
        print(f"\nA streamed event, {way}")
        for name, cost in costs.items():
            shown = ", ".join(f"{one * 1e6:.1f}" for one in sorted(cost.rounds))
            print(f"  {name:34}{cost.median * 1e6:10.1f} us cpu   (rounds: {shown})")
        ratio = costs[CLLM].median / costs[BARE].median
        targets.at_most(f"a streamed event / a bare proxy's, {way}", ratio, 3)


if __name__ == "__main__":
    sys.exit(main())

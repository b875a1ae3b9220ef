"""Measures 1 to 500 parallel streams through `cllm serve`, LiteLLM's proxy, nginx and a bare proxy.

A stream has 40 words within two seconds. The streams of a run start evenly within one second, so
that all of them are open at the same time. Each gateway has one worker. Client, provider and
gateway share the cores of the machine; CPU time and memory are those of the gateway with its
children. A stream fails if its status is not 200 or its last event is missing.
"""

import asyncio
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import aiohttp

from gateways import BARE, CLLM, LITELLM, NGINX, Gateway, Peers, start_gateways
from load import CHAT, Load
from results import WALL, Curve, Results, Series, SeriesKind, make_parser, program
from upstream import FIRST_WORD

COUNTS = (1, 10, 50, 100, 250, 500)
COMPARED = (100, 500)
SECONDS = 2
WORDS = 40
START_SECONDS = 1.0
STORED = "cllm, stored"
KINDS: dict[str, SeriesKind] = {LITELLM: "peer", NGINX: "floor", BARE: "floor"}
LAST_EVENT = b"data: [DONE]"
IDS = {
    "CPU time per stream": "cpu",
    "Time until the first word": "first-word",
    "Resident memory": "memory",
}


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run: CPU seconds per stream, seconds to the first word, resident bytes, failures."""

    cpu: float
    first_word: float
    memory: int
    failed: int


@dataclass(frozen=True, kw_only=True)
class Point:
    """The medians of the runs with the same number of streams, and the failures of all."""

    cpu: float
    first_word: float
    memory: float
    failed: int


Points = dict[int, dict[str, Point]]


async def run_streams(gateway: Gateway, count: int, extra: Mapping[str, str]) -> Run:
    load = Load(requests=count, stream=True, words=WORDS, seconds=SECONDS)
    url = f"http://127.0.0.1:{gateway.port}{CHAT}"
    headers = {
        "Content-Type": "application/json",
        "Authorization": "Bearer unused",
        **gateway.headers,
        **extra,
    }
    body, memory = load.body(), gateway.memory()

    async def read_stream(session: aiohttp.ClientSession, delay: float) -> float | None:
        """Return the seconds to the first word, or None if the stream failed."""
        await asyncio.sleep(delay)
        start, first, received = time.perf_counter(), None, b""
        try:
            async with session.post(url, data=body, headers=headers) as response:
                async for chunk in response.content.iter_any():
                    received += chunk
                    if first is None and FIRST_WORD in received:
                        first = time.perf_counter() - start
        except (aiohttp.ClientError, TimeoutError):
            return None
        return first if response.status == 200 and LAST_EVENT in received else None

    async def watch_memory() -> None:
        nonlocal memory
        while True:
            memory = max(memory, gateway.memory())
            await asyncio.sleep(0.2)

    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=120)
    ) as session:
        watcher = asyncio.create_task(watch_memory())
        before = gateway.cpu()
        delays = [START_SECONDS * number / count for number in range(count)]
        times = await asyncio.gather(*(read_stream(session, delay) for delay in delays))
        cpu = gateway.cpu() - before
        watcher.cancel()
    received_times = [seconds for seconds in times if seconds is not None]
    return Run(
        cpu=cpu / count,
        first_word=statistics.median(received_times) if received_times else 0.0,
        memory=memory,
        failed=times.count(None),
    )


def measure_counts(gateways: Mapping[str, Gateway], rounds: int, most: int) -> Points:
    """Measure all gateways alternately with each number of streams."""
    variants: dict[str, tuple[Gateway, dict[str, str]]] = {
        name: (gateway, {}) for name, gateway in gateways.items()
    }
    variants[STORED] = (gateways[CLLM], {"X-Conversation-ID": ""})
    for gateway, extra in variants.values():
        asyncio.run(run_streams(gateway, 5, extra))
    points: Points = {}
    for count in COUNTS:
        if count > most:
            break
        runs: dict[str, list[Run]] = {name: [] for name in variants}
        # One stream alone is measured more often, because it is most affected by noise.
        for _ in range(rounds + 2 * (count == 1)):
            for name, (gateway, extra) in variants.items():
                runs[name].append(asyncio.run(run_streams(gateway, count, extra)))
        points[count] = {name: summarise(each) for name, each in runs.items()}
        for name, point in points[count].items():
            print(
                f"{count:4} streams, {name:14}{point.cpu * 1e3:9.2f} ms CPU each, first word "
                f"{point.first_word * 1e3:9.1f} ms, {point.memory / 2**20:7.1f} MiB, "
                f"{point.failed} failed",
                flush=True,
            )
    return points


def summarise(runs: list[Run]) -> Point:
    return Point(
        cpu=statistics.median(run.cpu for run in runs),
        first_word=statistics.median(run.first_word for run in runs),
        memory=statistics.median(run.memory for run in runs),
        failed=sum(run.failed for run in runs),
    )


def report(results: Results, points: Points) -> None:
    for count in filter(points.__contains__, COMPARED):
        each = points[count]
        cllm, stored = each[CLLM], each[STORED]
        name = f"{count} parallel streams, per stream"
        results.compare(name, cllm.cpu, each[LITELLM].cpu, peer=LITELLM)
        results.compare(name, cllm.cpu, each[BARE].cpu, floor=BARE)
        results.compare(f"{name}, stored", stored.cpu, each[LITELLM].cpu, peer=LITELLM)
        results.compare(f"{name}, stored", stored.cpu, cllm.cpu, itself="stateless")
        name = f"{count} parallel streams, time until the first word"
        compare_word = partial(results.compare, measure=WALL)
        compare_word(name, cllm.first_word, each[LITELLM].first_word, peer=LITELLM)
        compare_word(name, cllm.first_word, each[NGINX].first_word, floor=NGINX)
        compare_word(f"{name}, stored", stored.first_word, each[LITELLM].first_word, peer=LITELLM)
        name = f"{count} parallel streams"
        compare_memory = partial(results.compare, measure="resident memory", unit="bytes")
        compare_memory(name, cllm.memory, each[LITELLM].memory, peer=LITELLM)
        compare_memory(name, cllm.memory, each[BARE].memory, floor=BARE)
        compare_memory(f"{name}, stored", stored.memory, each[LITELLM].memory, peer=LITELLM)
    failed = sum(each[name].failed for each in points.values() for name in (CLLM, STORED))
    results.check("failed streams of cllm", failed, 0, unit="streams")
    add_curve(results, points, "CPU time per stream", lambda point: point.cpu)
    add_curve(results, points, "Time until the first word", lambda point: point.first_word)
    add_curve(results, points, "Resident memory", lambda point: point.memory, unit="bytes")


def add_curve(
    results: Results,
    points: Points,
    title: str,
    value: Callable[[Point], float],
    *,
    unit: str = "s",
) -> None:
    series = []
    for gateway in next(iter(points.values())):
        failed = {count: each[gateway].failed for count, each in points.items()}
        note = ", ".join(
            f"{number} streams of {count} failed" for count, number in failed.items() if number
        )
        line = [(count, value(each[gateway])) for count, each in points.items()]
        kind = KINDS.get(gateway, "cllm")
        series.append(Series(name=gateway, kind=kind, points=line, note=note))
    results.add_curve(
        Curve(
            id=f"streams-{IDS[title]}",
            title=f"{title} by the number of parallel streams",
            description=f"Streams of {WORDS} words within {SECONDS} seconds, one worker per "
            "gateway. `cllm, stored` saves each stream in a new conversation on SQLite.",
            x_label="parallel streams",
            y_label=title,
            unit=unit,
            series=series,
        )
    )


def raise_file_limit() -> None:
    """Allow two sockets per stream, also in the gateways."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def main() -> int:
    parser = make_parser(__doc__, rounds=2)
    parser.add_argument("--litellm", type=program, required=True, help="the command `litellm`")
    parser.add_argument("--nginx", type=program, required=True)
    parser.add_argument("--streams", type=int, default=max(COUNTS), help="the largest number")
    options = parser.parse_args()
    raise_file_limit()
    results = Results("streams")
    peers = Peers(litellm=options.litellm, nginx=options.nginx)
    results.versions |= peers.versions()
    with tempfile.TemporaryDirectory() as name, start_gateways(Path(name), peers) as gateways:
        points = measure_counts(gateways, options.rounds, options.streams)
    report(results, points)
    return results.finish(options.json)


if __name__ == "__main__":
    sys.exit(main())

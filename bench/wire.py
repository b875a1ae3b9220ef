"""Measures the translation between protocols, compared with plain JSON and with LiteLLM.

Requests: from the bytes of a client's body to the transport, which responds from memory
(`cllm_requests.py`; LiteLLM's public functions in `litellm_requests.py`). The conversation has 200
messages and many tool calls. It is sent in two ways, and limits apply to both:

- At once: all 200 messages in one request. For comparison: `json.loads` and `json.dumps` of the
  same body, and msgspec, the fastest JSON library that we know, as the lower bound.
- As an agent does: from the first question on, every request has the complete conversation, two or
  three messages more each time. This is what a gateway receives. The table shows the mean of a
  conversation's requests; LiteLLM gets the same ones. Nothing is cached between requests
  (docs/decisions/0019-no-cache-of-client-requests.md).

Streams: from the bytes of a provider's event to the bytes of a client's event, through the
provider's own reader. The start and the end of a stream are not measured, for both libraries.

If client and provider use the same protocol, there is no translation and no limit relative to
LiteLLM. `litellm_streams.py` documents which part of LiteLLM is measured.
"""

# Uses private methods of providers: a complete request would include the network.
# ruff: noqa: SLF001

import asyncio
import gc
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import count, islice, product

import msgspec

from cllm.core.reply import ReplyEvent
from cllm.providers.http.provider import HttpProvider, ProviderRequest
from cllm.wire.anthropic import response_encoder as anthropic_encoder
from cllm.wire.openai import response_encoder as openai_encoder
from cllm_requests import CllmClient
from machine import package_versions
from measurement import Cost, Sample, interleave, measure_call
from results import Results, make_parser
from stopwatch import Stopwatch
from traffic import (
    CLIENTS,
    KINDS,
    MODELS,
    PROTOCOLS,
    Client,
    Kind,
    Protocol,
    agent_requests,
    request_body,
    stream,
)

JSON_LIMIT = 5
REQUEST_LIMIT = 0.6
# botocore parses Bedrock's frames, which costs more than the rest of an event.
DELTA_LIMITS: dict[Protocol, float] = {"openai": 1.4, "anthropic": 1.4, "bedrock": 3}
STREAM_LIMITS: dict[Protocol, float] = {"openai": 1 / 50, "anthropic": 1 / 50, "bedrock": 1 / 20}
# Not measured: the first events of a stream include one-time initialisation.
OPENING_EVENTS = 10
CLLM_EVENTS = 350
LITELLM_EVENTS = 100
Pair = tuple[Client, Protocol]
Send = Callable[[bytes, Client, Protocol], object]
MakeStream = Callable[[], Iterator[bytes]]
TranslateStream = Callable[[list[bytes], Client, Protocol], Iterator[bytes]]

AT_ONCE, AS_AGENT = "200 messages at once", "requests of an agent"
PAIRS: tuple[Pair, ...] = tuple(product(CLIENTS, PROTOCOLS))


def convert_with_json(body: bytes, _client: Client, _provider: Protocol) -> bytes:
    return json.dumps(json.loads(body)).encode()


def convert_with_msgspec(body: bytes, _client: Client, _provider: Protocol) -> bytes:
    return msgspec.json.encode(msgspec.json.decode(body))


def make_encoder(client: Client) -> Callable[[ReplyEvent], bytes]:
    """Return the stream encoder of a client's protocol."""
    if client == "openai":
        return openai_encoder.OpenAIStreamEncoder(
            model=MODELS["openai"], id="chatcmpl-1", created=0, include_usage=True
        ).encode
    return anthropic_encoder.AnthropicStreamEncoder(
        message_id="msg_1", model=MODELS["anthropic"]
    ).encode


def translate_stream(
    chunks: list[bytes], client: Client, provider: HttpProvider
) -> Iterator[bytes]:
    encode = make_encoder(client)
    reader = provider._stream_reader(ProviderRequest(url="", body=b""))
    for chunk in chunks:
        for event in reader.feed(chunk):
            yield encode(event)


def convert_events(chunks: list[bytes]) -> Iterator[bytes]:
    """Decode and encode the JSON of each event."""
    for chunk in chunks:
        yield json.dumps(json.loads(chunk.rpartition(b"data: ")[2])).encode()


def measure_event(make: MakeStream, *, events: int) -> Cost:
    """Return the cost of one event in the middle of a stream."""
    events_sent = make()
    for _ in islice(events_sent, OPENING_EVENTS):
        pass
    wall, cpu = time.perf_counter(), time.process_time()
    count = sum(1 for _ in islice(events_sent, events))
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    assert count == events, f"only {count} events"
    return Cost(cpu=cpu / count, wall=wall / count)


def is_translated(pair: Pair) -> bool:
    return pair[0] != pair[1]


def run_name(tool: str, pair: Pair, kind: Kind | None = None) -> str:
    name = f"{tool}: {pair[0]} client, {pair[1]} provider"
    return name if kind is None else f"{name}, {kind}"


class Requests:
    """Sends the conversations of a client and a provider with one tool, a new one in each run."""

    def __init__(
        self,
        send: Send,
        pair: Pair,
        measure: Callable[[Callable[[], object]], Cost],
    ) -> None:
        self._send = send
        self._pair = pair
        self._measure = measure
        self._conversations = count()

    def send_at_once(self) -> Cost:
        """Return the cost of a complete conversation in one request."""
        client, protocol = self._pair
        number = next(self._conversations)
        return self._cost(request_body(client, MODELS[protocol], stream=False, conversation=number))

    def send_as_agent(self) -> Cost:
        """Return the mean cost of an agent's requests."""
        client, protocol = self._pair
        number = next(self._conversations)
        bodies = agent_requests(client, MODELS[protocol], stream=False, conversation=number)
        return mean(map(self._cost, bodies))

    def _cost(self, body: bytes) -> Cost:
        return self._measure(partial(self._send, body, *self._pair))


def mean(costs: Iterable[Cost]) -> Cost:
    values = list(costs)
    return Cost(
        cpu=sum(cost.cpu for cost in values) / len(values),
        wall=sum(cost.wall for cost in values) / len(values),
    )


def measure_requests(tools: dict[str, Requests], method: str, rounds: int) -> dict[str, Sample]:
    runs = {name: getattr(requests, method) for name, requests in tools.items()}
    return interleave(runs, rounds=rounds)


def make_tools(watch: Stopwatch, cllm: CllmClient, litellm: Send | None) -> dict[str, Requests]:
    """Return the variants to measure; without LiteLLM only cllm and the floors."""
    tools: dict[str, Requests] = {}
    for pair in PAIRS:
        tools[run_name("json", pair)] = Requests(convert_with_json, pair, measure_call)
        tools[run_name("msgspec", pair)] = Requests(convert_with_msgspec, pair, measure_call)
        tools[run_name("cllm", pair)] = Requests(cllm.send, pair, watch.time)
        if litellm and is_translated(pair):
            tools[run_name("litellm", pair)] = Requests(litellm, pair, watch.time)
    return tools


def measure_streams(
    providers: Mapping[Protocol, HttpProvider], translate: TranslateStream, rounds: int
) -> dict[str, Sample]:
    """Measure the events of streams with cllm and with `translate`, which is LiteLLM's."""
    runs: dict[str, Callable[[], Cost]] = {}
    for pair, kind in product(PAIRS, KINDS):
        client, protocol = pair
        chunks = stream(protocol, kind)
        make = partial(translate_stream, chunks, client, providers[protocol])
        convert = partial(convert_events, stream(client, kind))
        runs[run_name("json", pair, kind)] = partial(measure_event, convert, events=CLLM_EVENTS)
        runs[run_name("cllm", pair, kind)] = partial(measure_event, make, events=CLLM_EVENTS)
        if is_translated(pair):
            litellm = partial(translate, chunks, client, protocol)
            runs[run_name("litellm", pair, kind)] = partial(
                measure_event, litellm, events=LITELLM_EVENTS
            )
    return interleave(runs, rounds=rounds)


def print_requests(title: str, samples: dict[str, Sample]) -> None:
    """Print a row of CPU milliseconds per pair, and the ratio of cllm to LiteLLM."""
    tools = ("json", "msgspec", "cllm", "litellm")
    headings = "".join(f"{tool + ' ms':>12}" for tool in tools)
    print(f"\n{title:40}{headings}{'cllm/litellm':>14}")
    for pair in PAIRS:
        times = [
            samples[run_name(tool, pair)].cpu for tool in tools if run_name(tool, pair) in samples
        ]
        costs = "".join(f"{cpu * 1000:12.2f}" for cpu in times)
        ratio = f"{times[-2] / times[-1]:14.3f}" if is_translated(pair) else ""
        print(f"{f'{pair[0]} client to {pair[1]}':40}{costs}{ratio}")


def print_streams(samples: dict[str, Sample]) -> None:
    """Print the median CPU time of a delta, which has limits, and cllm's fastest round."""
    headings = "".join(f"{name:>12}" for name in ("cllm min µs", "cllm µs", "litellm µs"))
    print(f"\n{'CPU time of one streamed delta':40}{headings}")
    for pair, kind in product(PAIRS, KINDS):
        cllm = samples[run_name("cllm", pair, kind)]
        fastest = min(cost.cpu for cost in cllm.costs)
        litellm = samples.get(run_name("litellm", pair, kind))
        column = "" if litellm is None else f"{litellm.cpu * 1e6:12.1f}"
        label = f"{pair[1]} to {pair[0]} client, {kind}"
        print(f"{label:40}{fastest * 1e6:12.2f}{cllm.cpu * 1e6:12.2f}{column}")


def compare_requests(results: Results, way: str, samples: Mapping[str, Sample]) -> None:
    for pair in PAIRS:
        name = f"{pair[0]} client to {pair[1]}, {way}"
        cllm = samples[run_name("cllm", pair)]
        results.compare(name, cllm, samples[run_name("json", pair)], JSON_LIMIT, floor="json")
        if run_name("litellm", pair) in samples:
            litellm = samples[run_name("litellm", pair)]
            results.compare(name, cllm, litellm, REQUEST_LIMIT, peer="LiteLLM")


def compare_streams(results: Results, samples: Mapping[str, Sample]) -> None:
    """Compare the kind of delta with the greatest ratio. The floor is the JSON of the client."""
    for pair in PAIRS:
        label = f"{pair[1]} to {pair[0]} client, one delta"
        cllm = {kind: samples[run_name("cllm", pair, kind)].cpu for kind in KINDS}
        floor = {kind: samples[run_name("json", pair, kind)].cpu for kind in KINDS}
        kind = max(KINDS, key=lambda kind: cllm[kind] / floor[kind])
        limit = DELTA_LIMITS[pair[1]]
        results.compare(f"{label} of {kind}", cllm[kind], floor[kind], limit, floor="json")
        if is_translated(pair):
            litellm = {kind: samples[run_name("litellm", pair, kind)].cpu for kind in KINDS}
            kind = max(KINDS, key=lambda kind: cllm[kind] / litellm[kind])
            limit = STREAM_LIMITS[pair[1]]
            results.compare(label, cllm[kind], litellm[kind], limit, peer="LiteLLM")


def freeze_imports() -> None:
    """Exclude imported objects from collections: they are not part of the translation's cost."""
    gc.collect()
    gc.freeze()


def main() -> int:
    # Imported here, because `quick.py` uses this module without LiteLLM.
    import litellm_requests  # noqa: PLC0415
    import litellm_streams  # noqa: PLC0415

    parser = make_parser(__doc__, rounds=11)
    parser.add_argument(
        "--conversations", type=int, default=3, help="rounds of an agent's requests"
    )
    options = parser.parse_args()
    results = Results("wire")
    results.versions |= package_versions(sys.executable, ["litellm"])
    watch = Stopwatch()
    with asyncio.Runner() as runner:
        cllm = CllmClient(watch, runner)
        tools = make_tools(watch, cllm, litellm_requests.LitellmClient(watch, runner).send)
        freeze_imports()
        at_once = measure_requests(tools, "send_at_once", options.rounds)
        agent = measure_requests(tools, "send_as_agent", options.conversations)
    streams = measure_streams(cllm.providers, litellm_streams.translate_stream, options.rounds)
    print_requests("CPU time, 200 messages at once", at_once)
    print_requests("CPU time, mean request of an agent", agent)
    print_streams(streams)
    for group, samples in ((AT_ONCE, at_once), (AS_AGENT, agent), ("streams", streams)):
        results.add_samples(group, samples)
    compare_requests(results, AT_ONCE, at_once)
    compare_requests(results, AS_AGENT, agent)
    compare_streams(results, streams)
    return results.finish(options.json)


if __name__ == "__main__":
    sys.exit(main())

"""Measures requests with a whole history that `cllm serve` recognises and records.

The store has a million messages. A client sends 500 of them again with a new question, as agents
do, once stateless and once with `X-Conversation-ID: auto`; and with the ID of the conversation.
"""

import asyncio
import json
import sys
import tempfile
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path

import aiohttp
import msgspec

from cllm.core.conversation import StoredConversation
from cllm.core.message import Message
from cllm.core.ports import Store
from cllm.library.stores import open_store
from gateways import CLLM, Gateway, Peers, start_gateways, store_url
from load import CHAT, QUESTION
from measurement import Cost, interleave
from results import Results, make_parser
from sample_conversations import make_conversation

HISTORY_LENGTH = 500
STORED_MESSAGES = 1_000_000
WORKERS = 4
REQUESTS = 4
STATELESS, FOUND, NAMED = "stateless", "found by its history", "with its ID"


class Session(msgspec.Struct):
    """A client with its conversation: the messages that it sends with every request."""

    conversation: str
    messages: list[dict[str, str]]

    def body(self, question: str) -> bytes:
        messages = [*self.messages, {"role": "user", "content": question}]
        return json.dumps({"model": "gpt-4o", "max_tokens": 256, "messages": messages}).encode()


def build_messages(number: int) -> list[dict[str, str]]:
    """Return the messages of one conversation, which no other conversation has."""
    return [
        message
        for n in range(HISTORY_LENGTH // 2)
        for message in (
            {"role": "user", "content": f"Question {n} of {number}: " + "Think well. " * 20},
            {"role": "assistant", "content": f"Reply {n} of {number}. " + "It is known. " * 20},
        )
    ]


def build_conversation(messages: list[dict[str, str]]) -> StoredConversation:
    encoded = [
        Message(role=one["role"], raw=msgspec.json.encode(one))  # type: ignore[arg-type]
        for one in messages
    ]
    pairs = zip(encoded[::2], encoded[1::2], strict=True)
    return make_conversation(str(uuid.uuid4()), pairs, model="gpt-4o")


async def fill_store(url: str, messages: int) -> list[Session]:
    """Add conversations with this many messages in all; return the last ones."""
    store: Store = open_store(url)
    sessions: list[Session] = []
    count = messages // HISTORY_LENGTH
    try:
        for number in range(count):
            history = build_messages(number)
            conversation = build_conversation(history)
            await store.add(conversation)
            if number >= count - 3 * WORKERS:
                sessions.append(Session(conversation.id, history))
            if sys.stderr.isatty():
                print(f"\r{number + 1} of {count} conversations", end="", file=sys.stderr)
    finally:
        await store.close()
    return sessions


async def send_requests(gateway: Gateway, sessions: list[Session], header: str | None) -> Cost:
    """Send some requests of each session; the history grows by each reply."""
    walls: list[float] = []
    async with aiohttp.ClientSession() as client:

        async def work(session: Session) -> None:
            extra = {} if header is None else {"X-Conversation-ID": header or session.conversation}
            for _ in range(REQUESTS):
                question = f"{QUESTION} {uuid.uuid4()}"
                start = asyncio.get_running_loop().time()
                url = f"http://127.0.0.1:{gateway.port}{CHAT}"
                async with client.post(url, data=session.body(question), headers=extra) as response:
                    reply = await response.json()
                    if response.status != 200:
                        raise SystemExit(f"cllm returned {response.status}: {reply}")
                    if extra and response.headers["X-Conversation-ID"] != session.conversation:
                        raise SystemExit("cllm did not recognise the history.")
                walls.append(asyncio.get_running_loop().time() - start)
                text = reply["choices"][0]["message"]["content"]
                session.messages += [
                    {"role": "user", "content": question},
                    {"role": "assistant", "content": text},
                ]

        before = gateway.cpu()
        await asyncio.gather(*map(work, sessions))
        cpu = gateway.cpu() - before
    return Cost(cpu=cpu / len(walls), wall=sorted(walls)[len(walls) // 2])


def report_recording(
    results: Results, gateway: Gateway, url: str, *, rounds: int, stored: int
) -> None:
    sessions = asyncio.run(fill_store(url, stored))
    headers = {STATELESS: None, FOUND: "auto", NAMED: ""}
    runs: dict[str, Callable[[], Cost]] = {
        name: partial(_run, gateway, sessions[number * WORKERS : (number + 1) * WORKERS], header)
        for number, (name, header) in enumerate(headers.items())
    }
    samples = interleave(runs, rounds=rounds)
    print(f"\nRequest with {HISTORY_LENGTH} messages, {stored:,} messages in the store")
    print(f"  {'median of one request':34}{'CPU µs':>10}{'wall ms':>10}{'x stateless':>14}")
    baseline = samples[STATELESS].cpu
    for name, sample in samples.items():
        ratio = sample.cpu / baseline
        print(f"  {name:34}{sample.cpu * 1e6:10.0f}{sample.wall * 1e3:10.2f}{ratio:14.2f}")
    results.add_samples("recorded histories", samples)
    for name in (FOUND, NAMED):
        quantity = f"{HISTORY_LENGTH} messages again and a question, {name}"
        results.compare(quantity, samples[name], samples[STATELESS], 2.0, itself=STATELESS)


def _run(gateway: Gateway, sessions: list[Session], header: str | None) -> Cost:
    return asyncio.run(send_requests(gateway, sessions, header))


def main() -> int:
    parser = make_parser(__doc__, rounds=5)
    parser.add_argument("--stored", type=int, default=STORED_MESSAGES)
    options = parser.parse_args()
    results = Results("recording")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with start_gateways(folder, Peers()) as gateways:
            report_recording(
                results,
                gateways[CLLM],
                store_url(folder),
                rounds=options.rounds,
                stored=options.stored,
            )
    return results.finish(options.json)


if __name__ == "__main__":
    sys.exit(main())

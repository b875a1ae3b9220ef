"""Measures requests with a whole history that `cllm serve` recognises and records, for `server.py`.

The store has a million messages. A client sends 500 of them again with a new question, as agents
do, once stateless and once with `X-Conversation-ID: auto`; and with the ID of the conversation.
"""

import argparse
import asyncio
import json
import sys
import tempfile
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import aiohttp
import msgspec

from cllm.core.conversation import StoredConversation, SystemRecord, Turn
from cllm.core.message import Message
from cllm.core.ports import Store
from cllm.library.stores import open_store
from gateways import Gateway, free_port, run_gateway, write_cllmfile
from load import CHAT, QUESTION
from measurement import Cost, Limits, interleave

HERE = Path(__file__).parent
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
    now = datetime.now(UTC)
    encoded = [
        Message(role=one["role"], raw=msgspec.json.encode(one))  # type: ignore[arg-type]
        for one in messages
    ]
    turns: list[Turn] = []
    for start in range(0, len(encoded), 2):
        turn_id = str(uuid.uuid4())
        turns.append(
            Turn(
                id=turn_id,
                place=turn_id,
                state="complete",
                messages=tuple(encoded[start : start + 2]),
                started_at=now,
                ended_at=now,
                model="gpt-4o",
            )
        )
    return StoredConversation(
        id=str(uuid.uuid4()),
        created_at=now,
        updated_at=now,
        model="gpt-4o",
        turns=tuple(turns),
        system_record=SystemRecord(policy="dynamic"),
    )


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
    gateway: Gateway, url: str, limits: Limits, *, rounds: int, stored: int
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
    for name in (FOUND, NAMED):
        ratio = samples[name].cpu / baseline
        limits.check(f"recorded history, {name} / stateless, CPU time", ratio, 2.0)


def _run(gateway: Gateway, sessions: list[Session], header: str | None) -> Cost:
    return asyncio.run(send_requests(gateway, sessions, header))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--stored", type=int, default=STORED_MESSAGES)
    options = parser.parse_args()
    limits = Limits()
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder, upstream, port = Path(name), free_port(), free_port()
        provider = [sys.executable, str(HERE / "upstream.py"), str(upstream)]
        stack.enter_context(run_gateway("upstream", provider, port=upstream, folder=folder))
        write_cllmfile(folder, f"http://127.0.0.1:{upstream}")
        store = f"sqlite:{folder}/conversations.db"
        serve = [sys.executable, "-m", "cllm", "serve", "--port", str(port), "--store", store]
        gateway = stack.enter_context(
            run_gateway("cllm", serve, port=port, folder=folder, environment={"HOME": str(folder)})
        )
        report_recording(gateway, store, limits, rounds=options.rounds, stored=options.stored)
    return limits.exit_code()


if __name__ == "__main__":
    sys.exit(main())

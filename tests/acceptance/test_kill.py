"""`kill -9` at random moments of commands and of a server: no question and no reply is lost."""

import asyncio
import logging
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path

import asyncpg
import pytest
from tests.command import Cllm
from tests.fake_provider import WAIT, FakeProvider
from tests.fake_provider.model import Reply, Request
from tests.home import Home
from tests.server_process import COMPLETIONS, Server, completion_body, open_empty_store
from tests.torture import choose_size

from cllm.app import now
from cllm.core.conversation import StoredConversation
from cllm.stores.registry import open_store

LOG = logging.getLogger(__name__)
KILLS = choose_size(6, full=200)
STREAMS = choose_size(12, full=100)
PAUSE_SECONDS = 0.1
PIECES = 60
PIECE_SECONDS = 0.1
BATCH_SECONDS = 0.15
LATE_SECONDS = 1.5
"""How late a busy machine may send, receive or store an event."""


@pytest.fixture
def cli_store(request: pytest.FixtureRequest, home: Home) -> Iterator[str]:
    if request.param == "json":
        yield f"json:{home.path / 'conversations'}"
        return
    with open_empty_store(request.param, home.path, request) as url:
        yield url


def load(url: str, ref: str) -> StoredConversation:
    async def read() -> StoredConversation:
        store = open_store(url, clock=now)
        try:
            return await store.load(ref)
        finally:
            await store.close()

    return asyncio.run(read())


def expire_leases(url: str) -> None:
    async def expire() -> None:
        connection = await asyncpg.connect(url)
        try:
            await connection.execute("UPDATE leases SET expires_at = now() - interval '1 second'")
        finally:
            await connection.close()

    if url.startswith("postgresql"):
        asyncio.run(expire())


def reply_slowly(provider: FakeProvider) -> None:
    """Pause in the middle of every reply, so that many kills are during a stream."""

    def choose(request: Request) -> Reply:
        gate = provider.gate()
        threading.Timer(PAUSE_SECONDS, gate.open).start()
        question = request.message_pairs[-1][1]
        return Reply(pieces=("echo: ", question), hold={1: gate})

    provider.choose = choose


@pytest.mark.torture
@pytest.mark.timeout(choose_size(300, full=3000))
@pytest.mark.parametrize("cli_store", ["json", "sqlite", "postgresql"], indirect=True)
def test_a_killed_command_loses_no_question_and_blocks_no_conversation(
    home: Home, provider: FakeProvider, settings: object, cllm: Cllm, cli_store: str
):
    reply_slowly(provider)
    chance = random.Random(20261116)  # noqa: S311 - chooses moments, guards nothing
    is_shared = not cli_store.startswith("postgresql")
    cllm("warm up", "--store", cli_store).succeeded()
    started = time.monotonic()
    cllm("first", "--store", cli_store, "--conversation", "demo").succeeded()
    usual = time.monotonic() - started
    acknowledged = {"first": "demo"}
    refs = {"first": "demo"}
    killed = 0

    for number in range(KILLS):
        question = f"question {number}"
        # In PostgreSQL a conversation is busy until the lease expires.
        refs[question] = "demo" if is_shared else f"demo-{number}"
        count = len(provider.requests)
        running = cllm.start(question, "--store", cli_store, "--conversation", refs[question])
        if number % 2:
            # The model is called: the kill is during the reply or while it is saved.
            provider.wait_for(count + 1)
            time.sleep(chance.uniform(0, 2 * PAUSE_SECONDS))
        else:
            time.sleep(chance.uniform(0, 1.2 * usual))
        running.process.kill()
        result = running.finish()
        running.close()
        assert "Waiting" not in result.err
        if result.code == 0:
            acknowledged[question] = refs[question]
        else:
            killed += 1

    assert killed > 0, "no process was killed before its end, so nothing was tested"
    last = cllm("last", "--store", cli_store, "--conversation", "demo").succeeded()
    assert "Waiting" not in last.err
    expire_leases(cli_store)
    sent = [request.message_pairs[-1][1] for request in provider.requests[1:]]
    conversations = {ref: load(cli_store, ref) for ref in {refs.get(each, "demo") for each in sent}}
    for question in sent:
        ref = refs.get(question, "demo")
        turns = [turn for turn in conversations[ref].turns if turn.messages[0].text == question]
        assert len(turns) == 1, f"{question} is stored {len(turns)} times"
        texts = [message.text for message in turns[0].messages]
        if question in acknowledged or question == "last":
            assert (turns[0].state, texts[1:]) == ("complete", [f"echo: {question}"])
        else:
            assert turns[0].state in {"complete", "failed"}
    stored = [turn.messages[0].text for turn in conversations["demo"].turns]
    order = ["first", *(question for question in refs if question in stored[1:]), "last"]
    assert stored == order
    LOG.info("%d of %d killed, %d questions sent, none is missing", killed, KILLS, len(sent))


TURNS = (("one", "echo: one"), ("two", "echo: two"))


@pytest.mark.torture
@pytest.mark.timeout(choose_size(300, full=3000))
@pytest.mark.parametrize("cli_store", ["json", "sqlite", "postgresql"], indirect=True)
@pytest.mark.parametrize("command", ["undo", "edit", "edit-reply", "edit-earlier"])
def test_a_killed_undo_or_edit_leaves_the_conversation_as_before_or_after(
    home: Home, provider: FakeProvider, settings: object, cllm: Cllm, cli_store: str, command: str
):
    provider.choose = lambda request: Reply(pieces=("echo: ", request.message_pairs[-1][1]))
    arguments, changed = {
        "undo": (("undo", "{ref}", "--yes"), TURNS[:1]),
        "edit": (("edit", "{ref}", "3", "new"), (TURNS[0], ("new", "echo: new"))),
        "edit-reply": (("edit", "{ref}", "4", "new"), (TURNS[0], ("two", "new"))),
        "edit-earlier": (("edit", "{ref}", "1", "new", "--to", "{ref}-new"), TURNS),
    }[command]
    chance = random.Random(20261118)  # noqa: S311 - chooses moments, guards nothing

    def run(ref: str) -> list[str]:
        words = (word.format(ref=ref) for word in arguments)
        return ["conversations", *words, "--store", cli_store]

    def prepare(ref: str) -> None:
        for question, _ in TURNS:
            cllm(question, "--store", cli_store, "--conversation", ref).succeeded()

    prepare("warm")
    started = time.monotonic()
    cllm(*run("warm")).succeeded()
    usual = time.monotonic() - started
    killed = 0
    for number in range(KILLS):
        ref = f"demo-{number}"
        prepare(ref)
        running = cllm.start(*run(ref))
        # The first one is killed at once, so that at least one is killed before its end.
        time.sleep(chance.uniform(0, 1.1) * usual if number else 0)
        running.process.kill()
        result = running.finish()
        running.close()
        killed += result.code != 0
        expire_leases(cli_store)
        stored = load(cli_store, ref)
        pairs = tuple(
            tuple(message.text for message in turn.messages)
            for turn in stored.turns
            if turn.state == "complete"
        )
        assert pairs in ((changed,) if result.code == 0 else (TURNS, changed)), result.report()
        again = cllm("three", "--store", cli_store, "--conversation", ref).succeeded()
        assert "Waiting" not in again.err
    assert killed > 0, "no process was killed before its end, so nothing was tested"
    cllm("verify", "--store", cli_store).succeeded()


@dataclass
class Received:
    """What a client received: pieces of text with their times."""

    conversation: str = ""
    pieces: list[tuple[float, str]] = field(default_factory=list)
    is_complete: bool = False

    def read(self, server: Server, question: str) -> None:
        body = completion_body(("user", question), stream=True)
        with suppress(OSError, HTTPException):
            opened = server.open("POST", COMPLETIONS, body, {"X-Conversation-ID": ""}, timeout=WAIT)
            self.conversation = opened.headers["x-conversation-id"]
            while event := opened.event():
                self.is_complete = self.is_complete or b"[DONE]" in event
                text = event.partition(b'"content":"')[2].partition(b'"')[0].decode()
                if text:
                    self.pieces.append((time.monotonic(), text))
            opened.leave()

    def text(self, before: float) -> str:
        return "".join(text for at, text in self.pieces if at < before)


def kill_with_workers(server: Server) -> None:
    pid = server.process.pid
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    for each in (pid, *map(int, children)):
        os.kill(each, signal.SIGKILL)
    server.wait()


@pytest.mark.torture
@pytest.mark.timeout(choose_size(300, full=1200))
@pytest.mark.parametrize("store_url", ["sqlite", "postgresql"], indirect=True)
def test_a_killed_server_keeps_the_text_of_its_streams(
    serve: Callable[..., Server], provider: FakeProvider, store_url: str
):
    pieces = tuple(f"piece {number} " for number in range(PIECES))
    gates = [provider.gate() for _ in range(PIECES)]
    provider.choose = lambda _: Reply(pieces=pieces, hold=dict(enumerate(gates)))
    server = serve("--workers", "2")
    clients = [Received() for _ in range(STREAMS)]
    with ThreadPoolExecutor(STREAMS) as pool:
        reading = [
            pool.submit(client.read, server, f"question {number}")
            for number, client in enumerate(clients)
        ]
        provider.wait_for(STREAMS)
        for gate in gates[: PIECES // 2]:
            gate.open()
            time.sleep(PIECE_SECONDS)
        killed_at = time.monotonic()
        kill_with_workers(server)
        for future in reading:
            future.result(WAIT)
    for gate in gates:
        gate.open()
    expire_leases(store_url)
    again = serve()

    losses = []
    for number, client in enumerate(clients):
        detail = again("GET", f"/v1/conversations/{client.conversation}").json
        question, *replies = [(each["role"], each["content"]) for each in detail["messages"]]
        assert question == ("user", f"question {number}")
        saved = replies[0][1] if replies else ""
        assert "".join(pieces).startswith(saved)
        interrupted = "incomplete" if saved else "failed"
        state = "complete" if client.is_complete else interrupted
        assert {each["state"] for each in detail["messages"]} == {state}
        oldest = killed_at - BATCH_SECONDS - LATE_SECONDS
        assert saved.startswith(client.text(before=oldest)), "more than the last batch is lost"
        lost = [at for at, text in client.pieces if len(client.text(before=at) + text) > len(saved)]
        losses.append(killed_at - min(lost) if lost else 0.0)
    assert again("GET", "/v1/conversations").json["total"] == STREAMS
    LOG.info("%d streams; lost text was sent %.3f s before the kill", STREAMS, max(losses))

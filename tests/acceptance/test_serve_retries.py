"""`cllm serve` and retried requests: after a crash, an error, or by the client's SDK."""

import asyncio
import json
import signal
import sqlite3
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import anthropic
import asyncpg
import openai
import pytest
from tests.fake_provider import FakeProvider
from tests.server_process import (
    COMPLETIONS,
    Response,
    Server,
    completion_body,
    list_messages,
    read_stored_bytes,
)

SYSTEM = ("system", "Be brief.")
HELLO = ("user", "Hello.")
AGAIN = ("user", "Again.")
ANSWERED = [HELLO, ("assistant", "echo: Hello.")]
MANY = 20

shared = pytest.mark.parametrize("store_url", ["sqlite", "postgresql"], indirect=True)
"""A store that survives a server and that two servers can share."""


def with_key(conversation: str = "") -> dict[str, str]:
    return {"X-Conversation-ID": conversation, "Idempotency-Key": str(uuid.uuid4())}


def complete(server: Server, headers: dict[str, str], **fields: Any) -> Response:
    return server("POST", COMPLETIONS, completion_body(SYSTEM, HELLO, **fields), headers)


def change_database(url: str, sqlite: str, postgres: str) -> None:
    """Change the database as time or a crash would."""
    if url.startswith("postgresql:"):
        asyncio.run(_execute(url, postgres))
        return
    with closing(sqlite3.connect(url.removeprefix("sqlite:"))) as db, db:
        db.execute(sqlite)


async def _execute(url: str, statement: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


def expire_claims(url: str, table: str) -> None:
    """Let all claims in the table expire."""
    change_database(
        url,
        f"UPDATE {table} SET expires_at = '2020' || substr(expires_at, 5)",  # noqa: S608
        f"UPDATE {table} SET expires_at = now() - interval '1 second'",  # noqa: S608
    )


def delete_saved_response(url: str) -> None:
    """Simulate a kill after the turn was saved and before its response was."""
    unanswered = "UPDATE requests SET status = NULL"
    change_database(url, unanswered, unanswered)
    expire_claims(url, "requests")


def kill_during_reply(server: Server, provider: FakeProvider, headers: dict[str, str]) -> str:
    """Kill the server during a reply; return the ID of the turn."""
    provider.queue_held_reply("Half of ", "an answer.", at=1)
    body = completion_body(SYSTEM, HELLO, stream=True)
    opened = server.open("POST", COMPLETIONS, body, headers)
    opened.event()
    server.process.send_signal(signal.SIGKILL)
    server.wait()
    opened.leave()
    return opened.headers["x-turn-id"]


def get_conversation(server: Server, conversation: str) -> dict[str, Any]:
    found: dict[str, Any] = server("GET", f"/v1/conversations/{conversation}?variants=true").json
    return found


def list_turn_states(server: Server, conversation: str) -> tuple[list[str], list[str]]:
    """Return the states of the turns on the default path, and of the variants."""
    found = get_conversation(server, conversation)
    on = {message["turn_id"]: message["state"] for message in found["messages"]}
    off = {
        each["turn_id"]: each["state"] for turn in found["variants"] for each in turn["messages"]
    }
    return list(on.values()), list(off.values())


def count(server: Server) -> int:
    total: int = server("GET", "/v1/conversations").json["total"]
    return total


@pytest.mark.parametrize("store_url", ["sqlite"], indirect=True)
def test_a_retry_after_a_crash_on_the_same_machine_replaces_the_turn_at_once(
    serve: Callable[..., Server], provider: FakeProvider
):
    headers = with_key()
    kill_during_reply(serve(), provider, headers)
    server = serve()

    retried = complete(server, headers, stream=True)

    assert retried.streamed_text == "echo: Hello."
    assert count(server) == 1
    assert list(list_messages(server, retried.conversation)) == ANSWERED


@pytest.mark.parametrize("store_url", ["postgresql"], indirect=True)
def test_a_retry_after_a_crash_replaces_the_turn(
    serve: Callable[..., Server], provider: FakeProvider, store_url: str
):
    headers = with_key()
    killed = kill_during_reply(serve(), provider, headers)
    one, other = serve(), serve()

    early = complete(other, headers, stream=True)
    expire_claims(store_url, "requests")
    running = complete(other, headers, stream=True)
    expire_claims(store_url, "leases")
    late = complete(one, headers, stream=True)

    assert (early.status, early.error["code"]) == (409, "idempotency_conflict")
    assert (running.status, running.headers["x-turn-id"]) == (409, killed)
    assert late.streamed_text == "echo: Hello."
    assert provider.requests[-1].message_pairs == [SYSTEM, HELLO]
    assert count(other) == 1
    assert list(list_messages(other, late.conversation)) == ANSWERED
    on_path, off_path = list_turn_states(other, late.conversation)
    assert on_path == ["complete"]
    assert set(off_path) <= {"failed", "incomplete"}
    assert complete(other, headers, stream=True).body == late.body


@shared
def test_only_one_of_many_retries_takes_over_the_request_of_a_dead_server(
    serve: Callable[..., Server], provider: FakeProvider, store_url: str
):
    headers = with_key()
    kill_during_reply(serve(), provider, headers)
    for table in ("requests", "leases"):
        expire_claims(store_url, table)
    server = serve("--workers", "2")
    with ThreadPoolExecutor(MANY) as pool:
        responses = list(pool.map(lambda _: complete(server, headers, stream=True), range(MANY)))
    last = complete(server, headers, stream=True)

    assert {response.status for response in responses} <= {200, 409}
    assert {response.body for response in responses if response.status == 200} == {last.body}
    assert len(provider.requests) == 2
    assert count(server) == 1
    assert list(list_messages(server, last.conversation)) == ANSWERED


@shared
@pytest.mark.parametrize("stream", [False, True])
def test_a_saved_response_is_replayed_after_a_crash(
    serve: Callable[..., Server], provider: FakeProvider, store_url: str, stream: bool
):
    server, headers = serve(), with_key()
    first = complete(server, headers, stream=stream)
    delete_saved_response(store_url)

    again = complete(server, headers, stream=stream)

    assert again.body == first.body
    assert again.headers["content-type"] == first.headers["content-type"]
    assert again.headers["x-turn-id"] == first.headers["x-turn-id"]
    assert len(provider.requests) == 1
    assert complete(server, headers, stream=stream).body == first.body


@shared
def test_a_crash_before_the_turn_starts_does_not_block_the_key_for_a_day(
    serve: Callable[..., Server], provider: FakeProvider, store_url: str
):
    """A stateless request has no turn; its key is free when its claim expires.

    In SQLite, a claim of a dead process on this machine is free at once.
    """
    headers = {"Idempotency-Key": "stateless"}
    server = serve()
    gate = provider.queue_held_reply("Never said.", at=0)
    with ThreadPoolExecutor(1) as pool:
        lost = pool.submit(complete, server, headers)
        gate.wait_reached()
        server.process.send_signal(signal.SIGKILL)
        assert isinstance(lost.exception(), OSError)
    again = serve()

    if store_url.startswith("postgresql"):
        refused = complete(again, headers)
        expire_claims(store_url, "requests")
        assert refused.status == 409
        assert int(refused.headers["retry-after"]) <= 60
    assert complete(again, headers).text == "echo: Hello."


def test_a_retry_with_the_same_key_replaces_the_failed_turn(
    serve: Callable[..., Server], provider: FakeProvider
):
    server, headers = serve(), with_key()
    provider.queue_error(500, "Broken.")

    failed = complete(server, headers)
    answered = complete(server, headers)

    assert (failed.status, answered.status) == (500, 200)
    assert answered.conversation == failed.conversation
    assert list_turn_states(server, answered.conversation) == (["complete"], ["failed"])
    assert count(server) == 1


def test_a_key_does_not_restore_a_deleted_conversation(
    serve: Callable[..., Server], provider: FakeProvider
):
    server, headers = serve(), with_key()
    provider.queue_error(500, "Broken.")
    failed = complete(server, headers)
    server("DELETE", f"/v1/conversations/{failed.conversation}?permanent=true")

    answered = complete(server, headers)

    assert answered.status == 200
    assert answered.conversation != failed.conversation


@shared
@pytest.mark.parametrize("deleted", ["?permanent=true", "/messages/2"])
def test_no_saved_response_of_a_deleted_conversation_remains(
    serve: Callable[..., Server], provider: FakeProvider, store_url: str, home: Any, deleted: str
):
    server, headers = serve(), with_key()
    provider.queue_reply("Marzipan.")
    answered = complete(server, headers)
    assert b"Marzipan" in read_stored_bytes(store_url, home.path)

    server("DELETE", f"/v1/conversations/{answered.conversation}{deleted}")
    server.terminate()
    server.wait()

    assert b"Marzipan" not in read_stored_bytes(store_url, home.path)


def test_a_retry_of_a_failed_request_does_not_replace_later_messages(
    serve: Callable[..., Server], provider: FakeProvider
):
    server = serve()
    first_response = server.complete(HELLO, conversation="")
    headers = with_key(first_response.conversation)
    provider.queue_error(500, "Broken.")
    complete(server, headers)
    server.complete(AGAIN, conversation=first_response.conversation)

    complete(server, headers)

    contents = [content for _, content in list_messages(server, first_response.conversation)]
    assert contents[-4:] == ["Again.", "echo: Again.", "Hello.", "echo: Hello."]


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_counts_retries_creates_one_conversation(
    serve: Callable[..., Server], provider: FakeProvider, stream: bool
):
    server = serve()
    provider.queue_error(500, "Broken.")
    provider.queue_error(429, "Slow down.", retry_after="0")
    with openai.OpenAI(base_url=f"{server.address}/v1", api_key="any", max_retries=3) as client:
        response = client.chat.completions.with_raw_response.create(
            model="openai/gpt-test",
            messages=[
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": "Hello."},
            ],
            stream=stream,
            extra_headers={"X-Conversation-ID": ""},
        )
        body = response.http_response.read().decode()

    assert response.retries_taken == 2
    assert "Hello." in body
    assert count(server) == 1
    assert provider.requests[-1].message_pairs == [SYSTEM, HELLO]
    conversation = response.headers["x-conversation-id"]
    assert list(list_messages(server, conversation)) == ANSWERED
    assert list_turn_states(server, conversation) == (["complete"], ["failed", "failed"])


@pytest.mark.parametrize(
    ("status", "code", "calls"), [(503, None, 3), (429, "insufficient_quota", 1)]
)
@pytest.mark.parametrize("protocol", ["openai", "anthropic"])
def test_the_retries_of_client_and_server_do_not_multiply(
    serve: Callable[..., Server],
    provider: FakeProvider,
    protocol: str,
    status: int,
    code: str | None,
    calls: int,
):
    server = serve(num_retries=2)
    for _ in range(9):
        provider.queue_error(status, "No.", code=code, retry_after="0")
    message: Any = {"role": "user", "content": "Hello."}

    if protocol == "openai":
        with (
            openai.OpenAI(base_url=f"{server.address}/v1", api_key="any") as client,
            pytest.raises(openai.APIStatusError),
        ):
            client.chat.completions.create(model="openai/gpt-test", messages=[message])
    else:
        with (
            anthropic.Anthropic(base_url=server.address, api_key="any") as other,
            pytest.raises(anthropic.APIStatusError),
        ):
            other.messages.create(model="openai/gpt-test", max_tokens=9, messages=[message])

    assert len(provider.requests) == calls


def test_equal_requests_are_two_conversations_unless_one_is_a_retry(
    serve: Callable[..., Server], provider: FakeProvider
):
    server = serve()
    first, second = {"x-stainless-retry-count": "0"}, {"x-stainless-retry-count": "1"}
    for _ in range(2):
        provider.queue_error(500, "Broken.")
    failed = [complete(server, {"X-Conversation-ID": "", **first}) for _ in range(2)]

    taken_up = complete(server, {"X-Conversation-ID": "", **second})
    nothing_left = complete(server, {"X-Conversation-ID": "", **second})

    assert count(server) == 3
    assert taken_up.conversation == failed[1].conversation
    assert nothing_left.conversation not in [response.conversation for response in failed]
    assert [response.status for response in (taken_up, nothing_left)] == [200, 200]


def test_a_client_that_counts_retries_adds_no_message_twice(
    serve: Callable[..., Server], provider: FakeProvider
):
    server = serve()
    first_response = server.complete(HELLO, conversation="")
    provider.queue_error(500, "Broken.")
    for retries in ("0", "1"):
        response = server.complete(
            AGAIN,
            conversation=first_response.conversation,
            headers={"x-stainless-retry-count": retries},
        )

    assert response.status == 200
    assert list(list_messages(server, first_response.conversation)) == [
        *ANSWERED,
        AGAIN,
        ("assistant", "echo: Again."),
    ]


def stop_during_reply(
    server: Server, provider: FakeProvider, headers: dict[str, str], *, text: str
) -> Response:
    """Stop the server by SIGTERM during a reply, after the text; return its response."""
    parts = (text, "never") if text else ("never",)
    gate = provider.queue_held_reply(*parts, at=len(parts) - 1)
    with ThreadPoolExecutor(1) as pool:
        body = completion_body(AGAIN, stream=bool(text))
        response = pool.submit(server, "POST", COMPLETIONS, body, headers)
        gate.wait_reached()
        server.terminate()
        assert server.wait() == 0
        return response.result()


def retry_headers(conversation: str, retries: int) -> dict[str, str]:
    return {"X-Conversation-ID": conversation, "x-stainless-retry-count": str(retries)}


stopped = pytest.mark.parametrize(
    ("text", "state"), [("", "failed"), ("Half of ", "incomplete")], ids=["no text", "text"]
)
STOP_NOW = {"limits": {"stop_seconds": 0.1}}


@shared
@stopped
def test_a_retry_after_a_stop_of_the_server_replaces_the_last_turn(
    serve: Callable[..., Server], provider: FakeProvider, text: str, state: str
):
    server = serve(server=STOP_NOW)
    conversation = server.complete(HELLO, conversation="").conversation
    for attempt in range(2):
        stop_during_reply(server, provider, retry_headers(conversation, attempt), text=text)
        server = serve(server=STOP_NOW)

    retried = server.complete(AGAIN, headers=retry_headers(conversation, 2))

    assert retried.status == 200
    assert provider.requests[-1].message_pairs == [*ANSWERED, AGAIN]
    assert list(list_messages(server, conversation)) == [
        *ANSWERED,
        AGAIN,
        ("assistant", "echo: Again."),
    ]
    assert list_turn_states(server, conversation) == (["complete"] * 2, [state] * 2)


@shared
@stopped
def test_retries_after_stops_of_the_server_create_one_conversation(
    serve: Callable[..., Server], provider: FakeProvider, text: str, state: str
):
    for attempt in range(2):
        stop_during_reply(serve(server=STOP_NOW), provider, retry_headers("", attempt), text=text)
    server = serve()

    # The same body as that of the stopped requests: it identifies the retry.
    body = completion_body(AGAIN, stream=bool(text))
    retried = server("POST", COMPLETIONS, body, retry_headers("", 2))

    assert retried.status == 200
    assert count(server) == 1
    assert provider.requests[-1].message_pairs == [AGAIN]
    assert list_turn_states(server, retried.conversation) == (["complete"], [state] * 2)


def test_the_next_prompt_after_a_stop_without_text_does_not_send_the_unanswered_one(
    serve: Callable[..., Server], provider: FakeProvider
):
    server = serve(server=STOP_NOW)
    conversation = server.complete(HELLO, conversation="").conversation
    stop_during_reply(server, provider, {"X-Conversation-ID": conversation}, text="")
    server = serve()

    server.complete(("user", "Next."), conversation=conversation)

    assert provider.requests[-1].message_pairs == [*ANSWERED, ("user", "Next.")]
    assert list_turn_states(server, conversation)[0] == ["complete", "failed", "complete"]


@pytest.mark.parametrize(
    "conversation", [{}, {"X-Conversation-ID": ""}], ids=["stateless", "saved"]
)
def test_the_response_of_a_stopped_turn_has_the_headers_for_a_retry(
    serve: Callable[..., Server], provider: FakeProvider, conversation: dict[str, str]
):
    response = stop_during_reply(serve(server=STOP_NOW), provider, conversation, text="")

    assert (response.status, response.error["code"]) == (503, "shutting_down")
    assert response.headers["x-should-retry"] == "true"
    assert response.headers["retry-after"] == "1"


FAULTY = """
from cllm.core.message import plain_message
from cllm.core.reply import TextDelta


class Faulty:
    def __init__(self, name, settings):
        self.name = name

    async def prepare(self):
        pass

    async def ask(self, prompt):
        if prompt.model == "late":
            yield TextDelta(text="Half of ")
        raise KeyError("a mistake")

    async def close(self):
        pass
"""


@pytest.fixture
def faulty(home: Any) -> dict[str, str]:
    """Install a provider with a bug; return the environment that finds it."""
    info = home.path / "site/faulty-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: faulty\nVersion: 1.0\n", "utf-8")
    (info / "entry_points.txt").write_text("[cllm.providers]\nfaulty = faulty:Faulty\n", "utf-8")
    (home.path / "site/faulty.py").write_text(FAULTY, "utf-8")
    return {**home.environment, "PYTHONPATH": str(home.path / "site")}


@pytest.mark.parametrize("conversation", [None, ""])
def test_a_bug_before_the_first_event_is_a_response_with_its_status(
    home: Any, faulty: dict[str, str], conversation: str | None
):
    headers = {"Idempotency-Key": "mistaken"}
    with Server(environment=faulty, directory=home.work, store="memory:") as server:
        for _ in range(2):
            failed = server.complete(
                HELLO,
                conversation=conversation,
                headers=headers,
                model="faulty/early",
                stream=True,
            )
            assert (failed.status, failed.error["code"]) == (500, "internal_error")
            assert failed.headers["content-type"] == "application/json"
        late = server.complete(HELLO, conversation=conversation, model="faulty/late", stream=True)
        server.terminate()
        server.wait()

    assert late.status == 200
    assert late.streamed_text == "Half of "
    assert late.events[-1]["error"]["code"] == "internal_error"
    lines = [json.loads(line) for line in server.log.splitlines() if line.startswith("{")]
    assert [line["fault"].split(" < ")[0] for line in lines if "fault" in line] == ["KeyError"] * 3

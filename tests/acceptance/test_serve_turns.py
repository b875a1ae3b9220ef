"""`cllm serve`: one turn at a time in a conversation, repeated requests, limits, providers."""

import http.client
import json
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.fake_provider import FakeProvider
from tests.server_process import COMPLETIONS, Server, list_messages, read_stored_bytes

HELLO = ("user", "Hello.")
ECHO = ("assistant", "echo: Hello.")
AGAIN = ("user", "Again.")


class RunningTurn:
    """A turn that runs until `end` is called."""

    def __init__(self, server: Server, provider: FakeProvider) -> None:
        self.conversation = server.complete(HELLO, conversation="").conversation
        self._gate = provider.queue_held_reply("RunningTurn.", at=0)
        count = len(provider.requests)
        self._pool = ThreadPoolExecutor(1)
        self._answer = self._pool.submit(
            server.complete, ("user", "First."), conversation=self.conversation
        )
        provider.wait_for(count + 1)

    def end(self) -> str:
        self._gate.open()
        text = self._answer.result().text
        self._pool.shutdown()
        return text


def test_a_second_turn_is_rejected_while_one_runs(server: Server, upstream: FakeProvider):
    held = RunningTurn(server, upstream)

    refused = server.complete(AGAIN, conversation=held.conversation)

    assert held.end() == "RunningTurn."
    assert refused.status == 409
    assert refused.error["code"] == "conversation_busy"
    assert int(refused.headers["retry-after"]) >= 1
    shown = server("GET", f"/v1/conversations/{held.conversation}").json
    assert refused.headers["x-turn-id"] == shown["messages"][-1]["turn_id"]


def test_a_queued_turn_waits_for_the_running_one(server: Server, upstream: FakeProvider):
    held = RunningTurn(server, upstream)
    with ThreadPoolExecutor(1) as pool:
        queued = pool.submit(
            server.complete,
            AGAIN,
            conversation=held.conversation,
            headers={"X-On-Conflict": "queue"},
        )
        time.sleep(0.3)
        assert not queued.done()
        held.end()
        answer = queued.result()

    assert answer.text == "echo: Again."
    assert [content for _, content in list_messages(server, held.conversation)] == [
        "Hello.",
        "echo: Hello.",
        "First.",
        "RunningTurn.",
        "Again.",
        "echo: Again.",
    ]


def test_queued_turns_run_in_the_order_of_their_requests(
    server: Server, upstream: FakeProvider, until: Callable[..., bool]
):
    held = RunningTurn(server, upstream)
    numbers = [str(number) for number in range(8)]
    with ThreadPoolExecutor(len(numbers)) as pool:
        for position, number in enumerate(numbers):
            pool.submit(
                server.complete,
                ("user", number),
                conversation=held.conversation,
                headers={"X-On-Conflict": "queue"},
            )
            # The held request, this one and the earlier ones, and the one for the metrics.
            running = f"cllm_requests_running {position + 3}.0"
            assert until(lambda: running in server("GET", "/metrics").body.decode())  # noqa: B023
        held.end()

    contents = [content for _, content in list_messages(server, held.conversation)]
    assert [content for content in contents if content in numbers] == numbers


def test_a_conflicting_turn_can_continue_in_a_branch(server: Server, upstream: FakeProvider):
    held = RunningTurn(server, upstream)

    answer = server.complete(
        AGAIN, conversation=held.conversation, headers={"X-On-Conflict": "branch"}
    )

    held.end()
    assert answer.status == 200
    assert answer.text == "echo: Again."
    assert answer.conversation != held.conversation
    assert list(list_messages(server, answer.conversation)) == [
        HELLO,
        ECHO,
        AGAIN,
        ("assistant", "echo: Again."),
    ]
    assert len(list(list_messages(server, held.conversation))) == 4


def test_each_of_many_concurrent_turns_is_saved_or_rejected(server: Server):
    conversation = server.complete(HELLO, conversation="").conversation
    with ThreadPoolExecutor(12) as pool:
        answers = list(
            pool.map(
                lambda number: server.complete(
                    ("user", f"Number {number}."), conversation=conversation
                ),
                range(12),
            )
        )

    assert {answer.status for answer in answers} <= {200, 409}
    stored = [content for _, content in list_messages(server, conversation)][2:]
    assert len(stored) == 2 * sum(answer.status == 200 for answer in answers)
    for question, reply in zip(stored[::2], stored[1::2], strict=True):
        assert reply == f"echo: {question}"


@pytest.mark.parametrize("stream", [False, True])
def test_the_same_key_and_request_call_the_provider_once(
    server: Server, upstream: FakeProvider, stream: bool
):
    headers = {"Idempotency-Key": f"once-{stream}-{time.time()}"}

    first = server.complete(HELLO, conversation="", headers=headers, stream=stream)
    count = len(upstream.requests)
    again = server.complete(HELLO, conversation="", headers=headers, stream=stream)

    assert len(upstream.requests) == count
    assert again.body == first.body
    assert again.conversation == first.conversation
    assert again.headers["x-turn-id"] == first.headers["x-turn-id"]
    assert again.headers["content-type"] == first.headers["content-type"]
    assert len(list(list_messages(server, first.conversation))) == 2


def test_a_key_with_another_request_is_a_conflict(server: Server):
    headers = {"Idempotency-Key": f"conflict-{time.time()}"}
    server.complete(HELLO, headers=headers)

    answer = server.complete(AGAIN, headers=headers)

    assert answer.status == 409
    assert answer.error["code"] == "idempotency_conflict"


@pytest.mark.parametrize("first", ["begin", "continue", "stateless"])
@pytest.mark.parametrize("second", ["begin", "continue", "stateless", "continue another"])
@pytest.mark.parametrize("stream", [False, True])
def test_a_key_applies_to_one_conversation_only(
    server: Server, upstream: FakeProvider, first: str, second: str, stream: bool
):
    """The body is the same; only the header names another conversation."""
    one = server.complete(HELLO, conversation="").conversation
    other = server.complete(HELLO, conversation="").conversation
    meant = {"begin": "", "continue": one, "stateless": None, "continue another": other}
    key = {"Idempotency-Key": str(uuid.uuid4())}
    fields: dict[str, Any] = {"stream": stream, "headers": key}
    reply = server.complete(HELLO, conversation=meant[first], **fields)
    request_count = len(upstream.requests)
    again = server.complete(HELLO, conversation=meant[second], **fields)

    assert reply.status == 200
    assert len(upstream.requests) == request_count
    if first == second:
        assert (again.status, again.body) == (200, reply.body)
    else:
        assert again.status == 409
        assert again.error["code"] == "idempotency_conflict"
    assert len(list(list_messages(server, one))) == (4 if first == "continue" else 2)
    assert len(list(list_messages(server, other))) == 2


def test_a_failed_request_can_be_retried_with_its_key(server: Server, upstream: FakeProvider):
    headers = {"Idempotency-Key": f"retry-{time.time()}"}
    upstream.queue_error(500, "Broken.")

    assert server.complete(HELLO, headers=headers).status == 500
    assert server.complete(HELLO, headers=headers).text == "echo: Hello."


def test_a_running_request_is_not_repeated(server: Server, upstream: FakeProvider):
    headers = {"Idempotency-Key": f"flight-{time.time()}"}
    gate = upstream.queue_held_reply("Late.", at=0)
    count = len(upstream.requests)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(server.complete, HELLO, headers=headers)
        upstream.wait_for(count + 1)
        refused = server.complete(HELLO, headers=headers)
        gate.open()
        first.result()

    assert refused.status == 409
    assert server.complete(HELLO, headers=headers).text == "Late."
    assert len(upstream.requests) == count + 1


def test_the_system_prefix_comes_before_every_system_prompt(
    serve: Callable[..., Server], provider: FakeProvider
):
    server = serve(server={"system_prefix": "Operator."})
    question = []

    for conversation in (None, ""):
        server.complete(("system", "Client."), HELLO, conversation=conversation)
        question.append(provider.requests[-1].message_pairs[0])
        first_response = server.complete(HELLO, conversation=conversation)
        question.append(provider.requests[-1].message_pairs[0])
    server.complete(("system", "Client."), AGAIN, conversation=first_response.conversation)
    question.append(provider.requests[-1].message_pairs[0])
    blocks = [{"type": "text", "text": "Block."}]
    server.complete(("system", blocks), HELLO)

    both, alone = ("system", "Operator.\n\nClient."), ("system", "Operator.")
    assert question == [both, alone, both, alone, both]
    assert provider.requests[-1].message_pairs[0][1] == [
        {"type": "text", "text": "Operator."},
        *blocks,
    ]
    assert (
        "Operator."
        not in server("GET", f"/v1/conversations/{first_response.conversation}").body.decode()
    )


def test_no_system_prompt_and_no_content_is_in_the_store_or_the_log(
    serve: Callable[..., Server], provider: FakeProvider, home: "Path", store_url: str
):
    server = serve(server={"system_prefix": "operator-text-4711"})
    first_response = server.complete(("system", "system-text-0815"), HELLO, conversation="")
    server.complete(
        ("developer", "system-text-0816"), AGAIN, conversation=first_response.conversation
    )
    server.complete(("system", "system-text-0817"), conversation=first_response.conversation)
    provider.queue_error(500, "Broken.")
    server.complete(("system", "system-text-0818"), AGAIN, conversation=first_response.conversation)
    server.terminate()
    server.wait()

    folder: Path = home.path  # type: ignore[attr-defined]
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != "Cllmfile.yml"]
    stored = b"".join(path.read_bytes() for path in files) + read_stored_bytes(store_url, folder)
    assert (b"Hello." in stored) == (store_url != "memory:")
    for text in (b"system-text", b"operator-text"):
        assert text not in stored
        assert text.decode() not in server.log
    assert "Hello." not in server.log
    assert "sk-test" not in server.log


def test_a_header_can_select_the_provider(serve: Callable[..., Server], provider: FakeProvider):
    server = serve(providers={"mine": {"type": "openai", "api_base": provider.url}})

    named = server.complete(HELLO, model="some-model", headers={"X-Provider": "mine"})
    other = server.complete(HELLO, model="openai/gpt", headers={"X-Provider": "mine"})
    nobody = server.complete(HELLO, headers={"X-Provider": "nobody"})

    assert named.text == "echo: Hello."
    assert provider.requests[-1].json["model"] == "some-model"
    assert (other.status, other.error["code"]) == (400, "invalid_header")
    assert (nobody.status, nobody.error["code"]) == (400, "invalid_header")


def test_a_model_can_be_routed_to_another(serve: Callable[..., Server], provider: FakeProvider):
    server = serve(server={"routes": {"fast": "openai/gpt-mini"}})

    assert server.complete(HELLO, model="fast").status == 200
    assert provider.requests[-1].json["model"] == "gpt-mini"


def test_strict_rejects_a_request_that_would_be_changed(server: Server, upstream: FakeProvider):
    lost = {"role": "tool", "tool_call_id": "call_9", "content": "Nobody asked."}
    body = {"model": "openai/gpt-test", "messages": [{"role": "user", "content": "Hi."}, lost]}
    count = len(upstream.requests)

    answer = server("POST", COMPLETIONS, body, {"X-CLLM-Strict": "true"})

    assert answer.status == 400
    assert len(upstream.requests) == count


@pytest.mark.parametrize(
    ("header", "value"), [("X-On-Conflict", "shout"), ("X-CLLM-Strict", "maybe")]
)
def test_an_invalid_header_is_rejected(server: Server, header: str, value: str):
    answer = server.complete(HELLO, headers={header: value})

    assert answer.status == 400
    assert answer.error["code"] == "invalid_header"
    assert answer.error["param"] == header


def test_limits_apply_before_a_body_is_decoded(
    serve: Callable[..., Server], provider: FakeProvider
):
    limits = {"body_bytes": 5000, "messages": 3, "parts": 4, "depth": 8, "body_seconds": 0.5}
    server = serve(server={"limits": limits})

    large = server.complete(("user", "x" * 6000))
    many = server.complete(HELLO, ECHO, HELLO, ECHO)
    parts = server.complete(("user", [{"type": "text", "text": "x"}] * 5))
    deep = server("POST", COMPLETIONS, b'{"a":' * 9 + b"1" + b"}" * 9)
    bracketed = server.complete(("user", "[" * 1000 + '\\"{' * 100))

    assert (large.status, large.error["code"]) == (413, "request_too_large")
    assert (many.status, many.error["code"]) == (413, "request_too_large")
    assert (parts.status, parts.error["code"]) == (413, "request_too_large")
    assert (deep.status, deep.error["code"]) == (422, "validation_error")
    assert bracketed.status == 200
    assert len(provider.requests) == 1


def test_a_missing_body_times_out(serve: Callable[..., Server], provider: FakeProvider):
    server = serve(server={"limits": {"body_seconds": 0.3}})
    opened = server.open("POST", COMPLETIONS, b'{"model"', {"Content-Length": "1000"}, timeout=10)

    assert opened.status == 408
    opened.leave()


def test_a_body_in_chunks_is_limited_too(serve: Callable[..., Server]):
    server = serve(server={"limits": {"body_bytes": 5000}})
    connection = http.client.HTTPConnection(server.host, server.port, timeout=10)
    connection.request(
        "POST", COMPLETIONS, body=(b"x" * 1000 for _ in range(10)), encode_chunked=True
    )
    response = connection.getresponse()
    body = json.loads(response.read())
    connection.close()

    assert response.status == 413
    assert body["error"]["code"] == "request_too_large"


def test_a_turn_that_takes_too_long_is_cancelled_and_saved(
    serve: Callable[..., Server], provider: FakeProvider
):
    server = serve(server={"limits": {"turn_seconds": 6}})
    provider.queue_held_reply("Some ", "more.", at=1)

    answer = server.complete(HELLO, conversation="", stream=True)

    assert answer.events[-1]["error"]["code"] == "turn_timeout"
    assert list(list_messages(server, answer.conversation)) == [HELLO, ("assistant", "Some ")]


def test_the_turns_of_many_conversations_run_at_the_same_time(
    server: Server, upstream: FakeProvider
):
    gates = [upstream.queue_held_reply(f"Answer {number}.", at=0) for number in range(8)]
    count = len(upstream.requests)
    with ThreadPoolExecutor(8) as pool:
        answers = [pool.submit(server.complete, HELLO, conversation="") for _ in gates]
        upstream.wait_for(count + 8)
        for gate in gates:
            gate.open()
        texts = {answer.result().text for answer in answers}

    assert texts == {f"Answer {number}." for number in range(8)}


def test_embeddings_are_forwarded(serve: Callable[..., Server], embedding_server: str):
    server = serve(api_base=embedding_server)

    answer = server(
        "POST", "/v1/embeddings", {"model": "openai/text-embedding-3-small", "input": ["a"]}
    )

    assert answer.status == 200
    assert answer.json == {"asked": {"model": "text-embedding-3-small", "input": ["a"]}}


def test_a_provider_without_embeddings_is_named(serve: Callable[..., Server]):
    server = serve(providers={"anthropic": {"api_key": "sk-ant-0123456789abcdef"}})

    answer = server("POST", "/v1/embeddings", {"model": "anthropic/claude-x", "input": "a"})

    assert answer.status == 501
    assert "anthropic" in answer.error["message"]


@pytest.fixture
def embedding_server():
    """A provider whose embeddings repeat the request."""

    class Embeddings(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request_count = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            known = self.path == "/v1/embeddings"
            body = json.dumps({"asked": request_count}).encode()
            self.send_response(200 if known else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Embeddings)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    server.shutdown()
    server.server_close()
    thread.join()

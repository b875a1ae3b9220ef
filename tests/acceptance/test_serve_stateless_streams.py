"""`cllm serve`: a stateless stream whose events arrive one by one, as from a model.

The provider sends each event after the client has read the previous one. The client receives the
same bytes as from a stream that arrives in one packet.
"""

import json
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.fake_provider import Cut, FakeProvider, Gate, Head, Hold, Send, Step
from tests.messages_api import MESSAGES, MODELS, make_settings, start_server
from tests.server_process import COMPLETIONS, Server

STREAM = Head(headers={"Content-Type": "text/event-stream"}, chunked=True)
BODIES: dict[str, dict[str, Any]] = {
    MESSAGES: {"model": MODELS["anthropic"], "max_tokens": 99},
    COMPLETIONS: {"model": MODELS["openai"]},
}
MADE_UP = ("id", "created")
SILENCE = 0.3
both = pytest.mark.parametrize("path", [MESSAGES, COMPLETIONS])


@pytest.fixture(scope="module")
def server(upstream: FakeProvider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("single_events")
    with start_server(
        folder, make_settings(upstream), store=f"sqlite:{folder / 'served.db'}"
    ) as running:
        yield running


@pytest.fixture
def impatient(upstream: FakeProvider, tmp_path: Path) -> Iterator[Server]:
    """A server that sends keep-alive comments soon."""
    values = make_settings(upstream, silence_seconds=SILENCE)
    with start_server(tmp_path, values, store=f"sqlite:{tmp_path / 'served.db'}") as running:
        yield running


def named(name: str, **fields: Any) -> bytes:
    return f"event: {name}\ndata: {json.dumps({'type': name, **fields})}\n\n".encode()


def text(index: int, words: str) -> bytes:
    return named("content_block_delta", index=index, delta={"type": "text_delta", "text": words})


def message(*deltas: bytes) -> list[bytes]:
    first_response = {"id": "msg_x", "role": "assistant", "model": "m", "content": [], "usage": {}}
    return [
        named("message_start", message=first_response),
        named("content_block_start", index=0, content_block={"type": "text", "text": ""}),
        *deltas,
        named("content_block_stop", index=0),
        named("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 2}),
        named("message_stop"),
    ]


def chunk(reason: str | None = None, **delta: Any) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    received = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return f"data: {json.dumps({**received, 'choices': [choice]})}\n\n".encode()


def completion(*chunks: bytes) -> list[bytes]:
    opened = chunk(role="assistant", content="")
    return [opened, *chunks, chunk("stop"), b"data: [DONE]\n\n"]


def words(path: str, count: int, size: int = 6) -> list[bytes]:
    texts = [f"{number} ".ljust(size, "x") for number in range(count)]
    if path == MESSAGES:
        return message(*[text(0, one) for one in texts])
    return completion(*[chunk(content=one) for one in texts])


def make_body(path: str) -> dict[str, Any]:
    return {**BODIES[path], "messages": [{"role": "user", "content": "Hello."}], "stream": True}


def opened_in_turn(gates: Sequence[Gate]) -> None:
    for gate in gates:
        gate.wait_reached()
        # Wait until the event has passed through the server.
        time.sleep(0.01)
        gate.open()


def send_one_by_one(
    server: Server, upstream: FakeProvider, path: str, sent: Sequence[bytes], *end: Step
) -> bytes:
    """Return the bytes that the client receives for events sent one after another."""
    gates = [Gate() for _ in sent]
    pairs = zip(sent, gates, strict=True)
    steps = [step for event, gate in pairs for step in (Send(event), Hold(gate))]
    upstream.queue_steps(STREAM, *steps, *end)
    opening = threading.Thread(target=opened_in_turn, args=(gates,))
    opening.start()
    received = server.open("POST", path, make_body(path)).rest()
    opening.join()
    return received


def send_in_one_packet(
    server: Server, upstream: FakeProvider, path: str, sent: Sequence[bytes], *end: Step
) -> bytes:
    upstream.queue_steps(STREAM, Send(b"".join(sent)), *end)
    return server.open("POST", path, make_body(path)).rest()


def remove_generated_fields(received: bytes) -> list[Any]:
    """Return the events of a chat completion without generated IDs and times."""
    datas = [event.removeprefix(b"data: ") for event in received.split(b"\n\n") if event]
    events = [json.loads(data) if data.startswith(b"{") else data for data in datas]
    for event in events:
        for name in MADE_UP:
            if isinstance(event, dict):
                event.pop(name, None)
    return events


ODD = [
    text(0, "One "),
    text(0, "two "),
    named("novel_event", x=[1.50]),
    text(0, "three "),
    named("content_block_delta", index=0, delta={"type": "novel_delta", "y": 2}),
    (
        b'event: content_block_delta\ndata: {"type":"content_block_delta", "index":0,'
        b' "delta":{"type":"text_delta","text":"four","novel":true}}\n\n'
    ),
    text(0, ""),
    named("ping"),
    text(0, "five ") + text(0, "six"),
]
THOUGHTS = [
    chunk(reasoning_content="Hm, "),
    chunk(reasoning_content="well."),
    chunk(content="One "),
    chunk(content="two "),
    chunk(content=""),
    chunk(content="three ", novel={"x": 1}),
    chunk(content="four "),
    chunk(tool_calls=[{"index": 0, "id": "c", "function": {"name": "f", "arguments": ""}}]),
    chunk(tool_calls=[{"index": 0, "function": {"arguments": "{}"}}]),
    chunk(content="five ") + chunk(content="six"),
    chunk(content="seven"),
]


def test_events_of_anthropic_pass_through_unchanged(server: Server, upstream: FakeProvider):
    sent = message(*ODD)

    assert send_one_by_one(server, upstream, MESSAGES, sent) == b"".join(sent)


def test_an_event_in_several_packets_is_forwarded_whole(server: Server, upstream: FakeProvider):
    sent = b"".join(message(*ODD))
    pieces = [sent[start : start + 50] for start in range(0, len(sent), 50)]

    assert send_one_by_one(server, upstream, MESSAGES, pieces) == sent


def test_a_chat_completion_does_not_depend_on_the_packets(server: Server, upstream: FakeProvider):
    sent = completion(*THOUGHTS)
    slowly = send_one_by_one(server, upstream, COMPLETIONS, sent)

    quickly = send_in_one_packet(server, upstream, COMPLETIONS, sent)
    assert remove_generated_fields(slowly) == remove_generated_fields(quickly)
    assert b'"seven"' in slowly
    assert slowly.endswith(b"data: [DONE]\n\n")


@both
@pytest.mark.parametrize("how", ["cut", "no json"])
def test_a_stream_that_fails_ends_with_the_same_error(
    server: Server, upstream: FakeProvider, path: str, how: str
):
    sent = words(path, 8)[:7]
    if how == "no json":
        sent.append(b"event: content_block_delta\ndata: {no}\n\n")
    slowly = send_one_by_one(server, upstream, path, sent, Cut())
    quickly = send_in_one_packet(server, upstream, path, sent, Cut())

    assert b"error" in slowly
    assert b"[DONE]" not in slowly
    if path == MESSAGES:
        assert slowly == quickly
    else:
        assert remove_generated_fields(slowly) == remove_generated_fields(quickly)


@both
def test_a_disconnect_ends_the_provider_call(server: Server, upstream: FakeProvider, path: str):
    sent, count = words(path, 8), len(upstream.requests)
    gates = [Gate() for _ in sent]
    pairs = zip(sent, gates, strict=True)
    upstream.queue_steps(STREAM, *[step for e, gate in pairs for step in (Send(e), Hold(gate))])
    opening = threading.Thread(target=opened_in_turn, args=(gates[:6],))
    opening.start()
    opened = server.open("POST", path, make_body(path))
    opening.join()
    opened.event()

    opened.leave()

    upstream.wait_for(count + 1).wait_disconnected()
    gates[-1].open()


@both
def test_a_client_that_pauses_receives_everything_later(
    server: Server, upstream: FakeProvider, path: str
):
    few, many = words(path, 6)[:-3], words(path, 300, 50_000)[2:]
    gates = [Gate() for _ in few]
    pairs = zip(few, gates, strict=True)
    held = [step for event, gate in pairs for step in (Send(event), Hold(gate))]
    upstream.queue_steps(STREAM, *held, *map(Send, many))
    opening = threading.Thread(target=opened_in_turn, args=(gates,))
    opening.start()
    opened = server.open("POST", path, make_body(path))
    opening.join()
    time.sleep(1)

    received = opened.rest()

    for number in range(1, 300):
        assert received.count(f"{number} ".ljust(50_000, "x").encode()) == 1
    assert received.rstrip().endswith(
        b'{"type": "message_stop"}' if path == MESSAGES else b"[DONE]"
    )


@both
def test_a_silent_stream_sends_keep_alive_comments(
    impatient: Server, upstream: FakeProvider, path: str
):
    sent = words(path, 8)
    gate, rest = Gate(), Gate()
    first, later = map(Send, sent[:4]), map(Send, sent[5:])
    upstream.queue_steps(STREAM, *first, Hold(gate), Send(sent[4]), Hold(rest), *later)
    first_response = time.monotonic()
    opened = impatient.open("POST", path, make_body(path))
    gate.wait_reached()
    time.sleep(0.1)
    gate.open()
    rest.wait_reached()
    time.sleep(1)
    rest.open()

    received = opened.rest()
    sign = b"event: ping\n" if path == MESSAGES else b": keep-alive\n"
    assert 1 <= received.count(sign) <= (time.monotonic() - first_response) / SILENCE

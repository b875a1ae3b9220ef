"""`cllm serve` and invalid HTTP: each client gets an error and the connection is closed."""

import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from tests.fake_provider import WAIT, FakeProvider, Gate
from tests.messages_api import make_settings, start_server
from tests.server_process import COMPLETIONS, Server, completion_body

BODY = json.dumps(completion_body(("user", "Hello."))).encode()
POST = b"POST %b HTTP/1.1\r\nHost: localhost\r\n" % COMPLETIONS.encode()
GET = b"GET /health HTTP/1.1\r\nHost: localhost\r\n"
LENGTH = b"Content-Length: %d\r\n" % len(BODY)
SHORT = {"limits": {"head_seconds": 0.5, "head_bytes": 4096}}
MEGABYTE = 2**20
KEY = "k" * 20


@contextmanager
def open_connection(server: Server) -> Iterator[socket.socket]:
    with socket.create_connection((server.host, server.port), timeout=WAIT) as connection:
        yield connection


def read_to_end(connection: socket.socket) -> bytes:
    """Read until the server closes the connection."""
    pieces = []
    try:
        while piece := connection.recv(65536):
            pieces.append(piece)
    except ConnectionResetError:
        pass
    return b"".join(pieces)


def send_until_closed(connection: socket.socket) -> None:
    deadline = time.monotonic() + WAIT
    while time.monotonic() < deadline:
        connection.sendall(b"fff\r\n" + b"a" * 4095 + b"\r\n")
        time.sleep(0.01)


def read_error_code(response: bytes) -> str:
    code: str = json.loads(response.partition(b"\r\n\r\n")[2])["error"]["code"]
    return code


@pytest.mark.parametrize(
    "head",
    [
        POST + LENGTH + b"Transfer-Encoding: chunked\r\n",
        POST + LENGTH + b"Content-Length: 5\r\n",
        POST + b"Content-Length: -1\r\n",
        POST + b"Transfer-Encoding: xchunked\r\n",
        POST + b"Transfer-Encoding: chunked, identity\r\n",
        POST + LENGTH + b"X-Folded: a\r\n b\r\n",
        POST + LENGTH + b"X-Space : a\r\n",
        POST + LENGTH + b"X-Nul: a\0b\r\n",
        b"PRI * HTTP/2.0\r\n",
        b"FOO / HTTP/1.1\r\nHost: localhost\r\n",
        b"GET /\xff HTTP/1.1\r\nHost: localhost\r\n",
    ],
)
def test_ambiguous_http_is_rejected(server: Server, head: bytes):
    with open_connection(server) as connection:
        connection.sendall(head + b"\r\n" + BODY)
        response = read_to_end(connection)

    assert response.startswith(b"HTTP/1.1 400 ")
    assert response.count(b"HTTP/1.1") == 1
    assert read_error_code(response) == "invalid_request"


def test_endless_headers_are_not_stored_in_memory(serve: Callable[..., Server]):
    server = serve(server=SHORT)
    with open_connection(server) as connection:
        connection.sendall(GET + b"X-Long: ")
        sent = 0
        try:
            while sent < 64 * MEGABYTE:
                sent += connection.send(b"a" * 65536)
        except OSError:
            pass
        assert sent < 16 * MEGABYTE
    assert server("GET", "/health").status == 200


def test_headers_that_are_too_long_are_rejected(serve: Callable[..., Server]):
    server = serve(server=SHORT)
    with open_connection(server) as connection:
        connection.sendall(GET)
        for _ in range(4):
            time.sleep(0.02)
            connection.sendall(b"X-More: %b\r\n" % (b"a" * 2000))
        response = read_to_end(connection)

    assert response.startswith(b"HTTP/1.1 413 ")
    assert read_error_code(response) == "request_too_large"


@pytest.mark.parametrize("body", [b"", b"Content-Length: 2\r\n"])
def test_headers_that_are_too_long_are_rejected_even_in_one_piece(server: Server, body: bytes):
    head = POST if body else GET
    with open_connection(server) as connection:
        connection.sendall(head + body + b"X-More: %b\r\n" % (b"a" * 1000) * 160 + b"\r\n{}")
        response = read_to_end(connection)

    assert response.startswith(b"HTTP/1.1 413 ")
    assert response.count(b"HTTP/1.1") == 1
    assert read_error_code(response) == "request_too_large"


def test_a_url_that_is_too_long_is_rejected(serve: Callable[..., Server]):
    server = serve(server=SHORT)
    with open_connection(server) as connection:
        connection.sendall(b"GET /%b HTTP/1.1\r\nHost: localhost\r\n\r\n" % (b"a" * 60_000))
        response = read_to_end(connection)

    assert response.startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize("stream", [False, True])
def test_an_http_1_0_client_gets_no_chunks(server: Server, stream: bool):
    body = json.dumps(completion_body(("user", "Hello."), stream=stream)).encode()
    with open_connection(server) as connection:
        connection.sendall(
            b"POST /v1/chat/completions HTTP/1.0\r\nHost: localhost\r\n"
            b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
        )
        response = read_to_end(connection)

    head, _, content = response.partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in head.lower()
    if stream:
        assert content.startswith(b"data: {")
        assert content.endswith(b"data: [DONE]\n\n")
    else:
        assert json.loads(content)["choices"]


def test_slow_headers_time_out(serve: Callable[..., Server]):
    server = serve(server=SHORT)
    began = time.monotonic()
    with open_connection(server) as connection:
        connection.sendall(GET)
        response = read_to_end(connection)

    assert response.startswith(b"HTTP/1.1 408 ")
    assert read_error_code(response) == "request_timeout"
    assert time.monotonic() - began < 10


def test_an_idle_connection_is_closed(serve: Callable[..., Server]):
    server = serve(server=SHORT)
    with open_connection(server) as connection:
        assert read_to_end(connection) == b""


def test_a_rejected_body_is_not_read_forever(
    serve: Callable[..., Server],
):
    server = serve(server={"limits": {**SHORT["limits"], "body_bytes": 1000}})
    with open_connection(server) as connection:
        connection.sendall(POST + b"Transfer-Encoding: chunked\r\n\r\n")
        with pytest.raises(OSError, match=r"reset|[Bb]roken"):
            send_until_closed(connection)


CHUNKED = POST + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("begun", "more"),
    [
        (b"4\r\nabcd\r\n0\r\n", b"x-more: some\r\n" * 320),
        (b"4\r\nabcd\r\n0\r\nx-long: ", b"y" * 4400),
        (b"4;long=", b"y" * 4400),
    ],
    ids=["headers behind the body", "a long one", "a long extension of a piece"],
)
def test_chunk_extensions_and_trailers_are_limited(
    serve: Callable[..., Server], begun: bytes, more: bytes
):
    server = serve(server=SHORT)

    with open_connection(server) as connection:
        connection.sendall(CHUNKED + begun)
        time.sleep(0.2)
        connection.sendall(more)

        response = read_to_end(connection)

    assert read_error_code(response) == "request_too_large"
    assert b"larger chunks" in response


def test_a_body_in_chunks_of_one_byte_is_read(server: Server):
    pieces = b"".join(b"1\r\n%c\r\n" % byte for byte in BODY) + b"0\r\n"
    smuggled = b"X-Conversation-ID: demo\r\nHost: example.org\r\n"

    with open_connection(server) as connection:
        connection.sendall(CHUNKED)
        for place in range(0, len(pieces), 5):
            connection.sendall(pieces[place : place + 5])
        time.sleep(0.1)
        connection.sendall(smuggled + b"\r\n")
        response = read_to_end(connection)

    assert response.startswith(b"HTTP/1.1 200")
    assert b"x-conversation-id" not in response.lower()


def test_pipelined_requests_do_not_exceed_the_header_limit(serve: Callable[..., Server]):
    server, count = serve(server=SHORT), 400

    with open_connection(server) as connection:
        connection.sendall((GET + b"\r\n") * count + GET + b"Connection: close\r\n\r\n")

        assert read_to_end(connection).count(b"HTTP/1.1 200 OK") == count + 1


@pytest.mark.parametrize("name", ["x" * 3000, "openai/a\nb", "openai/a\u2028b", "openai/\x1b[31m"])
def test_an_invalid_model_name_calls_no_provider(server: Server, name: str):
    refused = server.complete(("user", "Hello."), model=name)

    assert (refused.status, refused.error["param"]) == (422, "model")


def test_a_long_response_is_not_cut_off_by_the_header_timeout(
    serve: Callable[..., Server], provider: FakeProvider
):
    """Half of the next request may have arrived during the response."""
    server, gate = serve(server=SHORT), Gate()
    provider.queue_reply("Well.", hold={0: gate})
    with open_connection(server) as connection:
        connection.sendall(POST + LENGTH + b"\r\n" + BODY + GET)
        gate.wait_reached()
        time.sleep(1)
        gate.open()
        connection.sendall(b"Connection: close\r\n\r\n")
        response = read_to_end(connection)

    assert b"Well." in response
    assert response.count(b"HTTP/1.1 200 OK") == 2


def test_an_http_2_upgrade_offer_does_not_lose_the_body(server: Server):
    offer = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"
    with open_connection(server) as connection:
        connection.sendall(POST + LENGTH + offer + b"\r\n" + BODY)
        response = b""
        while b"echo: Hello." not in response and (piece := connection.recv(65536)):
            response += piece

    assert response.startswith(b"HTTP/1.1 200 ")
    assert b"echo: Hello." in response


def test_pipelined_requests_get_responses_in_order(server: Server):
    paths = [b"/health", b"/nowhere", b"/ready"]
    requests_sent = [b"GET %b HTTP/1.1\r\nHost: localhost\r\n" % path for path in paths]
    with open_connection(server) as connection:
        connection.sendall(b"\r\n".join(requests_sent) + b"Connection: close\r\n\r\n")
        response = read_to_end(connection)

    statuses = [piece[:3] for piece in response.split(b"HTTP/1.1 ")[1:]]
    assert statuses == [b"200", b"404", b"200"]


def test_http_1_0_gets_a_response_and_the_connection_is_closed(server: Server):
    with open_connection(server) as connection:
        connection.sendall(POST.replace(b"/1.1", b"/1.0") + LENGTH + b"\r\n" + BODY)
        response = read_to_end(connection)

    assert response.startswith(b"HTTP/1.1 200 ")


HOSTS = {
    "no Host": b"",
    "an empty Host": b"Host:\r\n",
    "a blank Host": b"Host:  \r\n",
    "two Hosts": b"Host: localhost\r\nHost: localhost\r\n",
    "two different Hosts": b"Host: localhost\r\nHost: example.org\r\n",
    "no name in Host": b"Host: :80\r\n",
    "two names in Host": b"Host: localhost, localhost\r\n",
}
LINES = {
    "a route": b"GET /health HTTP/1.1\r\n",
    "a completion": b"POST /v1/chat/completions HTTP/1.1\r\n",
    "a message": b"POST /v1/messages HTTP/1.1\r\n",
    "no route": b"GET /nowhere HTTP/1.1\r\n",
}


@pytest.fixture(scope="module")
def keyed(upstream: FakeProvider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with keys, which accepts any host."""
    key = {"name": "n", "owner": "o", "key": KEY}
    with start_server(
        tmp_path_factory.mktemp("keyed"), make_settings(upstream, keys=[key])
    ) as running:
        yield running


@pytest.fixture(scope="module")
def plain(upstream: FakeProvider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server without keys, which accepts loopback names."""
    with start_server(tmp_path_factory.mktemp("plain"), make_settings(upstream)) as running:
        yield running


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("which", ["plain", "keyed"])
def test_a_request_needs_exactly_one_host(
    request: pytest.FixtureRequest, upstream: FakeProvider, which: str, host: str, line: str
):
    known = b"Authorization: Bearer %b\r\nConnection: close\r\n" % KEY.encode()
    requests_sent = len(upstream.requests)
    with open_connection(request.getfixturevalue(which)) as connection:
        connection.sendall(LINES[line] + HOSTS[host] + known + LENGTH + b"\r\n" + BODY)
        response = read_to_end(connection)

    assert response.startswith(b"HTTP/1.1 400 "), response
    assert b"Host" in response.partition(b"\r\n\r\n")[2]
    assert len(upstream.requests) == requests_sent


@pytest.mark.parametrize("host", HOSTS)
def test_a_rejected_host_is_rejected_again(plain: Server, host: str):
    for _ in range(3):
        with open_connection(plain) as connection:
            connection.sendall(LINES["a route"] + HOSTS[host] + b"Connection: close\r\n\r\n")
            assert read_to_end(connection).startswith(b"HTTP/1.1 400 ")


def test_http_1_0_needs_no_host_if_any_host_is_allowed(keyed: Server, plain: Server):
    statuses = []
    for each in (keyed, plain):
        with open_connection(each) as connection:
            connection.sendall(b"GET /health HTTP/1.0\r\n\r\n")
            statuses.append(read_to_end(connection)[:13])

    assert statuses == [b"HTTP/1.1 200 ", b"HTTP/1.1 403 "]


def test_the_log_line_of_a_rejected_request_is_json(serve: Callable[..., Server]):
    server = serve(server=SHORT)
    with open_connection(server) as connection:
        connection.sendall(b"nonsense\r\n\r\n")
        read_to_end(connection)
    server.terminate()
    server.wait()

    notes = ("Serving at", "Recording is off")
    lines = [line for line in server.log.splitlines() if not line.startswith(notes)]
    assert [json.loads(line)["level"] for line in lines] == ["warning"]

"""`cllm serve` and many slow bodies: the memory limit of all bodies together."""

import json
import select
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.fake_provider import WAIT
from tests.server_process import COMPLETIONS, Server, completion_body

MEGABYTE = 2**20
LIMITS = {"body_bytes": 4 * MEGABYTE, "bodies_bytes": 8 * MEGABYTE}
SERVER = {"limits": LIMITS}


def make_body(size: int) -> bytes:
    empty = json.dumps(completion_body(("user", ""))).encode()
    return json.dumps(completion_body(("user", "a" * (size - len(empty))))).encode()


class SlowClient:
    """A client that sends its body in steps."""

    def __init__(self, server: Server, body: bytes, *, announced: bool = True) -> None:
        self.connection = socket.create_connection((server.host, server.port), timeout=WAIT)
        self._body = body
        self._announced = announced
        length = b"Content-Length: %d" % len(body) if announced else b"Transfer-Encoding: chunked"
        self.connection.sendall(
            b"POST %b HTTP/1.1\r\nHost: localhost\r\n%b\r\n\r\n" % (COMPLETIONS.encode(), length)
        )
        self._sent = 0

    def send(self, size: int) -> None:
        """Send more of the body; the server may have closed the connection."""
        piece = self._body[self._sent : self._sent + size]
        self._sent += len(piece)
        framed = piece if self._announced else b"%x\r\n%b\r\n" % (len(piece), piece)
        self.connection.sendall(framed)

    def finish(self) -> tuple[int, dict[str, str], bytes]:
        if self._sent < len(self._body):
            self.send(len(self._body))
        if not self._announced:
            self.connection.sendall(b"0\r\n\r\n")
        return self.answer()

    def answer(self) -> tuple[int, dict[str, str], bytes]:
        received = b""
        while b"\r\n\r\n" not in received:
            received += self._more()
        head, _, body = received.partition(b"\r\n\r\n")
        lines = head.decode().split("\r\n")
        headers = {
            name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:])
        }
        while len(body) < int(headers["content-length"]):
            body += self._more()
        return int(lines[0].split()[1]), headers, body

    def _more(self) -> bytes:
        more = self.connection.recv(65536)
        assert more
        return more


@contextmanager
def open_slow_client(
    server: Server, body: bytes, *, announced: bool = True
) -> Iterator[SlowClient]:
    client = SlowClient(server, body, announced=announced)
    try:
        yield client
    finally:
        client.connection.close()


def is_rejected(response: tuple[int, dict[str, str], bytes]) -> bool:
    status, headers, body = response
    if status == 200:
        return False
    assert status == 503
    assert json.loads(body)["error"]["code"] == "too_many_bodies"
    assert int(headers["retry-after"]) >= 1
    return True


def read_memory(server: Server) -> int:
    rejected = Path(f"/proc/{server.process.pid}/statm").read_text(encoding="ascii")
    return int(rejected.split()[1]) * 4096


def is_read(server: Server, body: bytes) -> bool:
    with open_slow_client(server, body) as client:
        return not is_rejected(client.finish())


def test_a_body_over_the_memory_limit_is_rejected_and_others_are_read(
    serve: Callable[..., Server],
):
    server = serve(server=SERVER)
    body = make_body(3 * MEGABYTE)
    with ExitStack() as clients:
        three = [
            clients.enter_context(open_slow_client(server, body, announced=False)) for _ in range(3)
        ]
        for client in three:
            client.send(len(body) - 1000)
        (rejected,), _, _ = select.select([client.connection for client in three], (), (), WAIT)
        others = [client for client in three if client.connection is not rejected]
        (alone,) = (client for client in three if client.connection is rejected)
        assert is_rejected(alone.answer())
        assert [is_rejected(client.finish()) for client in others] == [False, False]
    assert is_read(server, body)


def test_a_content_length_over_the_memory_limit_is_rejected_before_the_body(
    serve: Callable[..., Server], until: Callable[..., bool]
):
    server = serve(server=SERVER)
    body = make_body(4 * MEGABYTE)
    with open_slow_client(server, body) as first:
        first.send(3 * MEGABYTE)

        def is_full() -> bool:
            with open_slow_client(server, body) as second:
                second.connection.settimeout(0.2)
                try:
                    return is_rejected(second.answer())
                except TimeoutError:
                    return False

        assert until(is_full)
        assert not is_rejected(first.finish())
    assert is_read(server, body)


def test_short_bodies_are_read_while_long_ones_use_all_their_memory(serve: Callable[..., Server]):
    server = serve(server=SERVER)
    long, short = make_body(3 * MEGABYTE), make_body(20_000)
    with ExitStack() as clients:
        for _ in range(2):
            clients.enter_context(open_slow_client(server, long)).send(len(long) - 1)
        for _ in range(20):
            client = clients.enter_context(open_slow_client(server, short))
            client.send(10_000)
            assert not is_rejected(client.finish())


def test_clients_that_disconnect_release_their_memory(
    serve: Callable[..., Server], until: Callable[..., bool]
):
    server = serve(server=SERVER)
    body = make_body(3 * MEGABYTE)
    for _ in range(6):
        with open_slow_client(server, body) as client:
            client.send(2 * MEGABYTE)
    assert until(lambda: is_read(server, body))


def test_a_hundred_slow_clients_stay_within_the_memory_limit(
    serve: Callable[..., Server], until: Callable[..., bool]
):
    server = serve(server=SERVER)
    body = make_body(4 * MEGABYTE)
    assert is_read(server, body)
    before = read_memory(server)
    peak = 0
    with ExitStack() as clients:
        waiting = [
            clients.enter_context(open_slow_client(server, body, announced=False))
            for _ in range(100)
        ]
        for _ in range(8):
            for client in waiting:
                client.connection.settimeout(0.05)
                try:
                    client.send(MEGABYTE // 4)
                except OSError:
                    continue
            peak = max(peak, read_memory(server))
    assert peak - before < 3 * LIMITS["bodies_bytes"]
    assert until(lambda: is_read(server, body))

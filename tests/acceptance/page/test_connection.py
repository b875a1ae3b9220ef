"""Lost connections and servers that restart while the page shows a stream."""

import os
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect
from tests.fake_provider import FakeProvider
from tests.home import Home
from tests.server_process import DATABASE, Server

COMPLETE = "#turns .turn[data-state=complete]"


class Proxy:
    """Forwards connections to a port, and can cut all of them."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._sockets: list[socket.socket] = []
        self._copies: list[threading.Thread] = []
        self._acceptor = threading.Thread(target=self._accept, daemon=True)
        self._acceptor.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._target))
                self._sockets += [client, server]
                for pair in ((client, server), (server, client)):
                    copy = threading.Thread(target=self._copy, args=pair, daemon=True)
                    copy.start()
                    self._copies.append(copy)

    def _copy(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
        for one in (source, target):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def cut(self) -> None:
        for one in self._sockets:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._acceptor.join()
        self.cut()
        for copy in self._copies:
            copy.join()
        for one in (self._listener, *self._sockets):
            one.close()


@pytest.fixture
def tab(browser: Browser) -> Iterator[Page]:
    """A page without checks of the console, which lists lost connections."""
    with closing(browser.new_context()) as context:
        yield context.new_page()


def send(page: Page, text: str) -> None:
    page.locator("#composer [name=prompt]").fill(text)
    page.locator("#composer [name=prompt]").press("Control+Enter")


def test_a_lost_connection_is_resumed(tab: Page, server: Server, upstream: FakeProvider):
    conversation = server.complete(("user", "Hello"), conversation="").conversation
    with closing(Proxy(server.port)) as proxy:
        tab.goto(f"http://127.0.0.1:{proxy.port}/c/{conversation}")
        expect(tab.locator("body")).to_have_attribute("data-feed", "ready")
        gate = upstream.queue_held_reply("One ", "two ", "three.", at=2)
        send(tab, "Count.")
        expect(tab.locator(".live .tail")).to_have_text("One two ")

        proxy.cut()
        expect(tab.locator("body")).not_to_have_attribute("data-feed", "ready")
        gate.open()

        expect(tab.locator(COMPLETE)).to_have_count(2)
        expect(tab.locator("#turns")).to_contain_text("One two three.")
        expect(tab.locator(".turn-error")).to_have_count(0)
        expect(tab.locator("body")).to_have_attribute("data-feed", "ready")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_server_that_restarts_leaves_the_text(
    tab: Page, served_home: Home, server: Server, upstream: FakeProvider, number: int
):
    options: dict[str, Any] = {
        "environment": served_home.environment,
        "directory": served_home.work,
        "store": f"sqlite:{served_home.path / DATABASE}",
    }
    with Server(**options) as first:
        conversation = first.complete(("user", "Hello"), conversation="").conversation
        gate = upstream.queue_held_reply("Half of ", "it.", at=1)
        tab.goto(f"{first.address}/c/{conversation}")
        send(tab, "Count.")
        expect(tab.locator(".live .tail")).to_have_text("Half of ")
        turn_id = tab.locator("#turns .turn").last.get_attribute("data-turn")
        events = f"/v1/conversations/{conversation}/turns/{turn_id}/events"
        stored = server.open("GET", events)
        assert stored.event()
        stored.leave()
        os.kill(first.process.pid, number)
        first.wait()
    with Server(**options, arguments=("--port", str(first.port))):
        turn = tab.locator("#turns .turn").last
        expect(turn).to_have_attribute("data-state", "incomplete", timeout=15_000)
        expect(turn).to_contain_text("Half of")
        expect(tab.locator(".live")).to_have_count(0)
        gate.open()
        turn.locator("[data-action=retry]").click()
        expect(tab.locator(COMPLETE)).to_have_count(2)

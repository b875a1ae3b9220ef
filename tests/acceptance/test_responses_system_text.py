"""No system text is stored or logged by any route of the Responses and Conversations APIs."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.fake_provider import FakeProvider
from tests.home import Home
from tests.server_process import Response, Server, read_stored_bytes
from tests.waits import wait_until

PATH = "/v1/responses"
SECRET = "planted-system"
PREFIX = "planted-prefix"
DEVELOPER = {"role": "developer", "content": SECRET}
USER = {"role": "user", "content": "kept-user"}


def send(server: Server, **fields: Any) -> Response:
    headers = fields.pop("headers", None)
    body = {"model": "openai/gpt-test", "input": [DEVELOPER, USER], "instructions": SECRET}
    return server("POST", PATH, {**body, **fields}, headers)


def run_every_route(server: Server, provider: FakeProvider) -> list[bytes]:
    """Return what the routes of stored data return."""
    views = []
    for stream in (False, True):
        key = {"Idempotency-Key": f"key-{stream}"}
        live = send(server, stream=stream, headers=key)
        assert SECRET.encode() in live.body
        views.append(send(server, stream=stream, headers=key).body)
    first = send(server).json
    send(server, store=False)
    send(server, previous_response_id=first["id"])
    branch = send(server, previous_response_id=first["id"]).json
    send(server, conversation=f"conv_{first['id'][5:37]}")
    send(server, input=[USER, *first["output"], DEVELOPER, USER])
    provider.queue_error(500, "no capacity")
    send(server)
    provider.queue_reply("Half", " of it", stop_after=1)
    send(server, stream=True)
    gate = provider.queue_held_reply("Held.", at=0)
    cancelled = send(server, background=True).json["id"]
    server("POST", f"{PATH}/{cancelled}/cancel")
    gate.open()
    background = send(server, background=True, stream=True).events[0]["response"]["id"]
    assert wait_until(lambda: server("GET", f"{PATH}/{background}").json["status"] == "completed")
    for response in (first["id"], branch["id"], cancelled, background):
        views.append(server("GET", f"{PATH}/{response}").body)
        views.append(server("GET", f"{PATH}/{response}?stream=true").body)
        views.append(server("GET", f"{PATH}/{response}/input_items").body)
    views.append(server("GET", f"{PATH}/{background}?stream=true&starting_after=0").body)
    created = server("POST", "/v1/conversations", {"items": [DEVELOPER, USER]}).json["id"]
    path = f"/v1/conversations/{created}"
    added = server("POST", f"{path}/items", {"items": [DEVELOPER, USER]})
    item = added.json["data"][0]["id"]
    views += [added.body, server("GET", f"{path}/items").body]
    views += [server("GET", f"{path}/items/{item}").body, server("GET", path).body]
    server("DELETE", f"{path}/items/{item}")
    server("DELETE", f"{PATH}/{branch['id']}")
    return views


@pytest.mark.parametrize("store_url", ["sqlite", "postgresql"], indirect=True)
def test_no_route_stores_or_logs_system_text(
    serve: Callable[..., Server], home: Home, provider: FakeProvider, store_url: str
):
    server = serve(server={"system_prefix": PREFIX})
    views = run_every_route(server, provider)
    assert any(SECRET.encode() in request.body for request in provider.requests)
    running = read_stored_bytes(store_url, home.path)
    server.terminate()
    server.wait()

    # The settings contain the prefix.
    files = [path for path in home.path.rglob("*") if path.is_file() and path.suffix != ".yml"]
    stored = b"".join(path.read_bytes() for path in files)
    stored += running + read_stored_bytes(store_url, home.path)
    assert b"kept-user" in stored
    for planted in (SECRET, PREFIX):
        assert planted.encode() not in stored
        assert planted not in server.log
        assert all(planted.encode() not in view for view in views)
    assert "kept-user" not in server.log


@pytest.mark.parametrize("store_url", ["sqlite", "postgresql"], indirect=True)
def test_the_check_finds_text_that_is_stored(
    serve: Callable[..., Server], home: Home, store_url: str
):
    server = serve()
    send(server, input=SECRET)

    assert SECRET.encode() in read_stored_bytes(store_url, home.path)

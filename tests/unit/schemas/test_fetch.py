"""What is asked for over the network, and what is not."""

import threading
from urllib.request import Request

import pytest
from tests.schema_server import SchemaServer, body

from cllm.core.errors import SchemaError, SchemaUnavailableError
from cllm.schemas.loader import _SafeRedirects, check_url, fetch, redact_url
from cllm.schemas.source import SchemaRules

HTTP = SchemaRules(allow_http=True)


@pytest.fixture
def server():
    with SchemaServer() as running:
        yield running


def test_a_body_is_given_as_it_came(server):
    assert fetch(server.put("/a?b=c", body(b"\xff{}")), HTTP) == b"\xff{}"
    assert server.asked == ["/a?b=c"]


def test_a_body_of_exactly_the_limit_is_within_it(server):
    rules = SchemaRules(allow_http=True, max_bytes=10)

    assert fetch(server.put("/a", body(b"x" * 10)), rules) == b"x" * 10
    with pytest.raises(SchemaError, match="larger than 10"):
        fetch(server.put("/a", body(b"x" * 11)), rules)


def test_one_that_dribbles_is_given_up(server):
    def dribble(asked):
        asked.send_response(200)
        asked.end_headers()
        while True:
            asked.wfile.write(b" ")
            asked.wfile.flush()
            if done.wait(0.05):
                return

    done = threading.Event()
    try:
        with pytest.raises(SchemaUnavailableError, match=r"not there whole in 0\.5 s"):
            fetch(server.put("/a", dribble), HTTP, seconds=0.5)
    finally:
        done.set()


def test_a_port_that_nobody_listens_on(server):
    address = server.put("/a", body(b"{}"))
    server.stop()

    with pytest.raises(SchemaUnavailableError, match="refused"):
        fetch(address, HTTP)


@pytest.mark.parametrize(
    "address",
    ["https://", "https://a b/", "https://x:port/", "https://[::1/", "https://me:pw@x/", "x://y"],
)
def test_what_is_no_address_to_ask_is_refused(address):
    with pytest.raises(SchemaError) as caught:
        check_url(address, HTTP)

    assert "pw" not in str(caught.value)


def test_an_address_is_shown_without_secrets():
    assert redact_url("https://me:pw@example.com:8/a?token=t#f") == "https://example.com:8/a"


def test_a_redirect_never_leaves_https():
    request = Request("https://example.com/a")
    with pytest.raises(SchemaError, match="out of https"):
        _SafeRedirects(HTTP).redirect_request(request, None, 302, "", {}, "http://example.com/a")

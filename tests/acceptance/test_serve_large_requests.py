"""`cllm serve` and a very large request: other requests are not blocked."""

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.fake_provider import WAIT, FakeProvider
from tests.messages_api import MODELS, make_settings, start_server
from tests.server_process import COMPLETIONS, Response, Server, completion_body

KEYS = 200_000


@pytest.fixture(scope="module")
def server(upstream: FakeProvider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("large")
    with start_server(
        folder, make_settings(upstream), store=f"sqlite:{folder / 'served.db'}"
    ) as running:
        yield running


@pytest.mark.parametrize("headers", [{}, {"X-Conversation-ID": ""}], ids=["stateless", "saved"])
def test_two_hundred_thousand_unknown_fields_do_not_block_other_requests(
    server: Server, headers: dict[str, str]
):
    unknown = {f"k{number}": 0 for number in range(KEYS)}
    request_body = completion_body(("user", "Hello."), model=MODELS["anthropic"], **unknown)
    body = json.dumps(request_body, separators=(",", ":")).encode()
    assert len(body) > 2_000_000
    answered = threading.Event()

    def send() -> Response:
        try:
            return server("POST", COMPLETIONS, body, headers)
        finally:
            answered.set()

    with ThreadPoolExecutor(1) as other:
        sent = other.submit(send)
        while not answered.wait(0.01):
            assert server("GET", "/health", timeout=WAIT).status == 200

    response = sent.result()
    assert response.status == 200, response.body
    assert len(response.headers["x-cllm-notice"]) < 8192
    *_, last = response.notices
    assert (last["code"], last["path"]) == ("more_notices", "")
    # One notice is about the limit of tokens that the server adds.
    assert last["message"] == f"{KEYS - len(response.notices) + 2} more notices are not shown."

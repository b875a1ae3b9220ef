"""A request with very many notices: which are sent to the client and which are stored."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.cpu_growth import MODELS, PAIRS, MeasuredServer, start_measured_server

from cllm.core.notice import LEFT_OUT, MAX_NOTICES
from cllm.server.turns.task import MAX_NOTICES_LENGTH

KEYS = 3000
HELLO = {"role": "user", "content": "Hello"}


@pytest.fixture
async def canned(tmp_path: Path) -> AsyncIterator[MeasuredServer]:
    async with start_measured_server(tmp_path) as running:
        yield running


def make_body(provider: str, **fields: Any) -> bytes:
    body = {"model": MODELS[provider], "max_tokens": 99, "messages": [HELLO], **fields}
    return json.dumps(body).encode()


@pytest.mark.parametrize("stream", [False, True])
async def test_notices_are_stored_up_to_the_limit_and_the_others_counted(
    canned: MeasuredServer, stream: bool
):
    unknown = {f"k{number}": 0 for number in range(KEYS)}
    for client, provider in PAIRS:
        if client == provider or {client, provider} == {"messages", "anthropic"}:
            continue
        body = make_body(provider, stream=stream, **unknown)
        response = await canned.send(client, body, {"X-Conversation-ID": ""})

        assert response.status_code == 200, response.text
        header = response.headers["X-CLLM-Notice"]
        assert len(header) < 2 * MAX_NOTICES_LENGTH
        *shown, last = json.loads(header)
        conversation = await canned.server.load(response.headers["X-Conversation-ID"])
        *stored, rest = conversation.turns[0].notices
        assert [notice.path for notice in stored[: len(shown)]] == [one["path"] for one in shown]
        assert (len(stored), rest.code) == (MAX_NOTICES, LEFT_OUT)
        assert MAX_NOTICES + rest.count >= KEYS
        assert last["code"] == "more_notices"
        missing = MAX_NOTICES + rest.count - len(shown)
        assert last["message"] == f"{missing} more notices are not shown."

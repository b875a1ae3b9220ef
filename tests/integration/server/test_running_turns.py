"""A turn that runs for a client: whatever happens to it, nobody waits for it for ever."""

import asyncio
from pathlib import Path

import pytest
from tests.fake_provider import WAIT, closed_port
from tests.server_app import open_server_app

from cllm.core.message import plain_message
from cllm.core.prompt import Prompt
from cllm.server.api.messages import AnthropicResponseEncoder
from cllm.server.http.request_log import RequestRecord
from cllm.server.state import Caller
from cllm.server.turns.headers import NO_HEADERS
from cllm.server.turns.idempotency import Claim
from cllm.server.turns.prepare import prepare_turn
from cllm.server.turns.task import TurnTask

MODEL = "anthropic/claude-sonnet-4-5"


class FailingClaim(Claim):
    """One whose store is broken in a way that nobody thought of."""

    async def release(self) -> None:
        raise OSError("the store is gone")


async def test_a_client_is_told_the_end_though_letting_go_failed(tmp_path: Path):
    settings = (
        "num_retries: 0\n"
        f"providers: {{anthropic: {{api_base: 'http://127.0.0.1:{closed_port()}', api_key: x}}}}"
    )
    prompt = Prompt(model=MODEL, messages=(plain_message("user", "Hello."),), stream=True)
    async with open_server_app(tmp_path, settings) as server:
        state = server.state
        turn = TurnTask(
            await prepare_turn(prompt, NO_HEADERS, Caller(), state),
            AnthropicResponseEncoder(model=MODEL, new_id=state.new_id),
            state=state,
            claim=FailingClaim(),
            record=RequestRecord(request="1", method="POST", started=0),
        )
        turn.start()
        async with asyncio.timeout(WAIT):
            await turn.wait_until_started()
            assert await turn.queue.wait_until_readable(WAIT)
            told = turn.queue.take()
            with pytest.raises(OSError, match="the store is gone"):
                await turn.wait()

    assert told.startswith(b"event: error\n")
    assert turn.queue.is_closed

"""The task of a turn: its notices in a header, and the end of its response."""

import asyncio
import json
from pathlib import Path

import pytest
from tests.fake_provider import WAIT, closed_port
from tests.server_app import open_server_app

from cllm.core.message import plain_message
from cllm.core.notice import Notice
from cllm.core.prompt import Prompt
from cllm.server.api.messages import AnthropicResponseEncoder
from cllm.server.http.request_log import RequestRecord
from cllm.server.state import Caller
from cllm.server.turns.headers import NO_HEADERS
from cllm.server.turns.idempotency import Claim
from cllm.server.turns.prepare import prepare_turn
from cllm.server.turns.task import MAX_NOTICES_LENGTH, MAX_TEXT_LENGTH, TurnTask, encode_notices

MODEL = "anthropic/claude-sonnet-4-5"


def notice(path: str) -> Notice:
    return Notice(code="field_dropped", path=path, message=f"The field {path} was removed.")


def test_notices_are_ascii_and_unique():
    header = encode_notices([notice("ä\r\nX-Evil: 1"), notice("ä\r\nX-Evil: 1")])

    assert header.isascii()
    assert header.isprintable()
    assert [one["path"] for one in json.loads(header)] == ["ä\r\nX-Evil: 1"]


def test_notices_that_do_not_fit_are_counted():
    notices = json.loads(encode_notices([notice(f"field {number}") for number in range(1000)]))

    assert notices[-1]["code"] == "more_notices"
    assert notices[-1]["message"] == f"{1001 - len(notices)} more notices are not shown."
    assert len(json.dumps(notices)) < 2 * MAX_NOTICES_LENGTH


def test_a_very_long_path_is_shortened():
    header = encode_notices([notice("x" * 1_000_000)])

    assert len(header) < MAX_NOTICES_LENGTH
    (shown,) = json.loads(header)
    assert shown["path"].endswith("...")


@pytest.mark.parametrize("character", ["😀", "ä", '"', "\n", "\ud83d"])
def test_the_limit_counts_encoded_characters(character: str):
    header = encode_notices([notice(character * 500)])

    (shown,) = json.loads(header)
    assert len(header) < 2 * MAX_TEXT_LENGTH + 100
    assert len(json.dumps(shown["path"])) > MAX_TEXT_LENGTH - 12
    assert set(shown["path"].removesuffix("...")) == {character}


def test_a_text_that_just_fits_is_complete():
    (shown,) = json.loads(encode_notices([notice("ä" * (MAX_TEXT_LENGTH // 6))]))

    assert shown["path"] == "ä" * (MAX_TEXT_LENGTH // 6)


class FailingClaim(Claim):
    """A claim whose store fails with an unexpected error."""

    async def release(self) -> None:
        raise OSError("the store is gone")


async def test_the_response_ends_even_if_the_claim_cannot_be_released(tmp_path: Path):
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
            events = turn.queue.take()
            with pytest.raises(OSError, match="the store is gone"):
                await turn.wait()

    assert events.startswith(b"event: error\n")
    assert turn.queue.is_closed

"""The processor time of an import grows with the file, and never with the square of its size.

A file is written by its client: its records can claim any messages, and as often as they like. The
same holds for a turn in a conversation that was imported: it grows with what was said there.
"""

import hashlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import msgspec
import pytest
import pytest_asyncio
from tests.cpu_growth import MAX_LINEAR_GROWTH, MODELS, MeasuredServer, start_measured_server

pytestmark = pytest.mark.asyncio(loop_scope="module")

IMPORT = "/v1/conversations/import"
AT = "2026-01-01T00:00:00Z"
HELLO = {"role": "user", "content": "Hello"}
SAID = [HELLO, {"role": "assistant", "content": "Hi"}]
INLINE = {"started_at": AT, "inline": SAID}
File = dict[str, Any]


def file(messages: list[Any], **records: Any) -> File:
    return {"messages": messages, "metadata": {"cllm": records}}


def turns(n: int) -> File:
    return file(SAID * n)


def messages_of_a_turn(n: int) -> File:
    return file([HELLO] * n)


def records_of_any_length(n: int) -> File:
    records = [
        {"id": f"t{k}", "started_at": AT, "messages": k + 1, "digest": "x"} for k in range(n)
    ]
    return file(SAID * n, turns=records)


def records_of_the_whole_file(n: int) -> File:
    record = {"started_at": AT, "messages": n, "digest": "x"}
    return file(SAID * n, turns=[{"id": f"t{k}", **record} for k in range(n)])


def originals_of_any_length(n: int) -> File:
    place = {"at": 0, "digest": "x", "dialect": "openai", "raw": {}}
    return file(SAID * n, extras=[{**place, "span": k + 1} for k in range(n)])


def failed_turns(n: int) -> File:
    return file([], turns=[{"id": f"t{k}", **INLINE, "state": "failed"} for k in range(n)])


def variants_of_a_turn(n: int) -> File:
    variants = [{"id": f"v{k}", "place": "t", **INLINE} for k in range(n)]
    return file([], turns=[{"id": "t", **INLINE, "state": "failed"}], variants=variants)


def pins(n: int) -> File:
    return file(SAID * n, pins=list(range(1, 2 * n)))


def metadata(n: int) -> File:
    return {"messages": SAID, "metadata": {f"k{k}": k for k in range(n)}}


def ids_that_are_taken(n: int) -> File:
    """Records under the ids that the one turn of the file would be given, one after the other."""
    mark = hashlib.sha256(msgspec.json.encode(HELLO, order="sorted")).hexdigest()[:16]
    marks = "\n".join([mark] * n)
    digests = [hashlib.sha256(f"0\n{salt}\n{marks}".encode()).hexdigest() for salt in range(n)]
    empty = {"started_at": AT, "state": "failed", "inline": []}
    return file([HELLO] * n, turns=[{"id": f"turn_{d[:16]}", **empty} for d in digests])


DIMENSIONS: dict[Callable[[int], File], int] = {
    turns: 300,
    messages_of_a_turn: 600,
    records_of_any_length: 150,
    records_of_the_whole_file: 300,
    originals_of_any_length: 100,
    failed_turns: 600,
    variants_of_a_turn: 600,
    pins: 300,
    metadata: 600,
    ids_that_are_taken: 600,
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scaled(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[MeasuredServer]:
    async with start_measured_server(tmp_path_factory.mktemp("scaled")) as server:
        yield server


@pytest.mark.parametrize("make", DIMENSIONS, ids=lambda make: make.__name__)
async def test_the_time_of_an_import_grows_with_its_size(
    scaled: MeasuredServer, make: Callable[[int], File]
):
    async def send(body: bytes) -> httpx.Response:
        return await scaled.server("POST", IMPORT, content=body)

    size = DIMENSIONS[make]
    small, large = (json.dumps(make(n)).encode() for n in (size // 2, 2 * size))

    assert await scaled.growth(small, large, send) <= MAX_LINEAR_GROWTH


@pytest.mark.parametrize("provider", list(MODELS))
async def test_the_time_of_a_turn_grows_with_the_history(scaled: MeasuredServer, provider: str):
    async def send(body: bytes) -> httpx.Response:
        headers = {"X-Conversation-ID": conversations[body]}
        asked = {"model": MODELS[provider], "messages": [HELLO]}
        answer = await scaled.server("POST", "/v1/chat/completions", json=asked, headers=headers)
        # Only what is made for one measurement is deleted after it.
        return httpx.Response(answer.status_code)

    conversations = {}
    for count in (200, 800):
        imported = await scaled.server("POST", IMPORT, json=turns(count))
        conversations[b"%d" % count] = imported.json()["id"]
    small, large = conversations

    assert await scaled.growth(small, large, send) <= MAX_LINEAR_GROWTH

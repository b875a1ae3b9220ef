"""What PostgreSQL keeps of a message's words: none if the text tells them, otherwise all."""

import random
from typing import Any

import asyncpg
import msgspec
import pytest
from tests.postgres import Server

from cllm.core.message import Message, plain_message
from cllm.core.ports import NewConversation
from cllm.stores.postgres.statements import STORED_TERMS
from cllm.stores.postgres.store import PostgresStore
from cllm.stores.search import MAX_INDEXED_CHARACTERS, extract_terms, message_terms
from cllm.testing.store_contract import answered, say, start

TOLD = {
    "English": 'It\'s 3.5% of user_name:\n\t"quoted" back\\slash, C:\\new\\table \u2014 “yes” …',
    "German": "Größe, Straße, ÜBUNG und Äpfel",
    "French": "l\u2019été déjà vu, ÇA VA\u00a0? Œuvre",
    "Vietnamese": "Tiếng Việt ĐẸP",
    "Russian": "Привет, Мир! Ёлка",
    "Greek": "ΚΑΛΗΜΈΡΑ κόσμε, σοφός",
    "Hebrew": "שלום עולם",
    "Chinese": "我想去东京旅游。好\uff0c2024年\uff01",
    "Japanese": "東京は日本の首都です。カタカナと、Tokyoも「あ」",
    "Korean": "한국어 검색, test 가",
    "an emoji": "well done 😀 indeed",
    "nothing": "",
    "no words": "?!",
}
NOT_TOLD = {
    "a ligature": "\ufb01ne words",
    "letters with marks of their own": "cafe\u0301 au lait",
    "wide letters": "\uff46\uff55\uff4c\uff4c width",
    "a number in a circle": "point \u2460",
    "a word without an end": "x" * 5000,
    "Hindi": "नमस्ते दुनिया",
    "a long text": " ".join(f"word{number}" for number in range(5000)),
}
FOUND_AS = f"""
SELECT tsvector_to_array(message_terms($1, 0, s.raw, {STORED_TERMS}))
FROM unnest($2::text[], $3::text[]) WITH ORDINALITY AS s(raw, terms, place) ORDER BY place
"""  # noqa: S608
DERIVED = "SELECT tsvector_to_array(message_terms($1, 0, raw, NULL)) FROM unnest($2::text[]) raw"
RANGES = (
    *((0x20, 0x7E), (0x20, 0x7E), (0xA0, 0x24F), (0x370, 0x52F), (0x590, 0x6FF), (0x900, 0x97F)),
    *((0x1E00, 0x20CF), (0x2460, 0x24FF), (0x3000, 0x30FF), (0x4E00, 0x4FFF), (0xAC00, 0xAD00)),
    *((0xF900, 0xFAFF), (0xFE70, 0xFFDC), (0x1F600, 0x1F64F), (0x20000, 0x20100)),
)


@pytest.fixture
def database(emptied_database: str) -> str:
    return emptied_database


@pytest.fixture
async def stored_terms(store: PostgresStore, postgres_server: Server, database: str) -> Any:
    async def terms() -> list[str | None]:
        sql = "SELECT terms FROM messages ORDER BY number"
        return [row[0] for row in await postgres_server.execute(sql, database=database)]

    return terms


@pytest.mark.parametrize("text", TOLD.values(), ids=TOLD)
async def test_terms_are_not_stored_if_the_database_computes_them(
    store: PostgresStore, stored_terms, text: str
):
    await say(store, "demo", "t1", text)
    assert (await stored_terms())[0] is None
    for term in extract_terms(text):
        assert (await store.search(term)).total >= 1, term


@pytest.mark.parametrize("text", NOT_TOLD.values(), ids=NOT_TOLD)
async def test_terms_are_stored_if_the_database_computes_others(
    store: PostgresStore, stored_terms, text: str
):
    await say(store, "demo", "t1", text)
    assert (await stored_terms())[0] == " ".join(extract_terms(text))
    for term in extract_terms(text)[:20]:
        assert (await store.search(term)).total >= 1, term


@pytest.mark.parametrize(
    "raw",
    [
        b'{"role":"assistant","content":"L\\u00e9ger","refusal":null}',
        b'{"role":"assistant","content":[{"type":"text","text":"one"},{"type":"text","text":"two"}]}',
        b'{"role":"assistant","content":null,"tool_calls":[{"text":"secret"}]}',
        b'{"content":[{"type":"image","text":"secret"},{"type":"text","text":"said"}]}',
    ],
)
async def test_only_the_text_of_a_message_is_searched(store: PostgresStore, raw):
    lease = await store.begin_turn("demo", start("t1", "hi"), create=NewConversation(id="demo"))
    reply = Message(role="assistant", raw=raw)
    messages = (*lease.turn.messages, reply)
    await store.finish_turn(lease, msgspec.structs.replace(answered(lease), messages=messages))
    for term in (*extract_terms(reply.text), "secret"):
        found = await store.search(term)
        assert found.total == (term in extract_terms(reply.text)), term


def _texts(count: int) -> list[str]:
    chance = random.Random(5)  # noqa: S311
    return [
        "".join(
            chr(chance.randint(*chance.choice(RANGES))) if chance.random() < 0.8 else " "
            for _ in range(chance.randint(1, 40))
        )
        for _ in range(count)
    ]


async def test_any_text_is_indexed_by_its_terms(
    store: PostgresStore, database: str, postgres_server: Server
):
    await store.count_conversations()
    messages = [plain_message("user", text) for text in _texts(1000)]
    connection = await asyncpg.connect(postgres_server.url(database))
    rows = await connection.fetch(
        FOUND_AS,
        "o",
        [message.raw.decode() for message in messages],
        list(map(message_terms, messages)),
    )
    await connection.close()
    for message, (terms,) in zip(messages, rows, strict=True):
        own = {term[2:] for term in terms or () if not term.startswith("0._")}
        assert own == set(extract_terms(message.text)), message.text


async def test_every_text_can_be_indexed(
    store: PostgresStore, database: str, postgres_server: Server
):
    await store.count_conversations()
    odd = [
        "",
        "{",
        '"content":"',
        '{"content":"\\',
        "\\" * 99,
        '{"text":"' + "x" * 9000 + '"}',
        "7",
    ]
    odd += ['{"content":"' + text + '"}' for text in _texts(300)]
    connection = await asyncpg.connect(postgres_server.url(database))
    assert len(await connection.fetch(DERIVED, "o", odd)) == len(odd)
    await connection.close()


async def test_a_very_long_text_is_indexed_up_to_the_limit(store: PostgresStore):
    signs = [chr(0x20000 + number) for number in range(300)]
    text = "".join(first + second for first in signs for second in signs)[:MAX_INDEXED_CHARACTERS]
    await say(store, "demo", "t1", text)
    assert (await store.search(text[:2])).total >= 1

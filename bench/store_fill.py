"""Many conversations for the benches of the stores, loaded in bulk: the rows that turns leave.

Texts come from a pool, so that their words are taken apart once. Each conversation has five turns
of a question and an answer of about a kilobyte; one in a thousand has a rare word in all of them.
Ids are as long as those that the library and the server give, and come in no order, unless short
ones are wanted.
`take_turns` makes the same conversations by real turns, to compare the two.
"""

import hashlib
import random
import sqlite3
import sys
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import asyncpg
import msgspec

from cllm.core.conversation import StoredConversation, Turn, WindowRecord
from cllm.core.message import Message, plain_message
from cllm.core.ports import NewConversation, Store, TurnStart
from cllm.core.reply import Usage
from cllm.stores.postgres.reader import POSTGRES_CODEC
from cllm.stores.search import build_index_terms
from cllm.stores.sql.rows import CONVERSATION_COLUMNS, TURN_COLUMNS, RowCodec, encode_message
from cllm.stores.sqlite import statements as sql
from cllm.stores.sqlite.reader import SQLITE_CODEC

OWNER = "local"
TURNS = 5
MESSAGES = TURNS * 2
BATCH = 1000
RARE = "zyzzyva"
RARE_EVERY = 1000
POOL = 2000
LETTERS = "abcdefghijklmnopqrstuvwxyz"
BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
WINDOW = WindowRecord(first_sequence=1, sent_messages=MESSAGES)
USAGE = Usage(input=1000, output=200)
MESSAGE_NAMES = (
    *("owner", "conversation", "turn", "ordinal", "sequence_number"),
    *("role", "dialect", "raw"),
)
NUMBERS = "SELECT id, number FROM conversations WHERE owner = $1 AND id = ANY($2::text[])"


def _vocabulary() -> list[str]:
    chance = random.Random(7)  # noqa: S311
    return ["".join(chance.choices(LETTERS, k=chance.randint(2, 10))) for _ in range(20_000)]


WORDS = _vocabulary()
COMMON = WORDS[0]


def some_text(chance: random.Random, size: int = 1000) -> str:
    """About so many bytes of words, frequent ones more often."""
    words: list[str] = []
    length = 0
    while length < size:
        words.append(WORDS[int(len(WORDS) * chance.random() ** 3)])
        length += len(words[-1]) + 1
    return " ".join(words)


class Said(NamedTuple):
    """A message, its row, and its terms."""

    message: Message
    row: tuple[Any, ...]
    terms: str
    size: int


def _said(role: Any, text: str) -> Said:
    message = plain_message(role, text)
    return Said(message, encode_message(message), build_index_terms(message, OWNER), len(text))


def _pool() -> list[tuple[Said, Said]]:
    """A question and an answer for each number."""
    chance = random.Random(13)  # noqa: S311
    texts = [(some_text(chance), some_text(chance)) for _ in range(POOL)]
    return [(_said("user", asked), _said("assistant", answer)) for asked, answer in texts]


class Many:
    """The conversations, by their numbers."""

    def __init__(self) -> None:
        self._pool = _pool()
        self._rare = [
            tuple(_said(each.message.role, f"{each.message.text} {RARE}") for each in pair)
            for pair in self._pool[:20]
        ]

    def said(self, number: int, place: int) -> tuple[Said, ...]:
        if number % RARE_EVERY == 0:
            return self._rare[(number // RARE_EVERY + place) % len(self._rare)]
        return self._pool[(number * 7919 + place * 104_729) % POOL]

    def size(self, number: int) -> int:
        """The bytes of what is said in one."""
        return sum(each.size for place in range(TURNS) for each in self.said(number, place))

    def turn(self, number: int, place: int) -> Turn:
        at = moment(number, place)
        own = _id_of(f"turn {place} of {number}")
        return Turn(
            id=own,
            place=own,
            state="complete",
            model="m",
            messages=tuple(each.message for each in self.said(number, place)),
            started_at=at,
            ended_at=at,
            usage=USAGE,
            cost=0.001,
            window=WINDOW,
        )

    def name(self, number: int) -> str:
        """The id of one."""
        return _id_of(f"conversation {number}")

    def conversation(self, number: int) -> StoredConversation:
        return StoredConversation(
            id=self.name(number),
            title=f"Title {number}",
            model="m",
            created_at=moment(number, 0),
            updated_at=moment(number, TURNS - 1),
            first_sequence=MESSAGES + 1,
        )

    def rows(self, codec: RowCodec, numbers: range) -> "Rows":
        """The rows of some conversations, as an engine has them."""
        rows = Rows([], [], [])
        for number in numbers:
            key = (OWNER, self.name(number))
            rows.conversations.append(codec.encode_conversation(self.conversation(number)))
            for place in range(TURNS):
                turn = codec.encode_turn(self.turn(number, place))
                rows.turns.append((*key, place + 1, place + 1, *turn))
                for ordinal, said in enumerate(self.said(number, place)):
                    at = (place + 1, ordinal, place * 2 + ordinal + 1)
                    rows.messages.append((*key, *at, *said.row, said.terms))
        return rows


class Rows(NamedTuple):
    """Rows of the three tables; those of messages end in their terms."""

    conversations: list[tuple[Any, ...]]
    turns: list[tuple[Any, ...]]
    messages: list[tuple[Any, ...]]


def _id_of(what: str) -> str:
    """The same id each time, in the form that ids are made in."""
    made = hashlib.blake2b(what.encode(), digest_size=16).digest()
    return str(uuid.UUID(bytes=made, version=4))


def moment(number: int, place: int) -> datetime:
    return BEGAN + timedelta(seconds=number, milliseconds=place)


async def take_turns(
    many: Many, conversations: int, open_store: Callable[[Callable[[], datetime]], Store]
) -> Store:
    """The same conversations by real turns, in a store whose clock is set for each."""
    now = BEGAN
    store = open_store(lambda: now)
    for number in range(conversations):
        new = NewConversation(id=many.name(number), title=f"Title {number}", model="m")
        for place in range(TURNS):
            now = moment(number, place)
            turn = many.turn(number, place)
            start = TurnStart(id=turn.id, messages=turn.messages[:1], model="m")
            lease = await store.begin_turn(new.id, start, create=new, tail=0)
            await store.finish_turn(lease, msgspec.structs.replace(turn, started_at=now))
    return store


def batches(numbers: range) -> Iterator[range]:
    """Numbers in batches, with the progress on standard error."""
    began = time.monotonic()
    for first in range(numbers.start, numbers.stop, BATCH):
        last = min(first + BATCH, numbers.stop)
        yield range(first, last)
        if last % (BATCH * 10) == 0 or last == numbers.stop:
            spent = time.monotonic() - began
            print(f"filled {last} of {numbers.stop} in {spent:.0f} s", file=sys.stderr)


def fill_sqlite(db: sqlite3.Connection, many: Many, wanted: range) -> int:
    """Straight into the tables of an open file; the bytes of what is said."""
    size = 0
    number = 1 + (db.execute("SELECT max(number) FROM messages").fetchone()[0] or 0)
    db.execute("PRAGMA synchronous = OFF")
    for numbers in batches(wanted):
        rows = many.rows(SQLITE_CODEC, numbers)
        db.execute("BEGIN")
        db.executemany(sql.ADD_CONVERSATION, rows.conversations)
        db.executemany(sql.ADD_TURN, rows.turns)
        db.executemany(sql.ADD_MESSAGE, [row[:-1] for row in rows.messages])
        db.executemany(sql.INDEX, [(at, row[-1]) for at, row in enumerate(rows.messages, number)])
        db.execute("COMMIT")
        number += len(rows.messages)
        size += sum(map(many.size, numbers))
    return size


async def fill_postgres(db: "asyncpg.Connection[Any]", many: Many, wanted: range) -> int:
    """Straight into the tables, by COPY; the bytes of what is said."""
    size = 0
    turn_names = ("owner", "conversation", "number", "position", *TURN_COLUMNS)
    for numbers in batches(wanted):
        rows = many.rows(POSTGRES_CODEC, numbers)
        await db.copy_records_to_table(
            "conversations", records=rows.conversations, columns=CONVERSATION_COLUMNS
        )
        known = dict(await db.fetch(NUMBERS, OWNER, [many.name(number) for number in numbers]))
        turns = [(owner, known[own], *turn) for owner, own, *turn in rows.turns]
        said = [(owner, known[own], *message) for owner, own, *message in rows.messages]
        await db.copy_records_to_table("turns", records=turns, columns=turn_names)
        await db.copy_to_table("messages", source=_lines(said), columns=MESSAGE_NAMES)
        size += sum(map(many.size, numbers))
    await db.execute("VACUUM ANALYZE", timeout=1800)
    return size


async def _lines(messages: list[tuple[Any, ...]]) -> AsyncIterator[bytes]:
    """Rows as COPY reads them; nothing in them has to be escaped, and the texts tell the terms."""
    for row in messages:
        yield "\t".join(map(str, row[:-1])).encode() + b"\n"

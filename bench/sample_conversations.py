"""Generates many conversations for the benchmarks of the stores and loads them in bulk.

The rows are those that real turns write; `run_turns` creates the same conversations with real turns
to check this. By default a conversation has five turns of a question and a reply of about 1 KB
each; one in a thousand has a rare word in all of them. Texts come from a pool, so that each is
tokenised once. IDs are UUIDs in random order, as the library and the server create them.
"""

import hashlib
import random
import sqlite3
import sys
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
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
from cllm.wire.path_digest import ROOT, digest_path

OWNER = "local"
TURNS = 5
MESSAGES = TURNS * 2
WINDOW_MESSAGES = 40
BATCH = 1000
RARE_WORD = "zyzzyva"
RARE_EVERY = 1000
POOL = 2000
LETTERS = "abcdefghijklmnopqrstuvwxyz"
START = datetime(2026, 1, 1, tzinfo=UTC)
USAGE = Usage(input=1000, output=200)
MESSAGE_COLUMNS = ("owner", "message_group", "ordinal", "digest", "role", "dialect", "raw")
PLACE_COLUMNS = ("owner", "conversation", "number", "position", "first_sequence", "message_group")
SELECT_NUMBERS = "SELECT id, number FROM conversations WHERE owner = $1 AND id = ANY($2::text[])"


def _vocabulary() -> list[str]:
    chance = random.Random(7)  # noqa: S311
    return ["".join(chance.choices(LETTERS, k=chance.randint(2, 10))) for _ in range(20_000)]


WORDS = _vocabulary()
COMMON_WORD = WORDS[0]


def make_text(chance: random.Random, size: int = 1000) -> str:
    """Return words of about `size` bytes in total. Word frequencies differ."""
    words: list[str] = []
    length = 0
    while length < size:
        words.append(WORDS[int(len(WORDS) * chance.random() ** 3)])
        length += len(words[-1]) + 1
    return " ".join(words)


class SampleMessage(NamedTuple):
    """A message, its row, its search terms and the length of its text."""

    message: Message
    row: tuple[Any, ...]
    terms: str
    size: int


def _make_message(role: Any, text: str) -> SampleMessage:
    message = plain_message(role, text)
    return SampleMessage(
        message, encode_message(message), build_index_terms(message, OWNER), len(text)
    )


def _make_pool(size: int) -> list[tuple[SampleMessage, SampleMessage]]:
    """Return pairs of a question and a reply with about `size` bytes each."""
    chance = random.Random(13)  # noqa: S311
    texts = [(make_text(chance, size), make_text(chance, size)) for _ in range(POOL)]
    return [
        (_make_message("user", question), _make_message("assistant", reply))
        for question, reply in texts
    ]


class SampleConversations:
    """Generates conversations by their numbers, the same in every run."""

    def __init__(self, *, turns: int = TURNS, size: int = 1000) -> None:
        self.turns = turns
        self._window = WindowRecord(first_sequence=1, sent_messages=turns * 2)
        self._pool = _make_pool(size)
        self._rare = [
            tuple(
                _make_message(each.message.role, f"{each.message.text} {RARE_WORD}")
                for each in pair
            )
            for pair in self._pool[:20]
        ]

    def messages(self, number: int, index: int) -> tuple[SampleMessage, ...]:
        if number % RARE_EVERY == 0:
            return self._rare[(number // RARE_EVERY + index) % len(self._rare)]
        return self._pool[(number * 7919 + index * 104_729) % POOL]

    def size(self, number: int) -> int:
        """Return the bytes of text in a conversation."""
        return sum(
            each.size for index in range(self.turns) for each in self.messages(number, index)
        )

    def turn(self, number: int, index: int) -> Turn:
        at = timestamp(number, index)
        turn_id = _make_id(f"turn {index} of {number}")
        return Turn(
            id=turn_id,
            place=turn_id,
            state="complete",
            model="m",
            messages=tuple(each.message for each in self.messages(number, index)),
            started_at=at,
            ended_at=at,
            usage=USAGE,
            cost=0.001,
            window=self._window,
        )

    def id(self, number: int) -> str:
        """Return the ID of a conversation."""
        return _make_id(f"conversation {number}")

    def conversation(self, number: int) -> StoredConversation:
        return StoredConversation(
            id=self.id(number),
            title=f"Title {number}",
            model="m",
            created_at=timestamp(number, 0),
            updated_at=timestamp(number, self.turns - 1),
            first_sequence=self.turns * 2 + 1,
        )

    def rows(self, codec: RowCodec, numbers: range, group: int) -> "Rows":
        """Return the rows of some conversations; their message groups start at `group`."""
        rows = Rows([], [], [])
        groups = count(group)
        for number in numbers:
            key = (OWNER, self.id(number))
            rows.conversations.append(codec.encode_conversation(self.conversation(number)))
            digest = ROOT
            for index in range(self.turns):
                turn = codec.encode_turn(self.turn(number, index))
                group = next(groups)
                rows.turns.append((*key, index + 1, index + 1, index * 2 + 1, group, *turn))
                for ordinal, message in enumerate(self.messages(number, index)):
                    (digest,) = digest_path([message.message], digest)
                    place = (OWNER, group, ordinal, digest)
                    rows.messages.append((*place, *message.row, message.terms))
        return rows


class Rows(NamedTuple):
    """Rows of three tables. The last value of a message row is its search terms."""

    conversations: list[tuple[Any, ...]]
    turns: list[tuple[Any, ...]]
    messages: list[tuple[Any, ...]]


def _make_id(seed: str) -> str:
    """Return a UUID that depends only on the seed."""
    digest = hashlib.blake2b(seed.encode(), digest_size=16).digest()
    return str(uuid.UUID(bytes=digest, version=4))


def make_conversation(
    ref: str, pairs: Iterable[tuple[Message, Message]], *, model: str = "m"
) -> StoredConversation:
    """Return a conversation of complete turns, for `Store.add`, with windows of 39 messages."""
    now = datetime.now(UTC)
    turns: list[Turn] = []
    for number, messages in enumerate(pairs):
        turn_id = str(uuid.uuid4())
        question = 2 * number + 1
        first = max(1, question + 2 - WINDOW_MESSAGES)
        window = WindowRecord(first_sequence=first, sent_messages=question + 1 - first)
        turns.append(
            Turn(
                id=turn_id,
                place=turn_id,
                state="complete",
                model=model,
                messages=messages,
                started_at=now,
                ended_at=now,
                usage=USAGE,
                window=window,
            )
        )
    return StoredConversation(
        id=ref, created_at=now, updated_at=now, model=model, turns=tuple(turns)
    )


async def run_turn(store: Store, ref: str, messages: tuple[Message, Message]) -> None:
    """Run one durable turn: save the question, load the newest 40 messages, save the reply."""
    start = TurnStart(id=str(uuid.uuid4()), messages=messages[:1], model="m")
    lease = await store.begin_turn(ref, start, tail=WINDOW_MESSAGES)
    turn = msgspec.structs.replace(
        lease.turn,
        state="complete",
        messages=messages,
        usage=USAGE,
        cost=0.001,
        ended_at=datetime.now(UTC),
        window=WindowRecord(first_sequence=1, sent_messages=WINDOW_MESSAGES),
    )
    await store.finish_turn(lease, turn)


def timestamp(number: int, index: int) -> datetime:
    return START + timedelta(seconds=number, milliseconds=index)


async def run_turns(
    many: SampleConversations,
    conversations: int,
    open_store: Callable[[Callable[[], datetime]], Store],
) -> Store:
    """Create the same conversations with real turns; the store's clock is set for each turn."""
    now = START
    store = open_store(lambda: now)
    for number in range(conversations):
        new = NewConversation(id=many.id(number), title=f"Title {number}", model="m")
        for index in range(many.turns):
            now = timestamp(number, index)
            turn = many.turn(number, index)
            start = TurnStart(id=turn.id, messages=turn.messages[:1], model="m")
            lease = await store.begin_turn(new.id, start, create=new, tail=0)
            await store.finish_turn(lease, msgspec.structs.replace(turn, started_at=now))
    return store


def batches(numbers: range) -> Iterator[range]:
    """Yield the numbers in batches and print the progress to standard error."""
    start = time.monotonic()
    for first in range(numbers.start, numbers.stop, BATCH):
        last = min(first + BATCH, numbers.stop)
        yield range(first, last)
        if last % (BATCH * 10) == 0 or last == numbers.stop:
            seconds = time.monotonic() - start
            print(f"filled {last} of {numbers.stop} in {seconds:.0f} s", file=sys.stderr)


def fill_sqlite(db: sqlite3.Connection, many: SampleConversations, numbers: range) -> int:
    """Insert conversations into an open file; return the bytes of their texts."""
    size = 0
    last = db.execute("SELECT max(number), max(message_group) FROM messages").fetchone()
    number, group = (1 + (value or 0) for value in last)
    db.execute("PRAGMA synchronous = OFF")
    for batch in batches(numbers):
        rows = many.rows(SQLITE_CODEC, batch, group)
        db.execute("BEGIN")
        db.executemany(sql.ADD_CONVERSATION, rows.conversations)
        db.executemany(sql.ADD_TURN, rows.turns)
        db.executemany(sql.ADD_MESSAGE, [row[:-1] for row in rows.messages])
        db.executemany(sql.INDEX, [(at, row[-1]) for at, row in enumerate(rows.messages, number)])
        db.execute("COMMIT")
        number += len(rows.messages)
        group += len(rows.turns)
        size += sum(map(many.size, batch))
    return size


async def fill_postgres(
    db: "asyncpg.Connection[Any]", many: SampleConversations, numbers: range
) -> int:
    """Insert conversations with COPY; return the bytes of their texts."""
    size = 0
    turn_columns = (*PLACE_COLUMNS, *TURN_COLUMNS)
    group = 1 + await db.fetchval("SELECT coalesce(max(message_group), 0) FROM messages")
    for batch in batches(numbers):
        rows = many.rows(POSTGRES_CODEC, batch, group)
        group += len(rows.turns)
        await db.copy_records_to_table(
            "conversations", records=rows.conversations, columns=CONVERSATION_COLUMNS
        )
        keys = dict(await db.fetch(SELECT_NUMBERS, OWNER, [many.id(number) for number in batch]))
        turns = [(owner, keys[ref], *turn) for owner, ref, *turn in rows.turns]
        await db.copy_records_to_table("turns", records=turns, columns=turn_columns)
        messages = _encode_copy(rows.messages)
        await db.copy_to_table("messages", source=messages, columns=MESSAGE_COLUMNS)
        size += sum(map(many.size, batch))
    await db.execute(f"SELECT setval('message_groups', {group})")
    await db.execute("VACUUM ANALYZE", timeout=1800)
    return size


async def _encode_copy(messages: list[tuple[Any, ...]]) -> AsyncIterator[bytes]:
    """Yield rows in the format of COPY, without terms. No value needs escaping."""
    for row in messages:
        yield "\t".join(map(_encode_copied, row[:-1])).encode() + b"\n"


def _encode_copied(value: str | int | bytes) -> str:
    return rf"\\x{value.hex()}" if isinstance(value, bytes) else str(value)

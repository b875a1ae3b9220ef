import math
from datetime import UTC, datetime, timedelta, timezone

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cllm.core.conversation import (
    Branch,
    ContextRecord,
    StandingSummary,
    StoredConversation,
    SystemRecord,
    Turn,
    TurnFailure,
    WindowRecord,
)
from cllm.core.message import Message
from cllm.core.notice import Notice
from cllm.core.reply import Usage
from cllm.stores.postgres.reader import POSTGRES_CODEC
from cllm.stores.sql.rows import (
    CONVERSATION_COLUMNS,
    SUMMARY_COLUMNS,
    TURN_COLUMNS,
    USAGE_COLUMNS,
    RowCodec,
    decode_unchecked_message,
    encode_message,
    to_utc,
)
from cllm.stores.sqlite.reader import SQLITE_CODEC
from cllm.stores.views import build_summary

MOMENTS = st.datetimes(
    min_value=datetime(1, 1, 3),  # noqa: DTZ001
    max_value=datetime(9999, 12, 29),  # noqa: DTZ001
    timezones=st.sampled_from([UTC, timezone(timedelta(hours=-7)), timezone(timedelta(hours=5))]),
)
TEXT = st.text(st.characters(exclude_categories=["Cs"]))
COUNTS = st.integers(0, 2**53)
NATIVE = RowCodec(encode_time=to_utc, decode_time=to_utc)
USAGES = st.builds(Usage, input=COUNTS, output=COUNTS, reasoning=COUNTS, estimated=st.booleans())
SUMMARIES = st.builds(
    StandingSummary, text=TEXT, through=COUNTS, tokens=COUNTS, before=st.none(), usage=USAGES
)
WINDOWS = st.builds(
    WindowRecord,
    first_sequence=COUNTS,
    sent_messages=COUNTS,
    left_out_messages=COUNTS,
    summary_through=st.none() | COUNTS,
    counted=st.none() | COUNTS,
    context=COUNTS,
)
TURNS = st.builds(
    Turn,
    id=TEXT,
    place=TEXT,
    state=st.sampled_from(["running", "complete", "incomplete", "failed"]),
    messages=st.just(()),
    started_at=MOMENTS,
    ended_at=st.none() | MOMENTS,
    model=st.none() | TEXT,
    usage=st.none() | USAGES,
    cost=st.none() | st.floats(0, 1e9),
    notices=st.lists(st.builds(Notice, code=TEXT, message=TEXT), max_size=2).map(tuple),
    window=st.none() | WINDOWS,
    failure=st.none() | st.builds(TurnFailure, code=TEXT, message=TEXT),
)
CONVERSATIONS = st.builds(
    StoredConversation,
    id=TEXT,
    owner=TEXT,
    created_at=MOMENTS,
    updated_at=MOMENTS,
    name=st.none() | TEXT,
    title=st.none() | TEXT,
    system=st.none() | st.just(Message(role="system", raw=b'{"role":"developer","content":"x"}')),
    system_record=st.none() | st.builds(SystemRecord, policy=st.just("captured"), source=TEXT),
    context_record=st.none() | st.builds(ContextRecord, executed_at=MOMENTS),
    pins=st.lists(COUNTS, max_size=3).map(tuple),
    summary=st.none() | SUMMARIES,
    parent=st.none() | st.builds(Branch, conversation=TEXT, sequence=COUNTS),
    archived_at=st.none() | MOMENTS,
    metadata=st.dictionaries(TEXT, TEXT | COUNTS | st.none(), max_size=3),
    first_sequence=st.integers(1, 2**53),
)


@pytest.mark.parametrize(
    "codec", [SQLITE_CODEC, NATIVE, POSTGRES_CODEC], ids=["sqlite", "native", "postgres"]
)
class TestRows:
    @given(conversation=CONVERSATIONS)
    def test_a_conversation_is_unchanged_by_encoding(self, codec, conversation):
        row = codec.encode_conversation(conversation)
        assert len(row) == len(CONVERSATION_COLUMNS)
        assert codec.decode_conversation(row) == conversation

    @given(conversation=CONVERSATIONS)
    def test_a_summary_is_part_of_the_row(self, codec, conversation):
        named = dict(
            zip(CONVERSATION_COLUMNS, codec.encode_conversation(conversation), strict=True)
        )
        row = [named[column] for column in SUMMARY_COLUMNS]
        assert codec.decode_summary(row) == build_summary(conversation)

    @given(turn=TURNS)
    def test_a_turn_is_unchanged_by_encoding(self, codec, turn):
        row = codec.encode_turn(turn)
        assert len(row) == len(TURN_COLUMNS)
        assert codec.decode_turn(row, ()) == turn

    @given(turn=TURNS, usage=st.builds(Usage, input=COUNTS))
    def test_a_turn_with_default_columns_is_unchanged_by_encoding(self, codec, turn, usage):
        own = msgspec.structs.replace(turn, place=turn.id, usage=usage)
        assert codec.decode_turn(codec.encode_turn(own), ()) == own

    @given(turn=TURNS)
    def test_a_window_is_stored_without_default_values(self, codec, turn):
        window = WindowRecord(first_sequence=3, sent_messages=4)
        row = codec.encode_turn(msgspec.structs.replace(turn, window=window))
        window_json = row[TURN_COLUMNS.index("window")]
        assert window_json == '{"first_sequence":3,"sent_messages":4}'


@given(turn=TURNS)
def test_postgres_stores_default_columns_as_null(turn):
    own = msgspec.structs.replace(turn, place=turn.id, usage=Usage())
    row = dict(zip(TURN_COLUMNS, POSTGRES_CODEC.encode_turn(own), strict=True))
    assert row["place"] is None
    assert [row[column] for column in USAGE_COLUMNS] == [0, *[None] * 6]
    uncounted = msgspec.structs.replace(turn, usage=None)
    assert set(POSTGRES_CODEC.encode_turn(uncounted)[5:12]) == {None}


@given(MOMENTS, MOMENTS)
def test_encoded_times_sort_like_times(one, other):
    assert (SQLITE_CODEC.encode_time(one) < SQLITE_CODEC.encode_time(other)) == (one < other)


@given(TEXT)
def test_a_message_is_unchanged_by_encoding(text):
    raw = msgspec.json.encode({"role": "user", "content": text, "n": math.pi})
    message = Message(role="user", raw=raw, dialect="anthropic")
    assert decode_unchecked_message(*encode_message(message)) == message

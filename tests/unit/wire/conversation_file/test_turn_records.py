"""Turn records matched with the messages of a file, and the metadata section."""

from datetime import UTC, datetime, timedelta, timezone

import msgspec
import pytest

from cllm.core.conversation import StoredConversation, SystemRecord
from cllm.core.reply import Usage
from cllm.wire.conversation_file.messages import (
    FileMessages,
    UnreadableError,
    digest_hashes,
    hash_message,
)
from cllm.wire.conversation_file.turn_records import (
    Remainder,
    TurnRecord,
    decode_metadata,
    decode_object,
    encode_metadata,
    in_utc,
    non_default_fields,
    restore_path,
    total_tokens,
)

NOW = datetime(2026, 1, 2, tzinfo=UTC)


def raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))


def file(*texts: str) -> list[msgspec.Raw]:
    roles = ("user", "assistant")
    return [raw({"role": roles[n % 2], "content": text}) for n, text in enumerate(texts)]


def record(turn_id: str, *messages: msgspec.Raw) -> TurnRecord:
    digest = digest_hashes([hash_message(message) for message in messages])
    return TurnRecord(id=turn_id, started_at=NOW, messages=len(messages), digest=digest)


def restore(messages: list[msgspec.Raw], *records: TurnRecord) -> list[tuple[str, list[str]]]:
    turns = restore_path(
        records, FileMessages(messages, ()), start=0, used_ids=set(), started_at=NOW
    )
    return [(turn.id, [message.text for message in turn.messages]) for turn in turns]


def test_records_that_match_keep_their_ids():
    messages = file("a", "1", "b", "2")

    turns = restore(messages, record("t1", *messages[:2]), record("t2", *messages[2:]))

    assert turns == [("t1", ["a", "1"]), ("t2", ["b", "2"])]


def test_messages_without_a_record_become_new_turns():
    messages = file("a", "1", "b", "2")

    first, second = restore(messages)

    assert (first[1], second[1]) == (["a", "1"], ["b", "2"])
    assert first[0].startswith("turn_")
    assert restore(messages) == [first, second]


def test_an_edited_turn_is_new_and_the_next_keeps_its_record():
    messages = file("a", "1", "b", "2")
    old = record("t1", *file("x", "1"))

    (edited, same) = restore(messages, old, record("t2", *messages[2:]))

    assert edited[0] != "t1"
    assert same == ("t2", ["b", "2"])


def test_a_record_with_inline_messages_is_never_skipped():
    inline = TurnRecord(id="t9", started_at=NOW, inline=tuple(file("x")))

    assert restore(file("a", "1"), inline)[0] == ("t9", ["x"])
    assert ("t9", ["x"]) in restore(file("a", "1"), record("t1", *file("b")), inline)


@pytest.mark.parametrize(
    ("time", "expected"),
    [
        (datetime(2026, 1, 2), NOW),  # noqa: DTZ001 - a file can have times without an offset
        (datetime(2026, 1, 2, 3, tzinfo=timezone(timedelta(hours=3))), NOW),
    ],
)
def test_times_are_converted_to_utc(time, expected):
    assert in_utc(time) == expected


def test_a_time_out_of_range_is_unreadable():
    with pytest.raises(UnreadableError, match="out of range"):
        in_utc(datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=3))))


def test_an_object_can_be_absent_or_null_only():
    assert decode_object(None, "x") == decode_object(raw(None), "x") == {}
    with pytest.raises(UnreadableError, match="x is not an object"):
        decode_object(raw([]), "x")


@pytest.mark.parametrize(
    ("value", "expected"), [(5, 5), (0, 0), (-1, None), (True, None), ("5", None)]
)
def test_a_token_total_is_a_count(value, expected):
    assert total_tokens({"total_tokens": raw(value)}) == expected


def test_records_are_separated_from_user_metadata():
    system = {"policy": "pinned"}
    metadata = {"system": raw(system), "context": raw("mine"), "x": raw(1), "cllm": raw({})}

    users, records = decode_metadata(metadata, {"cllm": 2})

    assert users == {"context": "mine", "x": 1, "cllm": 2}
    assert records == {"system": SystemRecord(policy="pinned")}


def test_user_metadata_with_a_key_of_cllm_is_displaced():
    conversation = StoredConversation(
        id="x",
        created_at=NOW,
        updated_at=NOW,
        system_record=SystemRecord(policy="pinned"),
        metadata={"system": 1, "cllm": 2, "big": 1.5},
    )
    rest = Remainder(metadata={"big": msgspec.Raw(b"1.50")}, base_tokens=3)

    section, displaced = encode_metadata(conversation, rest)

    assert displaced == {"system": 1, "cllm": 2}
    assert bytes(section["big"]) == b"1.50"
    assert section["total_tokens"] == 3


def test_fields_with_default_values_are_omitted():
    assert non_default_fields(Usage(input=3)) == {"input": 3}

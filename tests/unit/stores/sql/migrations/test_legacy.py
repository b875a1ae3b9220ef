import uuid
from datetime import UTC, datetime

import pytest

from cllm.stores.sql.migrations import legacy
from cllm.stores.sql.migrations.legacy import (
    LegacyConversation,
    LegacyMessage,
    LegacyTurn,
    split_conversation_record,
    split_message_record,
    with_record,
)
from cllm.stores.sql.rows import UnreadableRowError

ID = uuid.UUID(int=7)


def test_a_conversation_record_is_restored():
    record = LegacyConversation(owner="ann", id="demo", name="cats")
    metadata = with_record({"mine": 1}, record)
    row_id = legacy.build_id("ann", "demo")
    assert split_conversation_record(metadata, row_id) == ({"mine": 1}, record)


def test_a_record_for_another_row_is_metadata():
    metadata = with_record({}, LegacyConversation(owner="ann", id="demo"))
    assert split_conversation_record(metadata, ID) == (metadata, LegacyConversation())


@pytest.mark.parametrize(
    "value",
    [
        "text",
        {"unknown": 1},
        {"owner": "ann"},
        {"name": "../x"},
        {"system": "no JSON"},
        {"system_record": "{}"},
    ],
)
def test_an_invalid_record_is_metadata(value: object):
    metadata = {"cllm": value}
    assert split_conversation_record(metadata, ID) == (metadata, LegacyConversation())


def test_the_earlier_value_of_the_key_is_restored():
    record = LegacyConversation(name="cats")
    metadata = with_record({"cllm": "theirs"}, record)
    restored, found = split_conversation_record(metadata, ID)
    assert restored == {"cllm": "theirs"}
    assert found.name == "cats"


def test_a_message_record_is_restored():
    turn = LegacyTurn(messages=2, state="incomplete")
    record = LegacyMessage(raw='{"role":"user"}', turn=turn)
    assert split_message_record(with_record({}, record)) == ({}, record)
    assert split_message_record({"cllm": {"raw": "no JSON"}})[1] == LegacyMessage()
    assert with_record({"a": 1}, LegacyMessage()) == {"a": 1}


def test_metadata_must_be_an_object():
    assert split_message_record(None) == ({}, LegacyMessage())
    with pytest.raises(UnreadableRowError, match="not a JSON object"):
        split_message_record([1])


def test_only_canonical_uuids_are_parsed():
    assert legacy.parse_uuid(str(ID)) == ID
    assert legacy.parse_uuid(ID.hex) is None
    assert legacy.parse_uuid("demo") is None
    assert legacy.decode_id(ID.hex) == str(ID)


@pytest.mark.parametrize(
    ("role", "previous", "starts"),
    [
        ("assistant", None, True),
        ("user", "assistant", True),
        ("user", "user", False),
        ("tool", "assistant", False),
    ],
)
def test_a_user_message_after_another_role_starts_a_turn(
    role: str, previous: str | None, starts: bool
):
    assert legacy.starts_turn(role, previous) == starts


def test_roles_and_states_are_converted():
    roles = [legacy.convert_role(role) for role in ("developer", "function", "assistant", "pirate")]
    assert roles == ["system", "tool", "assistant", "user"]
    assert [legacy.guess_state(role) for role in ("user", "assistant")] == [
        "incomplete",
        "complete",
    ]


def test_times_are_converted_to_utc():
    naive = datetime(2026, 11, 16)  # noqa: DTZ001
    assert legacy.to_utc(naive) == naive.replace(tzinfo=UTC)
    assert legacy.to_naive_utc(naive.replace(tzinfo=UTC)) == naive


def test_ids_are_split_into_batches():
    ids = list(range(legacy.BATCH + 1))
    assert [len(batch) for batch in legacy.split_batches(ids)] == [legacy.BATCH, 1]

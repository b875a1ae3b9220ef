from datetime import UTC, datetime

import msgspec
import pytest
from msgspec.structs import replace

from cllm.core.conversation import StoredConversation, SystemRecord, Turn, WindowRecord
from cllm.core.errors import InvalidIdError, UsageError
from cllm.core.message import Message
from cllm.core.ports import NewConversation, Opening, TurnStart
from cllm.stores.sql.validation import (
    check_conversation,
    check_json,
    check_new,
    check_opening,
    check_start,
    check_text,
    has_surrogates,
)

NOW = datetime(2026, 11, 16, tzinfo=UTC)
NUL = Message(role="user", raw=b'{"content":"\\u0000"}')


@pytest.mark.parametrize("text", ["a\0", "\0", "x\ud800y"])
def test_nul_and_unpaired_surrogates_are_rejected(text):
    with pytest.raises(UsageError):
        check_text(None, "fine", text)
    with pytest.raises(UsageError):
        check_json({"deep": [{text: 1}]})


def test_json_that_cannot_be_encoded_is_rejected():
    with pytest.raises(UsageError, match="not plain JSON"):
        check_json({"time": object()})


def test_only_unpaired_surrogates_are_rejected():
    assert not has_surrogates("ascii")
    assert not has_surrogates("🐈 é")
    assert has_surrogates("x\udfffy")


def test_a_new_conversation_needs_a_valid_id_and_name():
    check_new(NewConversation(id="demo", name="cats"))
    for invalid in (NewConversation(id="../x"), NewConversation(id="demo", name="a/b")):
        with pytest.raises(InvalidIdError):
            check_new(invalid)


def test_the_records_of_an_opening_are_checked():
    check_opening(None)
    check_opening(Opening(system=NUL, system_record=SystemRecord(policy="captured")))
    with pytest.raises(UsageError):
        check_opening(
            Opening(system=None, system_record=SystemRecord(policy="pinned", prompt="a\0"))
        )


def test_a_start_is_checked_with_the_conversation_that_it_creates():
    start = TurnStart(id="t1", messages=(NUL,))
    check_start(start, None)
    with pytest.raises(UsageError):
        check_start(start, NewConversation(id="demo", title="a\0"))
    with pytest.raises(UsageError):
        check_start(TurnStart(id="t1", messages=(), model="a\0"), None)


def test_every_turn_of_a_conversation_is_checked():
    turn = Turn(id="t1", place="t1", state="complete", messages=(NUL,), started_at=NOW)
    conversation = StoredConversation(id="demo", created_at=NOW, updated_at=NOW, variants=(turn,))
    check_conversation(conversation)
    torn = replace(turn, provider="a\0")
    with pytest.raises(UsageError):
        check_conversation(replace(conversation, variants=(torn,)))


def test_the_parameters_of_a_turn_are_checked():
    nul = msgspec.Raw(b'{"a":"\\u0000"}')
    check_start(TurnStart(id="t1", messages=(), parameters=msgspec.Raw(b"{}")), None)
    with pytest.raises(UsageError):
        check_start(TurnStart(id="t1", messages=(), parameters=nul), None)
    window = WindowRecord(first_sequence=1, sent_messages=0, parameters=nul)
    turn = Turn(id="t1", place="t1", state="complete", messages=(), started_at=NOW, window=window)
    with pytest.raises(UsageError):
        check_conversation(
            StoredConversation(id="demo", created_at=NOW, updated_at=NOW, turns=(turn,))
        )

from datetime import UTC, datetime
from typing import Any

import pytest

from cllm.core.conversation import StoredConversation, Turn
from cllm.core.message import Dialect, Message, plain_message
from cllm.wire.path_digest import ROOT, digest_path, digest_turn, digest_turns

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ONE, TWO = plain_message("user", "one"), plain_message("user", "two")


def build_turn(turn_id: str, message: Message, **fields: Any) -> Turn:
    values = {"id": turn_id, "place": turn_id, "state": "complete"} | fields
    return Turn(messages=(message,), started_at=NOW, **values)


def build_conversation(**fields: Any) -> StoredConversation:
    return StoredConversation(id="demo", created_at=NOW, updated_at=NOW, **fields)


def test_a_failed_turn_is_not_part_of_later_paths():
    turns = (build_turn("t1", ONE, state="failed"), build_turn("t2", TWO))
    digests = digest_turns(build_conversation(turns=turns))
    assert digests == {"t1": digest_path([ONE]), "t2": digest_path([TWO])}


def test_a_variant_continues_the_path_before_its_slot():
    turns = (build_turn("t1", ONE), build_turn("t2", ONE))
    variants = (build_turn("t3", TWO, place="t2"), build_turn("t4", TWO, place="gone"))
    digests = digest_turns(build_conversation(turns=turns, variants=variants))
    assert digests["t3"] == digest_path([ONE, TWO])[1:]


def test_a_turn_without_a_slot_continues_the_turn_before_it():
    turns = (build_turn("t1", ONE), build_turn("t2", ONE))
    variants = (build_turn("t3", TWO, place="gone"),)
    digests = digest_turns(build_conversation(turns=turns, variants=variants))
    assert digests["t3"] == digest_path([ONE, ONE, TWO])[2:]


def test_a_path_can_start_after_other_messages():
    (start,) = digest_path([ONE])
    conversation = build_conversation(turns=(build_turn("t1", TWO),), path_start=start)
    assert digest_turns(conversation)["t1"] == digest_path([ONE, TWO])[1:]


def test_after_an_unknown_path_no_digest_is_known():
    assert digest_turn([ONE, TWO], None) == [None, None]
    assert digest_turn([ONE], ROOT) == digest_path([ONE])


@pytest.mark.parametrize("dialect", ["openai", "anthropic", "responses"])
@pytest.mark.parametrize(
    "raw", [b"{", b'{"content":"\xff"}', b'{"content":[{"type":"a","b":NaN}]}']
)
def test_a_damaged_message_has_a_digest(dialect: Dialect, raw: bytes):
    damaged = Message(role="user", dialect=dialect, raw=raw)
    assert digest_path([damaged]) != digest_path([ONE])

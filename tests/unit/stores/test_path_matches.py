from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from cllm.core.conversation import StoredConversation, Turn
from cllm.core.message import Message, plain_message
from cllm.core.ports import MAX_MATCHES
from cllm.stores.path_matches import is_searched, select_newest
from cllm.wire.path_digest import digest_turns

NOW = datetime(2026, 11, 16, tzinfo=UTC)


def turn(turn_id: str, *texts: str, place: str | None = None, **fields: Any) -> Turn:
    messages = tuple(plain_message("user", text) for text in texts)
    values: dict[str, Any] = {"state": "complete", "messages": messages, "started_at": NOW}
    return Turn(id=turn_id, place=place or turn_id, **(values | fields))


def conversation(*turns: Turn, key: str = "demo", **fields: Any) -> StoredConversation:
    return StoredConversation(id=key, created_at=NOW, updated_at=NOW, turns=turns, **fields)


def select(digest: bytes, *conversations: StoredConversation, any_ids: bool = False):
    pairs = ((each, digest_turns(each)) for each in conversations)
    return select_newest(pairs, digest, 3, any_ids=any_ids)


def test_a_match_has_its_number_on_the_default_path():
    first, failed, last = turn("t1", "a", "b"), turn("t2", "x", state="failed"), turn("t3", "c")
    variant = turn("t4", "d", place="t3")
    stored = conversation(first, failed, last, variants=(variant,))
    digests = digest_turns(stored)
    (match,) = select(digests["t1"][1], stored)
    assert (match.turn, match.ordinal, match.sequence, match.position) == ("t1", 1, 2, 3)
    (match,) = select(digests["t3"][0], stored)
    assert (match.turn, match.ordinal, match.sequence) == ("t3", 0, 4)
    (match,) = select(digests["t4"][0], stored)
    assert (match.turn, match.sequence, match.message_count) == ("t4", None, 4)
    (match,) = select(digests["t2"][0], stored)
    assert (match.state, match.sequence) == ("failed", 3)


def test_messages_without_a_meaning_match_with_the_one_before():
    empty = Message(role="assistant", raw=b'{"role":"assistant","content":""}')
    first = turn("t1", "a")
    first = msgspec.structs.replace(first, messages=(*first.messages, empty))
    stored = conversation(first)
    matches = select(digest_turns(stored)["t1"][0], stored)
    assert [(match.turn, match.sequence) for match in matches] == [("t1", 2), ("t1", 1)]


def test_call_ids_can_differ():
    stored = conversation(turn("t1", "a"))
    (digest,) = digest_turns(stored)["t1"]
    other = digest[:-1] + bytes([digest[-1] ^ 1])
    assert select(other, stored) == ()
    assert len(select(other, stored, any_ids=True)) == 1


def test_the_number_of_matches_is_limited():
    stored = [conversation(turn("t1", "a"), key=f"c{index}") for index in range(MAX_MATCHES + 1)]
    matches = select(digest_turns(stored[0])["t1"][0], *stored)
    assert [match.conversation for match in matches] == [each.id for each in stored[:MAX_MATCHES]]


@pytest.mark.parametrize(
    ("fields", "is_main", "is_side"),
    [
        ({}, True, False),
        ({"is_side": True}, False, True),
        ({"archived_at": NOW}, False, False),
    ],
)
def test_a_search_has_active_conversations_of_one_kind(
    fields: dict[str, Any], *, is_main: bool, is_side: bool
):
    stored = conversation(**fields)
    assert is_searched(stored, None, side=False) is is_main
    assert is_searched(stored, None, side=True) is is_side


def test_a_search_can_have_one_family():
    assert is_searched(conversation(), "demo", side=False)
    assert is_searched(conversation(family="client:1"), "client:1", side=False)
    assert not is_searched(conversation(family="client:1"), "demo", side=False)

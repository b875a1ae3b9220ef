from typing import Any

import pytest

from cllm.core.message import plain_message
from cllm.stores.sql.paths import decode_matches, search_digests
from cllm.wire.path_digest import digest_path, meaning_of

(DIGEST,) = digest_path([plain_message("user", "Hello")])


def build_row(**fields: Any) -> tuple[Any, ...]:
    row = {
        "conversation": "c",
        "turn": "t",
        "ordinal": 0,
        "position": 1,
        "sequence": None,
        "message_count": 2,
        "state": "complete",
        "updated_at": "2026-01-01",
    }
    return tuple((row | fields).values())


def test_the_ids_of_tool_calls_are_a_range():
    assert search_digests([DIGEST], any_ids=False) == [DIGEST]
    (highest,) = search_digests([DIGEST], any_ids=True)
    assert meaning_of(highest) == meaning_of(DIGEST)
    assert highest > DIGEST
    assert len(highest) == len(DIGEST)


def test_the_newest_conversation_is_first():
    rows = [build_row(), build_row(conversation="d", updated_at="2026-01-02")]
    assert [match.conversation for match in decode_matches(rows)] == ["d", "c"]


@pytest.mark.parametrize(
    "damage", [{"conversation": b"\xff"}, {"state": "x"}, {"ordinal": "0"}, {"sequence": "1"}]
)
def test_damaged_rows_match_nothing(damage: dict[str, Any]):
    assert decode_matches([build_row(**damage), build_row()]) == decode_matches([build_row()])

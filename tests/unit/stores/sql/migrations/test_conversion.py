from collections.abc import Mapping
from typing import Any

from cllm.stores.sql.migrations.conversion import (
    _group_turns,
    _record_turns,
    _with_record,
)
from cllm.stores.sql.migrations.legacy import LegacyMessage, LegacyTurn, encode_json, with_record


def legacy_rows(*roles: str, turn: LegacyTurn | None = None) -> list[Mapping[str, Any]]:
    """Legacy messages; the first one has the record of a turn."""
    records = [LegacyMessage(turn=turn), *[LegacyMessage()] * (len(roles) - 1)]
    return [
        _with_record({"role": role, "metadata": with_record({}, record)})
        for role, record in zip(roles, records, strict=True)
    ]


def current_rows(*messages: tuple[int, str, str]) -> list[Mapping[str, Any]]:
    """Messages of current tables: turn number, role and state of the turn."""
    return [
        {
            "turn": turn,
            "role": role,
            "raw": encode_json({"role": role}),
            "state": state,
            "failure": None,
        }
        for turn, role, state in messages
    ]


def test_consecutive_messages_become_turns():
    rows = legacy_rows("user", "user", "assistant", "tool", "assistant", "user")
    groups = [[row["role"] for row in group] for group in _group_turns(rows)]
    assert groups == [["user", "user", "assistant", "tool", "assistant"], ["user"]]
    assert list(_group_turns([])) == []


def test_a_recorded_turn_has_its_number_of_messages():
    rows = legacy_rows("user", "assistant", "tool", turn=LegacyTurn(messages=1, state="failed"))
    assert [len(group) for group in _group_turns(rows)] == [1, 2]


def test_turns_that_the_roles_show_are_not_recorded():
    rows = current_rows(
        (1, "user", "complete"), (1, "assistant", "complete"), (2, "user", "incomplete")
    )
    assert _record_turns(rows) == {}
    assert _record_turns([]) == {}


def test_other_turns_are_recorded_by_their_first_message():
    rows = current_rows((1, "user", "running"), (2, "user", "complete"), (2, "tool", "complete"))
    records = _record_turns(rows)
    assert {index: (each.messages, each.state) for index, each in records.items()} == {
        0: (1, "failed"),
        1: (2, "complete"),
    }

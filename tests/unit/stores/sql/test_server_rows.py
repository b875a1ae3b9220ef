import pytest
from tests.snapshot_rows import CALL, MOMENT

from cllm.core.ports.snapshot import (
    CallRow,
    EventRow,
    ImportedRow,
    MessageRow,
    ResponseRow,
    ServerRow,
)
from cllm.stores.sql.rows import UnreadableRowError
from cllm.stores.sql.server_rows import build_turn_rows, decode_server_row, encode_server_row
from cllm.stores.sqlite.reader import SQLITE_CODEC


@pytest.mark.parametrize(
    "row",
    [
        CallRow(owner="o", call=CALL, occurrence=2),
        ResponseRow(
            owner="o",
            key="k",
            body="b",
            expires_at=MOMENT,
            status=200,
            headers='{"a": "b"}',
            response=b"\xff",
        ),
        EventRow(owner="o", conversation="c", turn="t", number=1, data=b"\x00"),
        ImportedRow(owner="o", conversation="c", turn="t", ordinal=0, fields='{"metadata": {}}'),
    ],
)
def test_a_row_is_encoded_and_decoded(row: ServerRow) -> None:
    table, values = encode_server_row(row, SQLITE_CODEC)
    assert decode_server_row(table, values, SQLITE_CODEC) == row
    damaged = decode_server_row(table, (None, *values[1:]), SQLITE_CODEC)
    assert isinstance(damaged, UnreadableRowError)
    assert table in str(damaged)


def test_messages_are_grouped_by_turn() -> None:
    turns = build_turn_rows(
        [
            ("a", 1, 1, 1, 0, b"x"),
            ("a", 1, 1, 1, 1, None),
            ("b", 2, None, None, None, None),
        ]
    )
    assert [turn.id for turn in turns] == ["a", "b"]
    assert turns[0].messages[1] == MessageRow(ordinal=1, digest=None)
    assert turns[1].messages == ()

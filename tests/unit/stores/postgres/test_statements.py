import pytest

from cllm.core.ports import Tail
from cllm.stores.postgres.statements import (
    MAX_BIGINT,
    columns,
    parameters,
    tail_parameter,
    turn_has_id,
)


@pytest.mark.parametrize(
    ("tail", "parameter"),
    [("window", None), (None, None), (0, 0), (-3, 0), (5, 5), (2**70, MAX_BIGINT)],
)
def test_a_tail_is_a_number_of_messages_or_null(tail: Tail, parameter: int | None):
    assert tail_parameter(tail) == parameter


def test_columns_are_quoted_with_their_table():
    assert columns(("id", "window")) == '"id", "window"'
    assert columns(("id",), "t.") == 't."id"'


def test_parameters_are_numbered_from_the_first():
    assert parameters(3, 2) == "$3, $4"
    assert parameters(1, 0) == ""


def test_a_turn_id_is_compared_by_hash_and_value():
    assert turn_has_id("$3", "t.") == (
        "hashtextextended(t.id, 0) = hashtextextended($3, 0) AND t.id = $3"
    )

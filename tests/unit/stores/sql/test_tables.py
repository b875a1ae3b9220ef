import pytest

from cllm.stores.sql.rows import CALL_COLUMNS, CONVERSATION_COLUMNS, TURN_COLUMNS
from cllm.stores.sql.tables import Engine, head


@pytest.mark.parametrize("engine", ["sqlite", "postgresql"])
def test_the_tables_have_the_columns_of_the_rows(engine: Engine):
    tables = head(engine).tables
    assert set(CONVERSATION_COLUMNS) <= set(tables["conversations"].c.keys())
    assert set(TURN_COLUMNS) <= set(tables["turns"].c.keys())
    assert set(CALL_COLUMNS) <= set(tables["calls"].c.keys())


def test_postgres_refers_to_conversations_by_number():
    sqlite, postgres = head("sqlite").tables, head("postgresql").tables
    assert "conversation_id" in sqlite["turns"].c
    assert "conversation" in postgres["turns"].c
    assert "number" in postgres["conversations"].c
    assert "number" not in sqlite["conversations"].c


def test_postgres_stores_the_default_slot_as_null():
    assert not head("sqlite").tables["turns"].c.place.nullable
    assert head("postgresql").tables["turns"].c.place.nullable

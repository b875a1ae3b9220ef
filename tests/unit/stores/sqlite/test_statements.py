import sqlite3

import pytest

from cllm.stores.sql.rows import NOT_COPIED
from cllm.stores.sqlite import statements

TEXTS = {
    f"{name}.{key}" if key else name: text
    for name, value in vars(statements).items()
    if name.isupper() and not name.startswith("_") and isinstance(value, str | dict)
    for key, text in (value.items() if isinstance(value, dict) else [("", value)])
    if str(text).lstrip().startswith(("SELECT", "INSERT", "UPDATE", "DELETE", "WITH"))
}


@pytest.mark.parametrize("name", TEXTS)
def test_every_statement_can_be_prepared(db: sqlite3.Connection, name: str):
    text = TEXTS[name]
    count = max((number for number in range(1, 12) if f"?{number}" in text), default=0)
    values = [None] * (count or text.count("?"))
    db.execute(f"EXPLAIN {text}", values)


@pytest.mark.parametrize("any_ids", [False, True])
def test_paths_are_found_by_an_index(db: sqlite3.Connection, any_ids: bool):
    text = statements.FIND_PATHS[any_ids]
    plan = [row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {text}", ("o", b"", 0, 0, None))]
    assert len([step for step in plan if "SEARCH m USING INDEX messages_by_digest" in step]) == 2
    assert not [step for step in plan if step.startswith(("SCAN m", "SCAN c", "SCAN t"))]
    assert any("TEMP B-TREE" in step for step in plan) == any_ids


@pytest.mark.parametrize("archived", ["active", "archived", "all"])
def test_lists_filter_by_archive_time(archived: str):
    condition = statements.LIST[archived]  # type: ignore[index]
    assert ("archived_at IS NULL" in condition) == (archived == "active")
    assert ("archived_at IS NOT NULL" in condition) == (archived == "archived")


@pytest.mark.parametrize("by", ["day", "model", "day_model"])
def test_usage_leaves_out_turns_that_a_branch_copied(by: str):
    assert NOT_COPIED in statements.USAGE[by]  # type: ignore[index]

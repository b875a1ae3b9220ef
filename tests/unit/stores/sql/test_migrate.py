from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.script import ScriptDirectory

from cllm.core.errors import StoreUnavailableError, UsageError
from cllm.stores.sql import HEAD, REVISIONS, migrate, migrations
from cllm.stores.sql.database import Database


@pytest.fixture
def database(tmp_path: Path) -> Database:
    return Database(f"sqlite:{tmp_path}/a.db")


def create_table(name: str):
    def work(bind: sa.Connection) -> None:
        bind.execute(sa.text(f"CREATE TABLE {name} (v)"))

    return work


def set_revision(revision: str):
    def work(bind: sa.Connection) -> None:
        bind.execute(sa.text("UPDATE cllm_revision SET version_num = :new"), {"new": revision})

    return work


def test_the_revisions_have_one_head():
    script = ScriptDirectory(str(Path(migrations.__file__).parent))
    assert script.get_heads() == [HEAD]
    assert [each.revision for each in script.walk_revisions()] == [*reversed(REVISIONS)]


def test_an_empty_database_is_prepared_once(database: Database):
    database.run(migrate.prepare, create=True)
    database.run(migrate.prepare)
    assert database.run(migrate.current_revision) == HEAD
    assert database.run(migrate.find_differences) == []


def test_an_empty_database_differs_until_it_is_upgraded(database: Database):
    assert database.run(migrate.find_differences, create=True) == [
        "The database is empty; create its tables with: cllm db upgrade --store URL"
    ]
    database.run(migrate.upgrade)
    assert database.run(migrate.find_differences) == []


@pytest.mark.parametrize(
    ("revision", "message"),
    [
        (None, "cllm db adopt"),
        ("0001", "cllm db upgrade"),
        ("0003", "unreleased development version"),
        ("9999", "use the newer version"),
    ],
)
def test_a_mismatch_says_what_to_run(revision: str | None, message: str):
    assert message in migrate.describe_mismatch(revision)


def test_an_unknown_revision_is_refused(database: Database):
    database.run(migrate.prepare, create=True)
    database.run(set_revision("9999"))
    for work in (migrate.prepare, migrate.upgrade, lambda bind: migrate.downgrade(bind, "0001")):
        with pytest.raises(StoreUnavailableError, match="9999"):
            database.run(work)


def test_a_foreign_database_is_refused(database: Database):
    database.run(lambda bind: bind.execute(sa.text("CREATE TABLE t (x)")), create=True)
    with pytest.raises(StoreUnavailableError, match="cllm did not create"):
        database.run(migrate.upgrade)
    with pytest.raises(UsageError, match="does not have the tables"):
        database.run(migrate.adopt)


def test_only_an_earlier_revision_is_a_downgrade_target(database: Database):
    with pytest.raises(UsageError, match="cannot be downgraded"):
        database.run(lambda bind: migrate.downgrade(bind, "0001"), create=True)
    database.run(migrate.upgrade)
    with pytest.raises(UsageError, match="use an earlier one: 0001, 0002"):
        database.run(lambda bind: migrate.downgrade(bind, HEAD))


def test_the_revision_table_of_an_older_deployment_is_no_difference(database: Database):
    database.run(migrate.prepare, create=True)
    for table in ("alembic_version", "alembic_version_2"):
        database.run(create_table(table))
    assert database.run(migrate.find_differences) == ["unknown table: alembic_version_2"]


def test_differences_are_described(database: Database):
    database.run(migrate.prepare, create=True)
    database.run(lambda bind: bind.execute(sa.text("ALTER TABLE turns ADD COLUMN extra TEXT")))
    database.run(lambda bind: bind.execute(sa.text("DROP INDEX turns_by_end")))
    assert sorted(database.run(migrate.find_differences)) == [
        "missing index: turns.turns_by_end",
        "unknown column: turns.extra",
    ]


def test_a_managed_database_is_not_adopted(database: Database):
    database.run(migrate.prepare, create=True)
    with pytest.raises(UsageError, match="already manages"):
        database.run(migrate.adopt)

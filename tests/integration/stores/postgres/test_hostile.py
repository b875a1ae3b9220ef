"""Rows and words that somebody made to do harm: they end as data, or in our errors."""

import msgspec
import pytest
from tests.postgres import Server

from cllm.core.errors import ConversationBusyError, StoreUnavailableError, UsageError
from cllm.core.message import Message
from cllm.core.ports import NewConversation
from cllm.stores.postgres.store import PostgresStore
from cllm.stores.sql.database import Database
from cllm.stores.sql.migrate import find_differences
from cllm.testing.store_contract import answered, say, start

DAMAGE = (
    "UPDATE conversations SET metadata = '{'",
    "UPDATE conversations SET system_record = '[]'",
    "UPDATE conversations SET pins = 'x'",
    "UPDATE turns SET \"window\" = '[]'",
)
SPYING = (
    "CREATE TABLE stash (raw text)",
    """CREATE FUNCTION spy() RETURNS trigger LANGUAGE plpgsql AS
    'BEGIN INSERT INTO stash VALUES (new.raw); RETURN new; END'""",
    "CREATE TRIGGER spy AFTER INSERT ON messages FOR EACH ROW EXECUTE FUNCTION spy()",
)


@pytest.mark.parametrize("damage", DAMAGE)
async def test_an_unreadable_row_is_reported(
    store: PostgresStore, postgres_server: Server, database: str, damage: str
):
    await say(store, "demo", "t1")
    await postgres_server.execute(damage, database=database)
    for call in (store.load("demo"), store.load("demo", tail=2)):
        with pytest.raises(StoreUnavailableError, match=r"row that cannot be read .*;"):
            await call


async def test_a_list_with_an_unreadable_row_is_reported(
    store: PostgresStore, postgres_server: Server, database: str
):
    await say(store, "demo", "t1")
    await postgres_server.execute(DAMAGE[0], database=database)
    for call in (store.list_conversations(), store.summary("demo")):
        with pytest.raises(StoreUnavailableError, match="row that cannot be read"):
            await call


async def test_an_unpaired_surrogate_is_refused_everywhere(store: PostgresStore):
    await say(store, "demo", "t1")
    for call in (
        store.load("demo", owner="\ud800"),
        store.list_conversations(owner="\ud800"),
        store.search("Hello", owner="\ud800"),
        store.usage(owner="\ud800"),
    ):
        with pytest.raises(UsageError, match="a lone surrogate"):
            await call


async def test_a_reply_that_is_not_utf8_releases_the_lease(store: PostgresStore):
    lease = await store.begin_turn("demo", start("t1"), create=NewConversation(id="demo"))
    torn = Message(role="assistant", raw=b"\xff\xfe")
    turn = msgspec.structs.replace(answered(lease), messages=(*lease.turn.messages, torn))
    with pytest.raises(UsageError):
        await store.finish_turn(lease, turn)
    await say(store, "demo", "t2")
    assert (await store.load("demo")).turns[-1].state == "complete"


async def test_the_check_reports_unknown_triggers(postgres_server: Server, database: str):
    for statement in SPYING:
        await postgres_server.execute(statement, database=database)
    found = Database(postgres_server.url(database)).run(find_differences)
    assert "unknown trigger: spy on messages" in found


async def test_a_name_of_a_hidden_first_turn_is_busy(store: PostgresStore):
    hidden = await store.begin_turn(
        "cats", start("t1", visible=False), create=NewConversation(id="c1", name="cats")
    )
    with pytest.raises(ConversationBusyError):
        await store.begin_turn("c2", start("t2"), create=NewConversation(id="c2", name="cats"))
    await store.finish_turn(hidden, answered(hidden))
    assert (await store.load("cats")).id == "c1"

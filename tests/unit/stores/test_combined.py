"""Two stores as one: which store an operation uses, merged lists, and stores that fail."""

from collections.abc import Callable
from typing import Any

import pytest

from cllm.core.errors import (
    BrokenConversationError,
    ConversationBusyError,
    ConversationExistsError,
    ConversationNotFoundError,
    MissingExtraError,
    SettingsError,
    StoreUnavailableError,
    UsageError,
)
from cllm.core.notice import Notice
from cllm.core.ports import CallRecord, Changes, NewConversation, Store
from cllm.core.reply import Usage
from cllm.stores.combined import CombinedStore
from cllm.stores.memory import MemoryStore
from cllm.stores.sql.rows import UnreadableRowError
from cllm.testing.store_contract import OPENING, TickingClock, answered, say, start

UNAVAILABLE = StoreUnavailableError("cllm.db is damaged; restore it from a backup.")


class FailingStore:
    """A store whose operations all raise an error."""

    def __init__(self, error: Exception) -> None:
        self._error = error
        self.is_closed = False

    def __getattr__(self, _name: str) -> Callable[..., Any]:
        async def fail(*_args: Any, **_options: Any) -> None:
            raise self._error

        return fail

    async def close(self) -> None:
        self.is_closed = True


class Stores:
    def __init__(self, own: Any = None, other: Any = None) -> None:
        self.clock = TickingClock()
        self.own: Store = own or self.open()
        self.other: Store = other or self.open()
        self.warnings: list[Notice] = []
        self.both = CombinedStore(
            self.own,
            lambda: self.other,
            locations=("conversations", "cllm.db"),
            warn=self.warnings.append,
        )

    def open(self) -> MemoryStore:
        return MemoryStore(clock=self.clock, patience=0.01)


@pytest.fixture
def stores() -> Stores:
    return Stores()


def names(items: Any) -> list[str]:
    return [item.ref for item in items]


async def add_named(store: Store, key: str, name: str, text: str = "Hello") -> None:
    new = NewConversation(id=key, name=name)
    lease = await store.begin_turn(key, start(f"turn of {key}", text), create=new)
    await store.finish_turn(lease, answered(lease))


async def test_a_new_conversation_is_in_the_own_store(stores):
    await say(stores.both, "new", "t1")
    assert (await stores.own.load("new")).message_count == 2
    with pytest.raises(ConversationNotFoundError):
        await stores.other.load("new")


async def test_a_turn_continues_where_the_conversation_is(stores):
    await add_named(stores.other, "uuid", "cats")
    lease = await stores.both.begin_turn("cats", start("t2"), create=NewConversation(id="x"))
    renewed = await stores.both.renew_lease(lease)
    opened = await stores.both.save_opening(renewed, OPENING)
    await stores.both.finish_turn(opened, answered(opened))
    assert (await stores.other.load("cats")).message_count == 4
    assert await stores.own.count_conversations() == 0


async def test_a_dropped_turn_leaves_the_other_store_unchanged(stores):
    await add_named(stores.other, "uuid", "cats")
    lease = await stores.both.begin_turn("cats", start("t2"))
    with pytest.raises(ConversationBusyError):
        await stores.both.begin_turn("uuid", start("t3"))
    await stores.both.drop_turn(lease)
    assert (await stores.both.load("uuid")).message_count == 2


async def test_the_own_store_comes_first(stores):
    await say(stores.own, "cats", "t1", "Own")
    await say(stores.other, "cats", "t2", "Other")
    assert (await stores.both.load("cats")).turns[0].messages[0].text == "Own"


@pytest.mark.parametrize("holder", ["own", "other"])
async def test_operations_reach_either_store(stores, holder):
    await say(getattr(stores, holder), "cats", "t1")
    await stores.both.update("cats", Changes(title="Cats"))
    await stores.both.branch("cats", NewConversation(id="kittens"), at=1)
    await stores.both.choose_variant("cats", "t1")
    assert await stores.both.capture("cats", OPENING) is None
    held = getattr(stores, holder)
    assert (await held.summary("cats")).title == "Cats"
    assert (await held.load("kittens")).message_count == 1
    await stores.both.delete_from("cats", 2)
    assert (await held.load("cats")).message_count == 1
    await stores.both.delete("cats")
    with pytest.raises(ConversationNotFoundError):
        await stores.both.load("cats")


async def test_a_name_of_either_store_is_taken(stores):
    await add_named(stores.other, "uuid", "cats")
    await say(stores.own, "dogs", "t1")
    source = await stores.own.load("dogs")
    for new in (NewConversation(id="x", name="cats"), NewConversation(id="uuid")):
        with pytest.raises(ConversationExistsError):
            await stores.both.create(new)
        with pytest.raises(ConversationExistsError):
            await stores.both.branch("dogs", new)
    with pytest.raises(ConversationExistsError):
        await stores.both.add(source)


async def test_pages_of_both_stores_are_complete_and_in_order(stores):
    for number in range(7):
        await say(stores.own if number % 3 else stores.other, f"c{number}", f"t{number}")
    listed, cursor = [], None
    for _ in range(10):
        page = await stores.both.list_conversations(limit=2, cursor=cursor)
        listed += names(page.items)
        cursor = page.next_cursor
        if cursor is None:
            break
    assert listed == ["c6", "c5", "c4", "c3", "c2", "c1", "c0"]
    assert await stores.both.count_conversations() == 7
    page = await stores.both.list_conversations(limit=3, offset=5)
    assert names(page.items) == ["c1", "c0"]


async def test_a_list_shows_the_id_if_the_name_means_another_conversation(stores):
    await say(stores.own, "cats", "t1")
    await add_named(stores.other, "uuid", "cats")
    await add_named(stores.other, "uuid2", "dogs")
    page = await stores.both.list_conversations()
    assert sorted(names(page.items)) == ["cats", "dogs", "uuid"]


async def test_search_finds_messages_of_both(stores):
    await say(stores.own, "cats", "t1", "tabby cat")
    await say(stores.other, "dogs", "t2", "a dog, and a tabby cat, and much more text than that")
    hits = await stores.both.search("tabby", limit=10)
    assert hits.total == 4
    assert {hit.conversation for hit in hits.items} == {"cats", "dogs"}
    rest = await stores.both.search("tabby", limit=10, offset=3)
    assert rest.items == hits.items[3:]


async def test_usage_is_the_sum_of_both(stores):
    call = CallRecord(model="m", usage=Usage(input=3), cost=0.5, ended_at=stores.clock())
    await stores.own.count_call(call)
    await stores.other.count_call(call, call)
    (total,) = await stores.both.usage(by="model")
    assert (total.key, total.calls, total.usage.input, total.cost) == ("m", 3, 9, 1.5)


async def test_families_of_both_are_listed(stores):
    for store, key in ((stores.own, "a"), (stores.other, "b"), (stores.own, "c")):
        await store.create(NewConversation(id=key, family="f"))
    assert [one.id for one in await stores.both.list_family("f", limit=2)] == ["c", "b"]
    assert await stores.both.find_paths([b"x" * 16]) == ()


@pytest.mark.parametrize(
    "error",
    [
        UNAVAILABLE,
        MissingExtraError(extra="postgres", feature="PostgreSQL"),
        SettingsError("bad URL."),
    ],
)
async def test_an_unavailable_store_does_not_hide_the_own_one(error):
    stores = Stores(other=FailingStore(error))
    await say(stores.both, "cats", "t1", "tabby")
    page = await stores.both.list_conversations()
    assert names(page.items) == ["cats"]
    assert [notice.code for notice in page.notices] == ["store_unavailable"]
    assert str(error) in page.notices[0].message
    assert page.notices[0].path == "cllm.db"
    hits = await stores.both.search("tabby")
    assert (hits.total, [notice.code for notice in hits.notices]) == (2, ["store_unavailable"])
    assert await stores.both.count_conversations() == 1
    with pytest.raises(ConversationNotFoundError):
        await stores.both.load("nothing")
    assert [notice.path for notice in stores.warnings] == ["cllm.db"]


async def test_an_unavailable_own_store_does_not_hide_the_other_one():
    stores = Stores(own=FailingStore(UNAVAILABLE))
    await say(stores.other, "cats", "t1")
    assert (await stores.both.load("cats")).message_count == 2
    assert [notice.path for notice in stores.warnings] == ["conversations"]
    assert names((await stores.both.list_conversations()).items) == ["cats"]
    for attempt in (stores.both.load("new"), say(stores.both, "new", "t2")):
        with pytest.raises(StoreUnavailableError):
            await attempt


async def test_two_unavailable_stores_are_an_error():
    stores = Stores(own=FailingStore(UNAVAILABLE), other=FailingStore(UNAVAILABLE))
    with pytest.raises(StoreUnavailableError):
        await stores.both.list_conversations()


async def test_a_store_that_cannot_be_opened_is_a_warning():
    def fail() -> Store:
        raise SettingsError("the URL is invalid.")

    warnings: list[Notice] = []
    both = CombinedStore(Stores().own, fail, locations=("conversations", "x"), warn=warnings.append)
    await say(both, "cats", "t1")
    assert names((await both.list_conversations()).items) == ["cats"]
    assert [notice.path for notice in warnings] == ["x"]
    await both.close()


@pytest.mark.parametrize(
    "error",
    [
        BrokenConversationError("cats.json", reason="cut"),
        UnreadableRowError("The row is damaged."),
        UsageError("No."),
    ],
)
async def test_an_error_of_one_conversation_is_an_error(error):
    for stores in (Stores(own=FailingStore(error)), Stores(other=FailingStore(error))):
        for attempt in (stores.both.load("cats"), stores.both.list_conversations()):
            with pytest.raises(type(error)):
                await attempt
        assert stores.warnings == []


async def test_the_other_store_is_opened_when_it_is_needed_and_closed():
    opened: list[FailingStore] = []

    def open_other() -> Any:
        opened.append(FailingStore(ConversationNotFoundError("x")))
        return opened[-1]

    both = CombinedStore(Stores().own, open_other, locations=("a", "b"))
    await both.own.create(NewConversation(id="cats"))
    await both.load("cats")
    await both.close()
    assert opened == []
    for _ in range(2):
        with pytest.raises(ConversationNotFoundError):
            await both.load("dogs")
    await both.close()
    assert [store.is_closed for store in opened] == [True]

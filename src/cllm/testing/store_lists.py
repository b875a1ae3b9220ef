"""The part of the store contract about filters of lists, and overviews."""

from datetime import timedelta
from typing import Any

from msgspec.structs import replace

from cllm.core.message import Message
from cllm.core.ports import Changes, NewConversation, Store
from cllm.testing.store_harness import StoreSuite, answered, failed, say, say_again, start


class ListContract(StoreSuite):
    """Every store filters its lists, and describes the listed conversations."""

    async def _list(self, store: Store, **options: Any) -> list[str]:
        page = await store.list_conversations(**options)
        assert await store.count_conversations(**options) == len(page.items)
        return [summary.id for summary in page.items]

    async def test_lists_select_a_model_by_a_part_of_its_name(self, store: Store) -> None:
        for name, model in (("a", "openai/GPT-5"), ("b", "claude-opus-5"), ("c", None)):
            await store.create(NewConversation(id=name, model=model))
        assert await self._list(store, model="gpt") == ["a"]
        assert await self._list(store, model="-5") == ["b", "a"]
        assert await self._list(store, model="%") == []

    async def test_lists_select_conversations_updated_since(self, store: Store) -> None:
        for name in ("a", "b"):
            await store.create(NewConversation(id=name))
        updated_at = (await store.summary("b")).updated_at
        assert await self._list(store, since=updated_at) == ["b"]
        assert await self._list(store, since=updated_at + timedelta(seconds=1)) == []
        assert await self._list(store, since=updated_at - timedelta(days=1)) == ["b", "a"]

    async def test_lists_select_an_origin(self, store: Store) -> None:
        for source in ("shell", "chat", "claude-code"):
            await store.create(NewConversation(id=source, source=source))
        assert await self._list(store, origin="shell") == ["shell"]
        assert await self._list(store, origin="chat") == ["chat"]
        assert await self._list(store, origin="client") == ["claude-code"]
        await store.create(NewConversation(id="unnamed"))
        lists = [await self._list(store, origin=one) for one in ("shell", "chat", "client")]
        assert sum("unnamed" in ids for ids in lists) == 1

    async def test_lists_select_a_title_by_a_part_of_it(self, store: Store) -> None:
        for name, title in (("a", "My Cats"), ("b", "About catsuits"), ("c", None)):
            await store.create(NewConversation(id=name))
            if title is not None:
                await store.update(name, Changes(title=title))
        assert sorted(await self._list(store, title="cats")) == ["a", "b"]
        assert await self._list(store, title="my cats") == ["a"]
        assert await self._list(store, title="%") == []

    async def test_filters_are_combined_and_continue_at_the_cursor(self, store: Store) -> None:
        for number in range(6):
            new = NewConversation(id=f"c{number}", model=f"m{number % 2}", source="chat")
            await store.create(new)
        options: dict[str, Any] = {"model": "m1", "origin": "chat", "limit": 2}
        first = await store.list_conversations(**options)
        rest = await store.list_conversations(**options, cursor=first.next_cursor)
        assert [item.id for item in (*first.items, *rest.items)] == ["c5", "c3", "c1"]
        assert rest.next_cursor is None

    async def test_an_overview_has_the_last_line_and_the_sums(self, store: Store) -> None:
        await say(store, "demo", "t1", "One")
        lease = await store.begin_turn("demo", start("t2", "Two"))
        await store.finish_turn(lease, replace(answered(lease), cost=0.25))
        await say_again(store, "demo", "t3", place="t2", text="Line 1\n\n  line 2 …")
        await store.create(NewConversation(id="empty"))
        overviews = await store.read_overviews(["demo", "empty", "unknown"])
        assert set(overviews) == {"demo", "empty"}
        demo, empty = overviews["demo"], overviews["empty"]
        assert demo.last_line == "Line 1 line 2 …"
        assert (demo.tokens, demo.cost, demo.unpriced) == (21, 0.25, 2)
        assert demo.state == "complete"
        assert (empty.last_line, empty.tokens, empty.cost, empty.unpriced) == ("", 0, None, 0)
        assert empty.state is None
        assert await store.read_overviews([]) == {}
        assert await store.read_overviews(["demo"], owner="eve") == {}

    async def test_an_overview_has_the_state_of_the_newest_turn(self, store: Store) -> None:
        await say(store, "demo", "t1")
        await self._finish(store, start("t2", "Two"), failed)
        assert (await store.read_overviews(["demo"]))["demo"].state == "failed"
        await store.begin_turn("demo", start("t3", "Three"))
        overview = (await store.read_overviews(["demo"]))["demo"]
        assert (overview.state, overview.last_line) == ("running", "Three")

    async def test_an_overview_of_long_and_odd_messages_is_one_short_line(
        self, store: Store
    ) -> None:
        long = 'word "quoted" é ' * 20_000
        await say(store, "long", "t1", long)
        assert (await store.read_overviews(["long"]))["long"].last_line.startswith("word ")
        raw = b'{"role": "assistant", "content": null, "tool_calls": []}'
        lease = await store.begin_turn("odd", start("t1"), create=NewConversation(id="odd"))
        turn = replace(answered(lease), messages=(Message(role="assistant", raw=raw),))
        await store.finish_turn(lease, turn)
        assert (await store.read_overviews(["odd"]))["odd"].last_line == ""

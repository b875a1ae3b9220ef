"""Tests of branches: each is independent of the others, however a store saves the common path."""

import asyncio

from cllm.core.errors import ConversationNotFoundError
from cllm.core.message import plain_message
from cllm.core.ports import Changes, NewConversation, Store
from cllm.testing.store_harness import (
    StoreSuite,
    answered,
    replace,
    say,
    say_again,
    start,
    texts,
)
from cllm.testing.store_paths import find, find_messages, path_of

BRANCHES = 100
WORDS = ("one", "two", "three")
CUT_PATH = (*path_of("one", "one?", "two"), plain_message("user", "four"))
"""A path that was cut in its second turn and continued."""


async def search(store: Store, word: str) -> list[str]:
    """Return the conversations with a message that contains the word."""
    hits = await store.search(word, limit=1000)
    return sorted({hit.conversation for hit in hits.items})


async def branch(store: Store, ref: str, *names: str, at: int | None = None) -> None:
    for name in names:
        await store.branch(ref, NewConversation(id=name), at=at)


class BranchContract(StoreSuite):
    async def _say_words(self, store: Store) -> None:
        for number, word in enumerate(WORDS, 1):
            await say(store, "demo", f"t{number}", word)

    async def test_a_hundred_branches_continue_one_conversation(
        self, store: Store, other: Store
    ) -> None:
        await self._say_words(store)
        names = [f"b{number:03}" for number in range(BRANCHES)]
        await branch(store, "demo", *names)
        for name in names:
            lease = await store.begin_turn(name, start("t4", f"own {name}"))
            await store.finish_turn(lease, answered(lease))
        path = ["one", "one?", "two", "two?", "three", "three?"]
        for name in names[::33]:
            loaded = await other.load(name)
            assert texts(loaded) == [*path, f"own {name}", "Hi"]
            assert texts(await other.load(name, tail=2)) == [f"own {name}", "Hi"]
            assert await search(other, name) == [name]
        assert texts(await other.load("demo")) == path
        assert await search(other, "two") == [*names, "demo"]

    async def test_deleting_the_source_leaves_its_branches(
        self, store: Store, other: Store
    ) -> None:
        await self._say_words(store)
        await branch(store, "demo", "first", "second")
        await store.delete("demo")
        assert await search(other, "two") == ["first", "second"]
        matches = await find(other, "one", "one?", "two", "two?")
        assert {(match.conversation, match.sequence) for match in matches} == {
            ("first", 4),
            ("second", 4),
        }
        await store.delete("first")
        assert texts(await other.load("second")) == [
            "one",
            "one?",
            "two",
            "two?",
            "three",
            "three?",
        ]
        await store.delete("second")
        assert await search(other, "two") == []
        assert await find(other, "one") == ()

    async def test_an_id_can_be_used_again_after_its_branches_were_made(self, store: Store) -> None:
        await self._say_words(store)
        await branch(store, "demo", "copy")
        await store.delete("demo")
        await say(store, "demo", "t1", "new")
        assert texts(await store.load("demo")) == ["new", "new?"]
        assert texts(await store.load("copy"))[:2] == ["one", "one?"]
        assert await search(store, "one") == ["copy"]

    async def test_the_end_of_the_source_can_be_deleted(self, store: Store, other: Store) -> None:
        await self._say_words(store)
        await branch(store, "demo", "copy")
        before = await store.load("copy")
        await store.delete_from("demo", 4)
        assert texts(await store.load("demo")) == ["one", "one?", "two"]
        assert await other.load("copy") == before
        assert await search(other, "three") == ["copy"]
        await say(store, "demo", "t4", "four")
        assert await other.load("copy") == before
        assert len(await find_messages(other, CUT_PATH)) == 1

    async def test_the_end_of_a_branch_can_be_deleted(self, store: Store, other: Store) -> None:
        await self._say_words(store)
        before = await store.load("demo")
        await branch(store, "demo", "copy")
        await store.delete_from("copy", 2)
        assert texts(await store.load("copy")) == ["one"]
        assert await other.load("demo") == before
        await store.delete_from("copy", 1)
        assert await other.load("demo") == before
        assert [hit.sequence for hit in (await other.search("one")).items] == [1, 2]

    async def test_a_branch_within_a_turn_shares_nothing_with_it(
        self, store: Store, other: Store
    ) -> None:
        await self._say_words(store)
        await branch(store, "demo", "copy", at=3)
        await say(store, "copy", "t4", "four")
        await store.delete("demo")
        assert texts(await other.load("copy")) == ["one", "one?", "two", "four", "four?"]
        matches = await find_messages(other, CUT_PATH)
        assert [(match.conversation, match.sequence) for match in matches] == [("copy", 4)]
        assert await search(other, "two") == ["copy"]

    async def test_a_branch_of_a_branch_outlives_both(self, store: Store, other: Store) -> None:
        await self._say_words(store)
        await branch(store, "demo", "first")
        await say(store, "first", "t4", "four")
        await branch(store, "first", "second")
        await store.delete("first")
        await store.delete("demo")
        assert texts(await other.load("second"))[-2:] == ["four", "four?"]
        assert await search(other, "one") == await search(other, "four") == ["second"]

    async def test_another_variant_of_the_source_changes_no_branch(
        self, store: Store, other: Store
    ) -> None:
        await say(store, "demo", "t1", "Hello")
        await say_again(store, "demo", "t2", place="t1", text="better")
        await say(store, "demo", "t3", "three")
        await branch(store, "demo", "copy")
        before = await store.load("copy")
        await store.choose_variant("demo", "t1")
        assert await other.load("copy") == before
        for reply, name in (("Hello?", "demo"), ("better", "copy")):
            matches = await find(other, "Hello", reply, "three", "three?")
            assert [(match.conversation, match.sequence) for match in matches] == [(name, 4)]
        await store.choose_variant("copy", "t1")
        assert len(await find(other, "Hello", "Hello?", "three")) == 2
        await store.delete("demo")
        assert len(await find(other, "Hello", "Hello?", "three")) == 1
        assert await search(other, "three") == ["copy"]

    async def test_a_new_variant_of_a_branch_changes_no_other(
        self, store: Store, other: Store
    ) -> None:
        await self._say_words(store)
        before = await store.load("demo")
        await branch(store, "demo", "copy")
        await say_again(store, "copy", "t4", place="t3", text="better")
        assert await other.load("demo") == before
        assert texts(await other.load("copy"))[-1] == "better"
        assert await search(other, "three") == ["demo"]
        await store.delete("demo")
        variants = (await other.load("copy")).variants
        assert [message.text for message in variants[0].messages] == ["three", "three?"]

    async def test_a_branch_of_an_archived_conversation_is_searched(self, store: Store) -> None:
        await self._say_words(store)
        await branch(store, "demo", "copy")
        await store.update("demo", Changes(archived=True))
        assert await search(store, "one") == ["copy"]
        assert [match.conversation for match in await find(store, "one")] == ["copy"]
        hits = await store.search("one", archive_filter="archived")
        assert {hit.conversation for hit in hits.items} == {"demo"}

    async def test_a_branch_is_made_whole_or_not_at_all_while_its_source_is_deleted(
        self, store: Store, other: Store
    ) -> None:
        await self._say_words(store)
        whole = texts(await store.load("demo"))
        source = "demo"
        for number in range(10):
            name = f"b{number}"
            await branch(store, source, "spare")
            results = await asyncio.gather(
                store.delete(source), branch(other, source, name), return_exceptions=True
            )
            assert results[0] is None
            if results[1] is None:
                assert texts(await other.load(name)) == whole
                await store.delete("spare")
                source = name
            else:
                assert isinstance(results[1], ConversationNotFoundError)
                source = "spare"
                await branch(store, "spare", name)
                await store.delete("spare")
                source = name
            assert await search(other, "two") == [source]

    async def test_a_conversation_with_the_same_turns_is_not_a_branch(self, store: Store) -> None:
        await self._say_words(store)
        await store.add(replace(await store.load("demo"), id="added"))
        await store.delete("demo")
        assert texts(await store.load("added"))[:2] == ["one", "one?"]

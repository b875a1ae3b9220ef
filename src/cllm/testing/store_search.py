"""Summaries, counts, pages, search and usage sums."""

import sys
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from cllm.core.errors import ConversationNotFoundError, InvalidIdError, UsageError
from cllm.core.message import plain_message
from cllm.core.ports import ArchiveFilter, Changes, Hits, NewConversation, Store
from cllm.core.reply import Usage
from cllm.testing.store_harness import (
    StoreSuite,
    answered,
    failed,
    say,
    say_again,
    start,
)

replace = msgspec.structs.replace

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOSTILE = ('"', '"; DROP TABLE messages; --', "a* OR b", "NEAR(a b)", "x:y", "%", "'", "(", "^a")


async def _spend(
    store: Store, ref: str, turn_id: str, *, ended_at: datetime, **fields: object
) -> None:
    new = NewConversation(id=ref, model="fallback")
    lease = await store.begin_turn(ref, start(turn_id), create=new)
    await store.finish_turn(lease, replace(answered(lease), ended_at=ended_at, **fields))


def _hit_keys(hits: Hits) -> list[tuple[str, int]]:
    return sorted((hit.conversation, hit.sequence) for hit in hits.items)


class SearchContract(StoreSuite):
    async def test_a_summary_equals_the_list_entry(self, store: Store) -> None:
        await store.create(NewConversation(id="c-1", name="demo", metadata={"k": [1]}))
        await say(store, "demo", "t1")
        (entry,) = (await store.list_conversations()).items
        assert await store.summary("demo") == entry
        assert await store.summary(entry.id) == entry

    async def test_the_summary_of_an_unknown_conversation_is_an_error(self, store: Store) -> None:
        await say(store, "demo", "t1")
        await self._refuse(
            ConversationNotFoundError, store.summary("other"), store.summary("demo", owner="eve")
        )
        await self._refuse(InvalidIdError, store.summary("../demo"))

    async def test_counts_use_the_same_filter_as_lists(self, store: Store) -> None:
        for name in ("a", "b", "c"):
            await store.create(NewConversation(id=name))
        await store.update("b", Changes(archived=True))
        filters: tuple[ArchiveFilter, ...] = ("active", "archived", "all")
        counts = [await store.count_conversations(archive_filter=each) for each in filters]
        assert counts == [2, 1, 3]
        assert await store.count_conversations(owner="eve") == 0

    async def test_a_list_offset_skips_the_newest(self, store: Store) -> None:
        for name in ("a", "b", "c", "d"):
            await store.create(NewConversation(id=name))
        page = await store.list_conversations(offset=1, limit=2)
        assert [item.id for item in page.items] == ["c", "b"]
        assert page.next_cursor is not None
        rest = await store.list_conversations(cursor=page.next_cursor, limit=2)
        assert [item.id for item in rest.items] == ["a"]
        assert (await store.list_conversations(offset=9)).items == ()
        assert len((await store.list_conversations(limit=sys.maxsize)).items) == 4

    async def test_a_search_matches_all_words_case_insensitively(self, store: Store) -> None:
        await say(store, "pets", "t1", "My cat LUNA sleeps on the roof.")
        await say(store, "work", "t1", "The roof of the office leaks.")
        assert _hit_keys(await store.search("luna ROOF")) == [("pets", 1), ("pets", 2)]
        assert len((await store.search("roof")).items) == 4
        assert (await store.search("luna office")).items == ()
        assert (await store.search("lun")).items == ()

    async def test_a_search_finds_other_forms_of_english_words(self, store: Store) -> None:
        await say(store, "pets", "t1", "The cats were running to both cities.")
        await say(store, "work", "t1", "Concatenate the lists.")
        for query in ("cat", "cats runs", "CITY", "run"):
            assert _hit_keys(await store.search(query)) == [("pets", 1), ("pets", 2)], query
        assert (await store.search("universal")).total == 0

    async def test_a_word_with_an_asterisk_matches_the_start_of_words(self, store: Store) -> None:
        await say(store, "pets", "t1", "My Cathedral, and cats were running")
        await say(store, "work", "t1", "Concatenate the lists")
        for query in ("cathe*", "cat* runn*", "Cathedral* my", "runs*"):
            assert _hit_keys(await store.search(query)) == [("pets", 1), ("pets", 2)], query
        for query in ("ca*", "cathe", "cathedrals*x", "at*"):
            assert (await store.search(query)).total == 0, query
        (hit, _) = sorted((await store.search("cat*")).items, key=lambda one: one.sequence)
        assert hit.highlight == "My <b>Cathedral</b>, and <b>cats</b> were running"

    async def test_the_word_of_the_query_ranks_before_its_other_forms(self, store: Store) -> None:
        await say(store, "one", "t1", "My list of cats")
        await say(store, "two", "t1", "My list of a cat")
        await say(store, "three", "t1", "cat and cat and cat")
        hits = [hit for hit in (await store.search("cat")).items if hit.role == "user"]
        assert [hit.conversation for hit in hits] == ["three", "two", "one"]
        assert 1 > hits[0].relevance > hits[1].relevance > hits[2].relevance > 0

    async def test_a_hit_has_the_message_and_a_highlight(self, store: Store) -> None:
        await say(store, "pets", "t1", "Other")
        await say(store, "pets", "t2", "My <i>Cats</i> sleep.")
        (hit, _) = sorted((await store.search("cat")).items, key=lambda one: one.sequence)
        assert (hit.message_id, hit.content) == ("t2-0", "My <i>Cats</i> sleep.")
        assert hit.highlight == "My &lt;i&gt;<b>Cats</b>&lt;/i&gt; sleep."

    async def test_a_hit_has_its_conversation_and_a_snippet(self, store: Store) -> None:
        await store.create(NewConversation(id="pets", title="Animals"))
        await say(store, "pets", "t1", "word " * 100 + "the cat Luna sits here " + "word " * 100)
        hits = await store.search("luna")
        hit = next(hit for hit in hits.items if hit.sequence == 1)
        assert (hit.conversation, hit.title, hit.role) == ("pets", "Animals", "user")
        assert "cat Luna sits" in hit.snippet
        assert len(hit.snippet) < 200
        assert hit.created_at == (await store.load("pets")).turns[0].started_at

    @pytest.mark.parametrize(
        ("text", "query"),
        [
            ("私の猫の名前はルナです。", "猫の名前"),
            ("私の猫の名前はルナです。", "ルナ"),
            ("我的猫叫露娜。", "猫"),
            ("我的猫叫露娜。", "露娜"),
            ("제 고양이 이름은 루나예요", "고양이"),
            ("Моя КОШКА", "кошка"),
            ("Straße", "STRASSE"),
        ],
    )
    async def test_search_in_many_languages(self, store: Store, text: str, query: str) -> None:
        await say(store, "demo", "t1", text)
        await say(store, "other", "t1", "犬 собака 狗 개")
        assert _hit_keys(await store.search(query)) == [("demo", 1), ("demo", 2)]

    async def test_a_search_covers_the_default_path_only(self, store: Store) -> None:
        await say(store, "demo", "t1", "apple")
        await say_again(store, "demo", "t2", place="t1", text="cherry")
        await self._finish(store, start("t3", "plum"), failed)
        totals = [(await store.search(word)).total for word in ("apple", "cherry", "plum")]
        assert totals == [0, 1, 0]
        await store.choose_variant("demo", "t1")
        totals = [(await store.search(word)).total for word in ("apple", "cherry")]
        assert totals == [2, 0]

    async def test_a_search_does_not_find_deleted_messages(self, store: Store) -> None:
        await say(store, "demo", "t1", "apple")
        await say(store, "demo", "t2", "cherry")
        await say(store, "gone", "t1", "apple")
        await store.delete("gone")
        await store.delete_from("demo", 4)
        assert _hit_keys(await store.search("apple")) == [("demo", 1), ("demo", 2)]
        assert _hit_keys(await store.search("cherry")) == [("demo", 3)]
        await say(store, "new", "t1", "plum")
        assert (await store.search("apple")).total == 2

    async def test_a_search_filters_archived_conversations(self, store: Store) -> None:
        await say(store, "demo", "t1", "apple")
        await store.update("demo", Changes(archived=True))
        assert (await store.search("apple")).total == 0
        assert (await store.search("apple", archive_filter="archived")).total == 2
        assert (await store.search("apple", archive_filter="all")).total == 2

    async def test_a_search_filters_conversations_as_a_list_does(self, store: Store) -> None:
        for name, source in (("a", "shell"), ("b", "chat"), ("c", "chat")):
            new = NewConversation(id=name, model=f"openai/GPT-{name}", source=source)
            lease = await store.begin_turn(name, start(f"t-{name}", "apple"), create=new)
            await store.finish_turn(lease, answered(lease))
        updated_at = (await store.summary("b")).updated_at
        cases: list[tuple[dict[str, Any], list[str]]] = [
            ({}, ["a", "b", "c"]),
            ({"model": "gpt-b"}, ["b"]),
            ({"since": updated_at}, ["b", "c"]),
            ({"origin": "chat"}, ["b", "c"]),
            ({"origin": "chat", "model": "-c", "since": updated_at}, ["c"]),
            ({"model": "nobody"}, []),
        ]
        for options, found in cases:
            hits = await store.search("apple", **options)
            assert sorted(hit.conversation for hit in hits.items) == found
            assert hits.total == len(found)
            rest = await store.search("apple", **options, offset=1)
            assert len(rest.items) == max(len(found) - 1, 0)

    async def test_a_search_finds_branches(self, store: Store) -> None:
        await say(store, "demo", "t1", "apple")
        await store.branch("demo", NewConversation(id="copy"), at=1)
        assert _hit_keys(await store.search("apple")) == [("copy", 1), ("demo", 1), ("demo", 2)]

    async def test_a_search_covers_one_owner(self, store: Store) -> None:
        await say(store, "demo", "t1", "apple")
        assert await store.search("apple", owner="eve") == Hits(items=(), total=0)

    async def test_search_results_are_paged(self, store: Store) -> None:
        for number in range(5):
            await say(store, f"c{number}", "t1", "apple")
        first = await store.search("apple", limit=4)
        second = await store.search("apple", limit=4, offset=4)
        third = await store.search("apple", limit=4, offset=8)
        assert [len(page.items) for page in (first, second, third)] == [4, 4, 2]
        assert {page.total for page in (first, second, third)} == {10}
        assert len({(hit.conversation, hit.sequence) for hit in first.items + second.items}) == 8

    async def test_a_search_needs_a_word(self, store: Store) -> None:
        for query in ("", "  ", "?!"):
            await self._refuse(UsageError, store.search(query))

    async def test_query_syntax_is_searched_as_words(self, store: Store) -> None:
        await say(store, "demo", "t1", "a b drop table messages")
        for query in HOSTILE:
            try:
                hits = await store.search(query)
            except UsageError:
                continue
            assert {hit.conversation for hit in hits.items} <= {"demo"}
        assert texts_of(await store.search("messages")) == {1, 2}

    async def test_usage_is_summed_by_day(self, store: Store) -> None:
        await _spend(store, "a", "t1", ended_at=NOON, cost=0.5)
        await _spend(store, "b", "t1", ended_at=NOON + timedelta(hours=1), cost=None)
        await _spend(store, "a", "t2", ended_at=NOON + timedelta(days=1), cost=0.25)
        first, second = await store.usage()
        assert (first.key, first.calls, first.cost, first.unpriced) == ("2026-03-01", 2, 0.5, 1)
        assert first.usage == Usage(input=6, output=8)
        assert (second.key, second.calls, second.cost) == ("2026-03-02", 1, 0.25)

    async def test_a_sum_without_a_known_price_has_no_cost(self, store: Store) -> None:
        await _spend(store, "a", "t1", ended_at=NOON, model="local", cost=None)
        await _spend(store, "a", "t2", ended_at=NOON, model="big", cost=0.5)
        sums = {each.key: each for each in await store.usage(by="model")}
        assert (sums["local"].cost, sums["local"].unpriced) == (None, 1)
        assert (sums["big"].cost, sums["big"].unpriced) == (0.5, 0)

    async def test_usage_is_summed_by_model(self, store: Store) -> None:
        usage = Usage(input=1, output=2, cache_read=3, cache_write=4, reasoning=5, estimated=True)
        await _spend(store, "a", "t1", ended_at=NOON, model="big", usage=usage)
        await _spend(store, "a", "t2", ended_at=NOON, model="big")
        await _spend(store, "a", "t3", ended_at=NOON, model=None)
        sums = {each.key: each for each in await store.usage(by="model")}
        assert sorted(sums) == ["big", "fallback"]
        assert sums["big"].usage == usage + Usage(input=3, output=4)
        assert sums["big"].usage.estimated
        assert not sums["fallback"].usage.estimated

    async def test_usage_is_summed_by_day_and_model(self, store: Store) -> None:
        await _spend(store, "a", "t1", ended_at=NOON, model="big")
        await _spend(store, "a", "t2", ended_at=NOON, model="a small one")
        await _spend(store, "a", "t3", ended_at=NOON + timedelta(days=1), model="big")
        keys = [each.key for each in await store.usage(by="day_model")]
        assert keys == ["2026-03-01 a small one", "2026-03-01 big", "2026-03-02 big"]

    async def test_usage_counts_a_turn_that_a_branch_copied_once(self, store: Store) -> None:
        await say(store, "a", "t1", "one")
        lease = await store.begin_turn("a", start("t2"))
        ended = replace(answered(lease), ended_at=lease.turn.started_at)
        await store.finish_turn(lease, ended)
        await store.branch("a", NewConversation(id="b"))
        lease = await store.begin_turn("b", start("t3"))
        await store.finish_turn(lease, replace(answered(lease), ended_at=lease.turn.started_at))
        for by in ("day", "model", "day_model"):
            (total,) = await store.usage(by=by)
            assert total.calls == 2

    async def test_usage_is_limited_to_a_period(self, store: Store) -> None:
        for day in range(4):
            await _spend(store, "a", f"t{day}", ended_at=NOON + timedelta(days=day))
        since, until = NOON + timedelta(days=1), NOON + timedelta(days=3)
        sums = await store.usage(since=since, until=until)
        assert [each.key for each in sums] == ["2026-03-02", "2026-03-03"]
        assert await store.usage(owner="eve") == ()

    async def test_variants_and_failed_turns_count_in_usage(self, store: Store) -> None:
        await _spend(store, "a", "t1", ended_at=NOON)
        lease = await store.begin_turn("a", start("t2", place="t1"))
        await store.finish_turn(lease, replace(answered(lease), ended_at=NOON))
        lease = await store.begin_turn("a", start("t3"))
        spent = replace(failed(lease), usage=Usage(input=1), ended_at=NOON)
        await store.finish_turn(lease, spent)
        (total,) = await store.usage()
        assert (total.calls, total.usage) == (3, Usage(input=7, output=8))

    async def test_text_in_any_script_is_unchanged(self, store: Store, other: Store) -> None:
        text = "e\u0301 \U0001f469\u200d\U0001f680 \u202eabc \ufeff \x01 \x7f"
        await store.create(NewConversation(id="demo", title=text, metadata={text: text}))
        lease = await store.begin_turn("demo", start("t1", messages=(plain_message("user", text),)))
        await store.finish_turn(lease, answered(lease, text))
        loaded = await other.load("demo")
        assert (loaded.title, loaded.metadata) == (text, {text: text})
        assert [message.text for message in loaded.messages] == [text, text]


def texts_of(hits: Hits) -> set[int]:
    return {hit.sequence for hit in hits.items}

"""Path digests: find a conversation by its messages. Families, sources and side conversations."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from cllm.core.conversation import ITEMS_SOURCE, Branch, StoredConversation, Turn
from cllm.core.errors import ConversationNotFoundError, SequenceNotFoundError, TurnNotFoundError
from cllm.core.message import Dialect, Message, Role, plain_message
from cllm.core.ports import (
    MAX_MATCHES,
    Changes,
    Lease,
    NewConversation,
    PathMatch,
    Store,
    TurnStart,
)
from cllm.testing.store_harness import (
    OPENING,
    StoreHarness,
    StoreSuite,
    answered,
    failed,
    say,
    say_again,
    start,
    texts,
)
from cllm.wire.path_digest import ROOT, digest_path

replace = msgspec.structs.replace
CALL: dict[str, Any] = {"type": "function", "function": {"name": "add", "arguments": "{}"}}


def path_of(*contents: str) -> tuple[Message, ...]:
    """Messages of the user and the assistant in turn."""
    roles: tuple[Role, Role] = ("user", "assistant")
    return tuple(plain_message(roles[index % 2], text) for index, text in enumerate(contents))


async def find(store: Store, *contents: str, **options: Any) -> tuple[PathMatch, ...]:
    """Find the longest known start of a path with these texts."""
    return await find_messages(store, path_of(*contents), **options)


async def find_messages(
    store: Store, messages: Sequence[Message], *, after: bytes = ROOT, **options: Any
) -> tuple[PathMatch, ...]:
    return await store.find_paths(digest_path(messages, after)[::-1], **options)


def places(matches: Sequence[PathMatch]) -> list[tuple[str, str, int]]:
    return [(match.conversation, match.turn, match.ordinal) for match in matches]


def build_message(role: Role, content: Any, dialect: Dialect = "openai", **fields: Any) -> Message:
    raw = msgspec.json.encode({"role": role, "content": content, **fields})
    return Message(role=role, raw=raw, dialect=dialect)


async def list_family(store: Store, family: str, **options: Any) -> list[str]:
    return [summary.id for summary in await store.list_family(family, **options)]


class FoundPathContract(StoreSuite):
    """Messages are found by the digest of their path."""

    async def test_the_longest_known_path_is_found(self, store: Store, other: Store) -> None:
        await say(store, "demo", "t1", "one")
        await say(store, "demo", "t2", "two")
        known = await find(other, "one", "one?", "two", "two?", "three")
        assert known == (
            PathMatch(
                conversation="demo",
                turn="t2",
                ordinal=1,
                position=1,
                sequence=4,
                message_count=4,
                state="complete",
            ),
        )
        shorter = await find(other, "one", "one?", "other", "reply", "three")
        assert places(shorter) == [("demo", "t1", 1)]
        assert (shorter[0].position, shorter[0].sequence, shorter[0].message_count) == (3, 2, 4)
        assert await find(other, "two", "two?") == ()
        assert await find(other) == ()

    async def test_messages_that_a_client_adds_itself_are_found_in_their_family(
        self, store: Store
    ) -> None:
        new = NewConversation(id="demo", source=ITEMS_SOURCE)
        lease = await store.begin_turn("demo", start("t1", "one"), create=new)
        await store.finish_turn(lease, answered(lease, "one?"), opening=OPENING)
        assert await find(store, "one", "one?") == ()
        assert places(await find(store, "one", "one?", family="demo")) == [("demo", "t1", 1)]
        await say(store, "other", "t2", "one")
        assert places(await find(store, "one", "one?")) == [("other", "t2", 1)]

    async def test_every_message_of_a_turn_is_found(self, store: Store) -> None:
        messages = (plain_message("user", "one"), plain_message("user", "more"))
        lease = await store.begin_turn(
            "demo", TurnStart(id="t1", messages=messages), create=NewConversation(id="demo")
        )
        await store.finish_turn(lease, answered(lease))
        for ordinal in (0, 1):
            (match,) = await find_messages(store, messages[: ordinal + 1])
            assert (match.ordinal, match.sequence) == (ordinal, ordinal + 1)

    async def test_the_format_of_messages_makes_no_difference(self, store: Store) -> None:
        stored = (
            build_message("user", [{"type": "text", "text": "What is 1+1?"}], "anthropic"),
            build_message(
                "assistant",
                [
                    {"type": "thinking", "thinking": "Hm", "signature": "s"},
                    {"type": "text", "text": "I count."},
                    {"type": "tool_use", "id": "c1", "name": "add", "input": {}},
                ],
                "anthropic",
            ),
            build_message(
                "user",
                [{"type": "tool_result", "tool_use_id": "c1", "content": "2"}],
                "anthropic",
            ),
        )
        lease = await store.begin_turn(
            "demo", TurnStart(id="t1", messages=stored[:1]), create=NewConversation(id="demo")
        )
        await store.finish_turn(
            lease, replace(lease.turn, state="complete", messages=stored[:2]), opening=OPENING
        )
        await self._finish(store, TurnStart(id="t2", messages=stored[2:]))
        sent = (
            build_message("system", "Another prompt."),
            build_message("user", "What is 1+1?"),
            build_message("assistant", "I count.\n", tool_calls=[{"id": "c1", **CALL}]),
            build_message("tool", "2", tool_call_id="c1"),
        )
        assert places(await find_messages(store, sent)) == [("demo", "t2", 0)]
        assert places(await find_messages(store, sent[:-1])) == [("demo", "t1", 1)]

    async def test_other_ids_of_tool_calls_are_found_if_allowed(self, store: Store) -> None:
        await self._finish(store, start("t1", "Add"))
        await self._finish(store, start("t1", "Add"), _calling("c1"), ref="calls")
        sent = (
            plain_message("user", "Add"),
            build_message("assistant", None, tool_calls=[{"id": "c2", **CALL}]),
        )
        assert {place[:2] for place in places(await find_messages(store, sent))} == {
            ("demo", "t1"),
            ("calls", "t1"),
        }
        (match,) = await find_messages(store, sent, any_ids=True)
        assert (match.conversation, match.ordinal, match.position) == ("calls", 1, 0)
        await self._finish(store, start("t1", "Add"), _calling("c2"), ref="same")
        assert places(await find_messages(store, sent)) == [("same", "t1", 1)]
        assert [match.conversation for match in await find_messages(store, sent, any_ids=True)] == [
            "same",
            "calls",
        ]

    async def test_a_running_turn_is_found(self, store: Store, other: Store) -> None:
        await say(store, "demo", "t1", "one")
        lease = await store.begin_turn("demo", start("t2", "two"))
        (match,) = await find(other, "one", "one?", "two", "two?")
        assert (match.turn, match.state) == ("t2", "running")
        assert (match.sequence, match.message_count) == (3, 3)
        await store.finish_turn(lease, answered(lease, "two?"))
        (match,) = await find(other, "one", "one?", "two", "two?")
        assert (match.sequence, match.message_count, match.state) == (4, 4, "complete")

    async def test_a_dropped_turn_is_not_found(self, store: Store) -> None:
        await say(store, "demo", "t1", "one")
        await store.drop_turn(await store.begin_turn("demo", start("t2", "two")))
        assert places(await find(store, "one", "one?", "two")) == [("demo", "t1", 1)]

    async def test_a_hidden_turn_is_found_when_it_ends(self, store: Store) -> None:
        await self._finish(store, start("t1", "one", visible=False))
        await self._finish(store, start("t2", "two", visible=False))
        assert places(await find(store, "one", "Hi", "two", "Hi")) == [("demo", "t2", 1)]

    async def test_a_failed_turn_is_found_and_not_continued(self, store: Store) -> None:
        await say(store, "demo", "t1", "one")
        await self._finish(store, start("t2", "two"), failed)
        (match,) = await find(store, "one", "one?", "two")
        assert (match.turn, match.state, match.sequence) == ("t2", "failed", 3)
        await say(store, "demo", "t3", "three")
        assert places(await find(store, "one", "one?", "three", "three?")) == [("demo", "t3", 1)]

    async def test_a_turn_of_a_dead_process_is_found(
        self, harness: StoreHarness, store: Store, other: Store
    ) -> None:
        await say(store, "demo", "t1", "one")
        await store.begin_turn("demo", start("t2", "two"))
        await harness.lose(store)
        await say(other, "demo", "t3", "three")
        (match,) = await find(other, "one", "one?", "two")
        assert (match.turn, match.state) == ("t2", "failed")
        assert places(await find(other, "one", "one?", "three", "three?")) == [("demo", "t3", 1)]

    async def test_variants_are_found(self, store: Store, other: Store) -> None:
        await say(store, "demo", "t1", "one")
        await self._finish(store, start("t2", "two"))
        await say_again(store, "demo", "t3", place="t2", text="better")
        await self._finish(store, start("t4", "two", place="t2"), failed)
        (old,) = await find(other, "one", "one?", "two", "Hi")
        assert (old.turn, old.sequence, old.message_count) == ("t2", None, 4)
        (new,) = await find(other, "one", "one?", "Hello", "better")
        assert (new.turn, new.sequence, new.message_count) == ("t3", 4, 4)
        matches = await find(other, "one", "one?", "two")
        assert {(match.turn, match.sequence, match.state) for match in matches} == {
            ("t2", None, "complete"),
            ("t4", None, "failed"),
        }

    async def test_a_running_variant_is_found(self, store: Store, other: Store) -> None:
        await say(store, "demo", "t1", "one")
        await say(store, "demo", "t2", "two")
        await store.begin_turn("demo", start("t3", "again", place="t2"))
        (match,) = await find(other, "one", "one?", "again", "again?")
        assert (match.turn, match.sequence, match.message_count) == ("t3", None, 4)
        assert match.state == "running"

    async def test_the_path_follows_the_chosen_variant(self, store: Store) -> None:
        await say(store, "demo", "t1", "one")
        await say_again(store, "demo", "t2", place="t1", text="better")
        await say(store, "demo", "t3", "two")
        await store.choose_variant("demo", "t1")
        (old,) = await find(store, "Hello", "better")
        (new,) = await find(store, "one", "one?")
        assert (old.turn, old.sequence) == ("t2", None)
        assert (new.turn, new.sequence) == ("t1", 2)
        assert places(await find(store, "one", "one?", "two", "two?")) == [("demo", "t3", 1)]
        await say(store, "demo", "t4", "three")
        (match,) = await find(store, "one", "one?", "two", "two?", "three", "three?")
        assert (match.turn, match.sequence) == ("t4", 6)

    async def test_deleted_messages_are_not_found(self, store: Store, other: Store) -> None:
        for number in ("one", "two", "three"):
            await say(store, "demo", number, number)
        await store.delete_from("demo", 4)
        whole = ("one", "one?", "two", "two?", "three", "three?")
        (match,) = await find(other, *whole)
        assert (match.turn, match.ordinal, match.message_count) == ("two", 0, 3)
        await say(store, "demo", "t4", "four")
        rest = path_of("one", "one?", "two") + path_of("four", "four?")
        assert places(await find_messages(other, rest)) == [("demo", "t4", 1)]
        await store.delete("demo")
        assert await find(other, *whole) == ()

    async def test_a_prompt_changes_no_path(self, store: Store) -> None:
        await self._finish(store, start("t1", "one"), ref="old")
        await store.capture("old", OPENING)
        await say(store, "old", "t2", "two")
        assert places(await find(store, "one", "Hi", "two", "two?")) == [("old", "t2", 1)]

    async def test_added_conversations_are_found(self, store: Store, other: Store) -> None:
        await say(store, "demo", "t1", "one")
        await self._finish(store, start("t2", "two"), failed)
        await say(store, "demo", "t3", "three")
        await say_again(store, "demo", "t4", place="t3", text="better")
        await other.add(replace(await store.load("demo"), id="copy"))
        await store.delete("demo")
        assert places(await find(store, "one", "one?", "two")) == [("copy", "t2", 0)]
        (match,) = await find(store, "one", "one?", "three", "three?")
        assert (match.conversation, match.turn, match.sequence) == ("copy", "t3", None)
        (match,) = await find(store, "one", "one?", "Hello", "better")
        assert (match.conversation, match.turn, match.sequence) == ("copy", "t4", 5)

    async def test_the_newest_conversation_is_first(self, store: Store) -> None:
        for ref in ("a", "b", "c"):
            await say(store, ref, "t1", "one")
        await say(store, "b", "t2", "two")
        matches = await find(store, "one", "one?")
        assert [match.conversation for match in matches] == ["b", "c", "a"]

    async def test_the_number_of_matches_is_limited(self, store: Store) -> None:
        await say(store, "c0", "t1", "one")
        loaded = await store.load("c0")
        for number in range(1, MAX_MATCHES + 2):
            await store.add(replace(loaded, id=f"c{number}"))
        matches = await find(store, "one", "one?")
        newest = [f"c{number}" for number in range(MAX_MATCHES + 1, 1, -1)]
        assert [match.conversation for match in matches] == newest

    async def test_others_and_archived_conversations_are_not_found(self, store: Store) -> None:
        await say(store, "demo", "t1", "one")
        assert await find(store, "one", owner="other") == ()
        await store.update("demo", Changes(archived=True))
        assert await find(store, "one") == ()
        await store.update("demo", Changes(archived=False))
        assert places(await find(store, "one")) == [("demo", "t1", 0)]

    async def test_side_conversations_are_found_only_among_themselves(self, store: Store) -> None:
        await say(store, "demo", "t1", "one")
        side = NewConversation(id="side", is_side=True)
        lease = await store.begin_turn("side", start("t1", "one"), create=side)
        await store.finish_turn(lease, answered(lease, "one?"))
        assert places(await find(store, "one", "one?", "two")) == [("demo", "t1", 1)]
        assert places(await find(store, "one", "one?", "two", side=True)) == [("side", "t1", 1)]
        await store.delete("demo")
        assert await find(store, "one", "one?") == ()

    async def test_a_path_can_be_found_in_one_family(self, store: Store) -> None:
        for ref, family in (("a", "client:1"), ("b", "client:2"), ("c", None)):
            lease = await store.begin_turn(
                ref, start("t1", "one"), create=NewConversation(id=ref, family=family)
            )
            await store.finish_turn(lease, answered(lease, "one?"))
        await say(store, "a", "t2", "two")
        whole = ("one", "one?", "two", "two?")
        assert places(await find(store, *whole, family="client:2")) == [("b", "t1", 1)]
        assert places(await find(store, *whole, family="client:1")) == [("a", "t2", 1)]
        assert places(await find(store, *whole, family="c")) == [("c", "t1", 1)]
        assert await find(store, *whole, family="a") == ()

    async def test_a_path_can_start_after_other_messages(self, store: Store) -> None:
        before = path_of("one", "one?")
        path_start = digest_path(before)[-1]
        new = NewConversation(id="side", is_side=True, path_start=path_start)
        lease = await store.begin_turn("side", start("t1", "two"), create=new)
        await store.finish_turn(lease, answered(lease, "two?"))
        await say(store, "side", "t2", "three")
        whole = path_of("one", "one?", "two", "two?", "three", "three?")
        (match,) = await find_messages(store, whole, side=True)
        assert (match.turn, match.sequence, match.message_count) == ("t2", 4, 4)
        assert await find(store, "two", "two?", side=True) == ()
        await store.branch("side", NewConversation(id="copy"), at=2)
        (match, *_) = await find_messages(store, whole[:4], side=True)
        assert (match.conversation, match.sequence) == ("copy", 2)


class FamilyContract(StoreSuite):
    """Branches through variants, families, sources and side conversations."""

    async def test_a_branch_is_found_by_its_path(self, store: Store, other: Store) -> None:
        await say(store, "demo", "t1", "one")
        await say(store, "demo", "t2", "two")
        await store.branch("demo", NewConversation(id="copy"), at=3)
        await say(store, "copy", "t3", "three")
        matches = await find(other, "one", "one?")
        assert [match.conversation for match in matches] == ["copy", "demo"]
        copied = path_of("one", "one?", "two") + path_of("three", "three?")
        (match,) = await find_messages(other, copied)
        assert (match.conversation, match.sequence, match.message_count) == ("copy", 5, 5)

    async def test_a_branch_can_go_through_a_variant(self, store: Store, other: Store) -> None:
        await say(store, "demo", "t1", "one")
        await say(store, "demo", "t2", "two")
        await say_again(store, "demo", "t3", place="t2", text="better")
        branch = await store.branch("demo", NewConversation(id="copy"), path=("t1", "t2"))
        assert texts(branch) == ["one", "one?", "two", "two?"]
        assert branch.parent == Branch(conversation="demo", sequence=4)
        assert await other.load("copy") == branch
        (match, _) = await find(other, "one", "one?", "two", "two?")
        assert (match.conversation, match.sequence) == ("copy", 4)
        shorter = await store.branch("demo", NewConversation(id="short"), path=("t1", "t2"), at=3)
        assert texts(shorter) == ["one", "one?", "two"]
        assert texts(await store.load("demo")) == ["one", "one?", "Hello", "better"]

    async def test_a_branch_can_follow_a_failed_turn(self, store: Store) -> None:
        await say(store, "demo", "t1", "one")
        await self._finish(store, start("t2", "two"), failed)
        await say(store, "demo", "t3", "three")
        branch = await store.branch("demo", NewConversation(id="copy"), path=("t1", "t3"))
        assert texts(branch) == ["one", "one?", "three", "three?"]

    async def test_the_path_of_a_branch_must_exist(self, store: Store) -> None:
        await say(store, "demo", "t1", "one")
        new = NewConversation(id="copy")
        await self._refuse(
            TurnNotFoundError,
            store.branch("demo", new, path=("t1", "t9")),
            store.branch("demo", new, path=("t9",), at=1),
        )
        await self._refuse(SequenceNotFoundError, store.branch("demo", new, path=("t1",), at=3))
        await self._refuse(ConversationNotFoundError, store.load("copy"))

    async def test_a_family_is_the_conversation_and_its_branches(
        self, store: Store, other: Store
    ) -> None:
        await say(store, "root", "t1", "one")
        await say(store, "stranger", "t1", "one")
        first = await store.branch("root", NewConversation(id="first"))
        second = await store.branch("first", NewConversation(id="second"))
        assert (first.family, second.family) == ("root", "root")
        assert await list_family(other, "root") == ["second", "first", "root"]
        await say(store, "root", "t2", "two")
        assert await list_family(other, "root", limit=2) == ["root", "second"]
        await store.update("second", Changes(archived=True))
        assert await list_family(other, "root") == ["root", "first"]
        assert await list_family(other, "first") == []
        assert await list_family(other, "root", owner="other") == []
        await store.delete("root")
        assert await list_family(other, "root") == ["first"]

    async def test_the_family_of_a_session_includes_side_conversations(self, store: Store) -> None:
        await store.create(NewConversation(id="main", family="client:1", source="client"))
        parent = Branch(conversation="main", sequence=0, kind="side")
        side = NewConversation(
            id="side", family="client:1", source="client", is_side=True, parent=parent
        )
        await store.create(side)
        newest, oldest = await store.list_family("client:1")
        assert (newest.id, newest.is_side, newest.parent) == ("side", True, parent)
        assert (oldest.id, oldest.is_side, oldest.parent) == ("main", False, None)
        assert (newest.source, oldest.source) == ("client", "client")

    async def test_side_conversations_are_listed_only_on_request(self, store: Store) -> None:
        await store.create(NewConversation(id="mine"))
        await store.create(NewConversation(id="agent", source="client"))
        await store.create(NewConversation(id="side", source="client", is_side=True))

        async def listed(**options: Any) -> list[str]:
            page = await store.list_conversations(**options)
            assert await store.count_conversations(**options) == len(page.items)
            return [summary.id for summary in page.items]

        assert await listed() == ["agent", "mine"]
        assert await listed(side=True) == ["side", "agent", "mine"]
        assert await listed(source="client") == ["agent"]
        assert await listed(source="client", side=True) == ["side", "agent"]
        assert await listed(source="other", side=True) == []
        await store.update("agent", Changes(archived=True))
        assert await listed(source="client", archive_filter="archived") == ["agent"]
        assert await listed(source="client", archive_filter="all") == ["agent"]

    async def test_pages_contain_no_hidden_conversations(self, store: Store) -> None:
        for number in range(6):
            new = NewConversation(id=f"c{number}", is_side=number % 2 == 0, source="client")
            await store.create(new)
        first = await store.list_conversations(source="client", limit=2)
        assert [summary.id for summary in first.items] == ["c5", "c3"]
        rest = await store.list_conversations(source="client", limit=2, cursor=first.next_cursor)
        assert [summary.id for summary in rest.items] == ["c1"]
        assert rest.next_cursor is None
        skipped = await store.list_conversations(source="client", limit=2, offset=1)
        assert [summary.id for summary in skipped.items] == ["c3", "c1"]

    async def test_the_fields_survive(self, store: Store, other: Store) -> None:
        parent = Branch(conversation="root", sequence=2, kind="compaction")
        fields: dict[str, Any] = {
            "parent": parent,
            "family": "client:1",
            "source": "client",
            "is_side": True,
            "path_start": digest_path(path_of("zero"))[-1],
        }
        new = NewConversation(id="demo", **fields)
        lease = await store.begin_turn("demo", start("t1", "one"), create=new)
        await store.finish_turn(lease, answered(lease))
        await store.update("demo", Changes(title="Title"))
        await say(store, "demo", "t2", "two")
        loaded = await other.load("demo")
        assert _fields_of(loaded) == fields
        assert _fields_of(await other.load("demo", tail=1)) == fields
        await store.add(replace(loaded, id="copy"))
        assert _fields_of(await other.load("copy")) == fields
        branch = await store.branch("demo", NewConversation(id="branch"))
        own = {"parent": Branch(conversation="demo", sequence=4)}
        assert _fields_of(branch) == fields | own
        assert await other.load("branch") == branch
        summary = await other.summary("demo")
        assert (summary.source, summary.is_side, summary.parent) == ("client", True, parent)


def _fields_of(conversation: StoredConversation) -> dict[str, Any]:
    names = ("parent", "family", "source", "is_side", "path_start")
    return {name: getattr(conversation, name) for name in names}


def _calling(call_id: str) -> Callable[[Lease], Turn]:
    def build(lease: Lease) -> Turn:
        reply = build_message("assistant", None, tool_calls=[{"id": call_id, **CALL}])
        return replace(lease.turn, state="complete", messages=(*lease.turn.messages, reply))

    return build

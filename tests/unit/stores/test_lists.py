from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import TypeVar

import pytest
from msgspec.structs import replace

from cllm.core.conversation import StoredConversation, Summary, Turn
from cllm.core.errors import UsageError
from cllm.core.message import plain_message
from cllm.core.notice import Notice
from cllm.core.ports import CallRecord, Tail
from cllm.core.reply import Usage
from cllm.stores.lists import ScannedLists
from cllm.stores.views import build_summary

T = TypeVar("T")
NOW = datetime(2026, 11, 16, tzinfo=UTC)
NOTICE = Notice(code="conversation_skipped", path="bad.json", message="Skipped.")


def conversation(key: str, text: str, *, archived: bool = False) -> StoredConversation:
    turn = Turn(
        id="t1",
        place="t1",
        state="complete",
        messages=(plain_message("user", text),),
        started_at=NOW,
        ended_at=NOW,
        usage=Usage(input=1),
    )
    archived_at = NOW if archived else None
    return StoredConversation(
        id=key, created_at=NOW, updated_at=NOW, turns=(turn,), archived_at=archived_at
    )


class Scanned(ScannedLists):
    """Two conversations, and one that cannot be read."""

    stored: tuple[StoredConversation, ...] = (
        conversation("a", "My cat"),
        conversation("b", "No cat", archived=True),
    )

    async def load(
        self, ref: str, *, owner: str = "local", tail: Tail = None
    ) -> StoredConversation:
        assert (owner, tail) == ("local", None)
        return next(one for one in self.stored if one.id == ref)

    async def _summaries(self, owner: str) -> tuple[Iterable[Summary], tuple[Notice, ...]]:
        return map(build_summary, self.stored if owner == "local" else ()), (NOTICE,)

    async def _scan(
        self, owner: str, work: Callable[[Iterable[StoredConversation]], T]
    ) -> tuple[T, tuple[Notice, ...]]:
        return work(self.stored if owner == "local" else ()), (NOTICE,)

    def _calls(self, owner: str) -> Iterable[CallRecord]:
        call = CallRecord(model="m", usage=Usage(output=2), cost=None, ended_at=NOW)
        return [call] if owner == "local" else []


async def test_lists_have_the_filter_and_the_notices():
    page = await Scanned().list_conversations(archive_filter="archived")
    assert [item.id for item in page.items] == ["b"]
    assert page.notices == (NOTICE,)
    assert await Scanned().count_conversations() == 1
    assert await Scanned().count_conversations(archive_filter="all") == 2
    assert await Scanned().count_conversations(owner="eve") == 0


async def test_side_conversations_are_listed_only_on_request():
    side = replace(conversation("s", "Side"), is_side=True, source="client")
    scanned = Scanned()
    scanned.stored = (*Scanned.stored, side, replace(side, id="t", is_side=False))
    page = await scanned.list_conversations()
    assert [item.id for item in page.items] == ["a", "t"]
    page = await scanned.list_conversations(source="client", side=True)
    assert [item.id for item in page.items] == ["s", "t"]
    assert await scanned.count_conversations() == 2
    assert await scanned.count_conversations(side=True) == 3
    assert await scanned.count_conversations(source="client") == 1


async def test_a_search_scans_every_conversation_of_the_filter():
    hits = await Scanned().search("CAT")
    assert [hit.conversation for hit in hits.items] == ["a"]
    assert (hits.total, hits.notices) == (1, (NOTICE,))
    assert (await Scanned().search("cat", archive_filter="all")).total == 2
    assert (await Scanned().search("cat my")).total == 1
    with pytest.raises(UsageError):
        await Scanned().search("?!")


async def test_usage_has_calls_without_a_conversation():
    (total,) = await Scanned().usage()
    assert (total.calls, total.usage) == (3, Usage(input=2, output=2))

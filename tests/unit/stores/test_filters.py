from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cllm.core.conversation import Summary
from cllm.stores.filters import ListFilter, SearchFilter, find_origin, lower_ascii

NOW = datetime(2026, 11, 16, tzinfo=UTC)
SUMMARY = Summary(
    id="a",
    created_at=NOW,
    updated_at=NOW,
    message_count=2,
    model="openai/GPT-test",
    title="My Cat",
    source="codex",
)


def test_the_filter_selects_by_archive_time():
    archived = Summary(id="b", created_at=NOW, updated_at=NOW, message_count=0, archived_at=NOW)
    for kind in (SearchFilter, ListFilter):
        active_only, archived_only = kind(), kind(archive_filter="archived")
        both = [SUMMARY, archived]
        assert [active_only.includes(one, unnamed="shell") for one in both] == [True, False]
        assert [archived_only.includes(one, unnamed="shell") for one in both] == [False, True]
        assert kind(archive_filter="all").includes(archived, unnamed="shell")


@pytest.mark.parametrize(
    ("filters", "is_included"),
    [
        ({"model": "gpt"}, True),
        ({"model": "claude"}, False),
        ({"since": NOW}, True),
        ({"since": NOW + timedelta(seconds=1)}, False),
        ({"origin": "client"}, True),
        ({"origin": "shell"}, False),
        ({"source": "codex"}, True),
        ({"source": "aider"}, False),
        ({"title": "cat"}, True),
        ({"title": "dog"}, False),
        ({"model": "gpt", "since": NOW, "origin": "client", "title": "my"}, True),
        ({"model": "gpt", "title": "dog"}, False),
    ],
)
def test_a_list_has_the_conversations_of_all_filters(filters: dict[str, Any], is_included: bool):
    assert ListFilter(**filters).includes(SUMMARY, unnamed="shell") is is_included


def test_a_conversation_without_the_field_contains_no_text():
    empty = Summary(id="c", created_at=NOW, updated_at=NOW, message_count=0)
    assert not ListFilter(model="a").includes(empty, unnamed="shell")
    assert not ListFilter(title="a").includes(empty, unnamed="shell")
    assert ListFilter(origin="shell").includes(empty, unnamed="shell")


def test_side_conversations_are_listed_only_on_request_and_searched_always():
    side = Summary(id="d", created_at=NOW, updated_at=NOW, message_count=0, is_side=True)
    assert not ListFilter().includes(side, unnamed="shell")
    assert ListFilter(side=True).includes(side, unnamed="shell")
    assert SearchFilter().includes(side, unnamed="shell")


def test_an_unknown_filter_is_an_error():
    filters: dict[str, Any] = {"side": True}
    with pytest.raises(TypeError, match="side"):
        SearchFilter(**filters)


def test_the_origin_without_a_source_depends_on_the_store():
    assert find_origin(None, "shell") == "shell"
    assert find_origin(None, "client") == "client"
    assert find_origin("chat", "client") == "chat"
    assert find_origin("shell", "client") == "shell"
    assert find_origin("codex", "shell") == "client"


def test_only_ascii_letters_change_case():
    assert lower_ascii("GPT-É\ud800") == "gpt-É\ud800"

"""The query of `/` and `/search`."""

from datetime import UTC, datetime, timedelta

import pytest

from cllm.core.conversation import Summary
from cllm.server.page.selection import Selection

NOW = datetime(2026, 11, 16, tzinfo=UTC)


def test_the_url_of_a_selection_has_only_what_differs():
    assert Selection().url() == "/"
    assert Selection(q="a b", days="7").url() == "/search?q=a+b&days=7"
    assert Selection(origin="chat", cursor="x").url(cursor="") == "/?origin=chat"


@pytest.mark.parametrize(
    ("query", "words"),
    [("need", "need*"), ("need ", "need"), ("a b", "a b*"), ("what?", "what?"), ("", "")],
)
def test_the_last_word_may_be_incomplete(query, words):
    assert Selection(q=query).words == words


@pytest.mark.parametrize(
    ("filters", "is_included"),
    [
        ({}, True),
        ({"origin": "client"}, True),
        ({"origin": "shell"}, False),
        ({"model": "GPT"}, True),
        ({"model": "claude"}, False),
        ({"days": "7"}, True),
        ({"days": "1"}, False),
        ({"archive_filter": "archived"}, False),
        ({"archive_filter": "all", "origin": "client", "model": "test", "days": "30"}, True),
    ],
)
def test_filters_select_a_conversation(filters, is_included):
    time = NOW - timedelta(days=2)
    summary = Summary(
        id="a", created_at=time, updated_at=time, message_count=2, model="openai/gpt-test"
    )

    assert Selection(**filters).includes(summary, unnamed="client", now=NOW) is is_included

"""The output of `cllm conversations search`."""

from datetime import UTC, datetime

from cllm.cli.conversations.search import found_fields, mark_words
from cllm.core.conversation import Summary
from cllm.core.ports import Hit
from cllm.engine.conversation_search import FoundConversation
from cllm.stores.search import parse_query

THEN = datetime(2026, 1, 1, tzinfo=UTC)


def test_without_a_terminal_words_are_not_marked():
    line = "1 user: my cats run"

    assert mark_words(line, parse_query("cat")) == line


def test_the_words_of_the_query_are_marked(monkeypatch):
    monkeypatch.setattr("cllm.cli.output.has_styles", lambda: True)

    marked = mark_words("my cats run", parse_query("cat"))

    assert marked == "my \x1b[1mcats\x1b[0m run"


def test_the_json_has_every_match():
    summary = Summary(id="cats", created_at=THEN, updated_at=THEN, message_count=2)
    hit = Hit(
        conversation="cats", title=None, sequence=2, role="user", snippet="Luna", created_at=THEN
    )

    fields = found_fields(FoundConversation(summary=summary, hits=(hit,)))

    assert (fields["id"], fields["in_title"]) == ("cats", False)
    assert fields["matches"] == [
        {
            "sequence_number": 2,
            "role": "user",
            "snippet": "Luna",
            "relevance": 0.0,
            "created_at": THEN,
        }
    ]

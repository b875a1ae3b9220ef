"""The search terms and summaries of conversation files."""

import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cllm.core.conversation import StoredConversation, Turn
from cllm.core.message import plain_message
from cllm.stores.json.text_index import IndexedContent, TextIndex, list_terms
from cllm.stores.search import parse_query
from cllm.stores.views import build_summary

NOW = datetime(2026, 11, 16, tzinfo=UTC)


def conversation(key: str, *texts: str, minutes: int = 0, state="complete") -> StoredConversation:
    messages = tuple(plain_message("user", text) for text in texts)
    turn = Turn(id="t1", place="t1", state=state, messages=messages, started_at=NOW)
    updated_at = NOW + timedelta(minutes=minutes)
    return StoredConversation(id=key, created_at=NOW, updated_at=updated_at, turns=(turn,))


def refresh(index: TextIndex, version: str, *conversations: StoredConversation) -> None:
    contents = {one.id: IndexedContent(build_summary(one), one) for one in conversations}
    states = dict.fromkeys(contents, version)
    index.refresh(states, contents.get, column="text_state")


def find(index: TextIndex, query: str) -> list[str]:
    return [file.key for file in index.find_words(parse_query(query))]


def test_messages_are_found_by_words_forms_and_pairs_of_characters(tmp_path: Path):
    index = TextIndex(tmp_path / "index.sqlite3")
    refresh(
        index,
        "1",
        conversation("a", "My cat is running.", "Luna", minutes=1),
        conversation("b", "猫の名前は。 My cats", minutes=2),
    )

    assert find(index, "cat") == ["b", "a"]
    assert find(index, "run") == ["a"]
    assert find(index, "cat luna") == []
    assert [file.sequences for file in index.find_words(parse_query("luna"))] == [{2}]
    assert find(index, "名前") == find(index, "猫") == ["b"]


def test_a_changed_file_has_only_its_new_words(tmp_path: Path):
    path = tmp_path / "index.sqlite3"
    index = TextIndex(path)
    refresh(index, "1", conversation("a", "one", "two", "three"), conversation("b", "one"))
    refresh(index, "2", conversation("a", "one", "four"), conversation("b", "one"))

    assert find(index, "one") == ["a", "b"]
    assert find(index, "four") == ["a"]
    assert find(index, "two") == find(index, "three") == []
    refresh(index, "3", conversation("b", "one"))
    assert find(index, "one") == ["b"]
    index.forget("b")
    index.forget("none")
    assert find(index, "one") == []
    with closing(sqlite3.connect(path)) as connection, connection:
        counts = [
            connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]  # noqa: S608
            for table in ("files", "terms")
        ]
    assert counts == [0, 0]


def test_a_list_reads_no_terms_and_a_search_reads_them_later(tmp_path: Path):
    index = TextIndex(tmp_path / "index.sqlite3")
    one = conversation("a", "one")
    summary = build_summary(one)
    index.refresh({"a": "1", "b": "1"}, {"a": IndexedContent(summary)}.get)

    assert (list(index.list_summaries()), index.list_unreadable()) == ([summary], ["b"])
    assert find(index, "one") == []
    refresh(index, "1", one)
    assert find(index, "one") == ["a"]
    # A new summary does not hide that the terms are those of an older state.
    index.refresh({"a": "2"}, {"a": IndexedContent(summary)}.get)
    refresh(index, "2", conversation("a", "two"))
    assert (find(index, "one"), find(index, "two")) == ([], ["a"])


def test_failed_turns_have_no_terms():
    assert list_terms(conversation("a", "one two one", "")) == ["one two", ""]
    assert list_terms(conversation("a", "one", state="failed")) == [""]


def test_the_file_has_no_text(tmp_path: Path):
    path = tmp_path / "index.sqlite3"
    index = TextIndex(path)
    refresh(index, "1", conversation("a", "The quick brown fox"))
    index.close()

    assert b"quick brown" not in path.read_bytes()
    assert path.stat().st_mode & 0o777 == 0o600

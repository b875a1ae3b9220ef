"""A database in which a text is not UTF-8: the command and the server show all the rest of it."""

import json
import sqlite3
from contextlib import closing

import pytest
from tests.server_process import Server

MARK = "\N{REPLACEMENT CHARACTER}"
BROKEN = "CAST(x'436174ff73' AS TEXT)"


@pytest.fixture
def database(home):
    return home.path / "cats.db"


@pytest.fixture
def spoil(database):
    def change(statement: str) -> None:
        with closing(sqlite3.connect(database)) as own:
            own.execute(statement.replace("BROKEN", BROKEN))
            own.commit()

    return change


@pytest.fixture
def conversations(settings, cllm, database):
    """The command for a store with two conversations in it."""
    settings()
    store = f"sqlite:{database}"
    for ref in ("good", "bad"):
        cllm("A zebra", "--store", store, "--conversation", ref).succeeded()
    return lambda *words: cllm("conversations", "--store", store, *words)


def test_a_damaged_title_is_listed_with_a_replacement_and_one_warning(conversations, spoil):
    spoil("UPDATE conversations SET title = BROKEN WHERE name = 'bad'")
    listed = conversations("list").succeeded()
    lines = {line.split()[0]: line for line in listed.out.splitlines()}
    assert set(lines) == {"good", "bad"}
    assert f"Cat{MARK}s" in lines["bad"]
    (warning,) = listed.warnings
    assert "'bad'" in warning
    assert "UTF-8" in warning


def test_stats_skip_damaged_conversations(conversations, spoil):
    spoil(
        "UPDATE messages SET raw = BROKEN"
        " WHERE message_group IN (SELECT message_group FROM turns WHERE conversation_id ="
        " (SELECT id FROM conversations WHERE name = 'bad'))"
    )
    counted = conversations("stats", "--json").succeeded()
    assert json.loads(counted.out)["conversations"] == 1
    (warning,) = counted.warnings
    assert "'bad' is not counted" in warning


def test_stats_count_a_conversation_with_a_damaged_title(conversations, spoil):
    spoil("UPDATE conversations SET title = BROKEN WHERE name = 'bad'")
    counted = conversations("stats", "--json").succeeded()
    assert json.loads(counted.out)["conversations"] == 2


def test_a_server_lists_the_rest_with_notices_in_headers(home, database, provider, spoil):
    with Server(
        environment=home.environment | {"OPENAI_API_KEY": "sk-0", "OPENAI_API_BASE": provider.url},
        directory=home.work,
        store=f"sqlite:{database}",
    ) as server:
        ids = []
        for title in ("Good", "Bad"):
            made = server("POST", "/v1/conversations", {"title": title})
            ids.append(made.json["id"])
        spoil("UPDATE conversations SET title = BROKEN WHERE title = 'Bad'")
        listed = server("GET", "/v1/conversations")
        spoil("UPDATE conversations SET metadata = '{' WHERE title <> 'Good'")
        shorter = server("GET", "/v1/conversations")
        gone = server("DELETE", f"/v1/conversations/{ids[1]}?permanent=true")
        whole = server("GET", "/v1/conversations")

    titles = {item["id"]: item["title"] for item in listed.json["conversations"]}
    assert titles == {ids[0]: "Good", ids[1]: f"Cat{MARK}s"}
    assert [(notice["code"], notice["path"]) for notice in listed.notices] == [
        ("conversation_damaged", ids[1])
    ]
    assert [item["id"] for item in shorter.json["conversations"]] == [ids[0]]
    assert [notice["code"] for notice in shorter.notices] == ["conversation_skipped"]
    assert gone.status == 204
    assert (whole.json["total"], whole.notices) == (1, [])


def test_a_server_finds_the_rest(conversations, home, database, spoil):
    assert conversations("list").succeeded()
    spoil("UPDATE conversations SET title = BROKEN WHERE name = 'bad'")
    with Server(
        environment=home.environment, directory=home.work, store=f"sqlite:{database}"
    ) as server:
        found = server("GET", "/v1/conversations/search?q=zebra")
    assert found.status == 200
    assert {hit["title"] for hit in found.json["results"]} == {"A zebra", f"Cat{MARK}s"}
    assert [notice["code"] for notice in found.notices] == ["conversation_damaged"]

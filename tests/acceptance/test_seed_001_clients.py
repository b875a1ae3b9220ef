"""Clients and databases of the original REST service still work with `cllm serve`."""

from typing import Any

import pytest
from tests import older_deployment as older
from tests.command import Cllm
from tests.fake_provider import FakeProvider
from tests.home import Home, write_settings
from tests.server_process import Server

from cllm.stores.sql import migrate
from cllm.stores.sqlite.connection import run_in_sqlite

LIST = "/v1/conversations"
HELLO = ("user", "Hello.")


@pytest.fixture
def conversation(server: Server) -> str:
    return server.complete(HELLO, conversation="").conversation


@pytest.mark.parametrize(("title", "stored"), [("  Cats ", "Cats"), ("   ", None), (None, None)])
def test_a_changed_title_is_trimmed_and_a_blank_one_is_null(
    server: Server, conversation: str, title: str | None, stored: str | None
):
    changed = server("PATCH", f"{LIST}/{conversation}", {"title": title})

    assert (changed.status, changed.json["title"]) == (200, stored)
    assert changed.json["message_count"] == 2
    assert server("GET", f"{LIST}/{conversation}").json["title"] == stored


def test_a_title_of_more_than_200_characters_is_refused(server: Server, conversation: str):
    refused = server("PATCH", f"{LIST}/{conversation}", {"title": "t" * 201})

    assert (refused.status, refused.json["error"]["code"]) == (422, "validation_error")
    assert refused.json["error"]["param"] == "title"
    assert server("GET", f"{LIST}/{conversation}").json["title"] == "Hello."


def test_the_title_of_a_branch_says_that_it_is_one(server: Server, conversation: str):
    branch = server("POST", f"{LIST}/{conversation}/branch", {"branch_at_sequence": 1})

    assert (branch.status, branch.json["title"]) == (201, "Branch of 'Hello.'")


@pytest.mark.parametrize(
    ("mode", "codes"), [("reasoning", ["header_ignored"]), ("passthrough", [])]
)
def test_a_routing_mode_that_does_not_exist_is_named_in_a_notice(
    server: Server, mode: str, codes: list[str]
):
    response = server.complete(HELLO, headers={"X-Routing-Mode": mode})

    assert (response.status, response.text) == (200, "echo: Hello.")
    assert [notice["code"] for notice in response.notices] == codes
    assert {notice["path"] for notice in response.notices} <= {"X-Routing-Mode"}


@pytest.mark.parametrize("path", ["/v1/messages/search", f"{LIST}/search"])
def test_a_search_by_word_stem_returns_the_message(server: Server, path: str):
    asked = ("user", "Are two zebras <running> to the Serengeti?")
    conversation = server.complete(asked, conversation="").conversation
    server.complete(("user", "More."), conversation=conversation)

    found = server("GET", f"{path}?q=zebra+run+serengeti&limit=5").json

    assert found["total"] == 2
    (result,) = (one for one in found["results"] if one["role"] == "user")
    messages = server("GET", f"{LIST}/{conversation}").json["messages"]
    assert result["message_id"] == messages[0]["id"]
    assert result["conversation_id"] == conversation
    assert result["title"] == result["content"] == asked[1]
    assert result["sequence_number"] == 1
    assert "<b>zebras</b> &lt;<b>running</b>&gt; to the <b>Serengeti</b>" in result["highlight"]
    assert result["snippet"] in result["content"]
    assert 0 < result["relevance"] < 1
    path = f"{LIST}/{conversation}/messages/{result['message_id']}"
    assert server("GET", path).json["content"] == asked[1]
    server("DELETE", f"{LIST}/{conversation}?permanent=true")


def test_an_adopted_and_upgraded_database_is_served_with_its_old_fields(
    home: Home, provider: FakeProvider, cllm: Cllm
):
    path = home.path / "older.db"

    def fill(bind: Any) -> None:
        migrate.upgrade(bind, "0001")
        older.fill(bind)
        bind.exec_driver_sql("DROP TABLE cllm_revision")

    run_in_sqlite(path, fill)
    store = f"sqlite:{path}"
    prompts = home.path / "prompts.jsonl"
    cllm("db", "adopt", "--store", store).succeeded()
    cllm("db", "check", "--store", store).succeeded()
    cllm("db", "upgrade", "--store", store).failed_with_one_sentence("3 system prompts", "--yes")
    cllm("db", "upgrade", "--store", store, "--save-system-prompts", str(prompts)).succeeded()
    assert len(prompts.read_text(encoding="utf-8").splitlines()) == 3
    write_settings(home, provider)

    with Server(environment=home.environment, directory=home.work, store=store) as server:
        conversation = "00000000-0000-0000-0000-000000000100"
        reply = server("GET", f"{LIST}/{conversation}").json["messages"][1]
        found = server("GET", "/v1/messages/search?q=cats").json["results"]
        continued = server.complete(("user", "More."), conversation=conversation)

    assert reply["metadata"] == {"model": "old"}
    assert reply["reasoning_events"] == [{"type": "thought", "text": "é"}]
    assert reply["cost"] == 0.00125
    assert {one["content"] for one in found} >= {"My cat is called Luna.", "A cat."}
    assert continued.status == 200
    assert provider.requests[-1].message_pairs[0] == ("user", "My cat is called Luna.")

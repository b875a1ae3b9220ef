"""Clients of the original REST service keep working: titles, branches, headers, search."""

import pytest
from tests.server_process import Server

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

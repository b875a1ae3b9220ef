"""Short names for models, in every interface."""

import json
from typing import Any

import pytest


def test_an_alias_works_as_a_model_and_the_conversation_stores_the_model(
    home, provider, settings, cllm
):
    settings(aliases={"fast": "openai/gpt-fast"})

    cllm("Hello", "-m", "fast", "--conversation", "demo").succeeded()

    assert provider.requests[0].json["model"] == "gpt-fast"
    assert home.load("demo")["model"] == "openai/gpt-fast"


def test_the_configured_model_can_be_an_alias(provider, settings, cllm):
    settings(model="fast", aliases={"fast": "openai/gpt-fast"})

    cllm("Hello").succeeded()

    assert provider.requests[0].json["model"] == "gpt-fast"


def test_the_chat_accepts_an_alias(provider, settings, cllm):
    settings(aliases={"fast": "openai/gpt-fast"})

    result = cllm("chat", stdin=b"/model fast\nHello\n").succeeded()

    assert "The model is openai/gpt-fast" in result.out + result.err
    assert provider.requests[0].json["model"] == "gpt-fast"


@pytest.mark.parametrize("name", ["openai/gpt-test", "/", " "])
def test_an_alias_cannot_hide_a_model_of_a_provider(settings, cllm, name):
    settings(aliases={name: "openai/gpt-fast"})

    cllm("Hello").failed_with_one_sentence("without a slash", prefix="Configuration error: ")


def test_an_alias_of_a_model_file_in_a_project_needs_trust(home, provider, settings, cllm):
    (home.work / "Cllmfile.yml").write_text("aliases: {fast: local/./x.gguf}", encoding="utf-8")

    cllm("Hello").failed_with_one_sentence("cllm trust", prefix="Configuration error: ")

    assert provider.requests == []


def test_a_branch_with_an_alias_stores_the_model(home, provider, settings, cllm):
    settings(aliases={"fast": "openai/gpt-fast"})
    cllm("Hello", "--conversation", "demo").succeeded()

    cllm("conversations", "branch", "demo", "-m", "fast", "--to", "other").succeeded()

    assert home.load("other")["model"] == "openai/gpt-fast"


def test_a_fallback_can_be_an_alias(provider, settings, cllm):
    settings(fallbacks=["spare"], aliases={"spare": "openai/gpt-spare"})
    provider.queue_error(500, "Overloaded.")

    cllm("Hello").succeeded()

    assert [request.json["model"] for request in provider.requests] == ["gpt-test", "gpt-spare"]


def test_the_command_sets_lists_and_removes_an_alias(home, provider, settings, cllm):
    path = settings()
    before = f"# Mine.\n{path.read_text(encoding='utf-8')}"
    path.write_text(before, encoding="utf-8")

    added = cllm("models", "alias", "fast", "openai/gpt-fast").succeeded()
    cllm("models", "alias", "quick", "fast").succeeded()
    listed = cllm("models", "alias").succeeded().out
    as_json = json.loads(cllm("models", "alias", "--json").succeeded().out)
    cllm("Hello", "-m", "quick").succeeded()
    for name in ("fast", "quick"):
        cllm("models", "alias", "--remove", name).succeeded()

    assert added.err == f"fast is an alias of openai/gpt-fast ({path}).\n"
    assert [line.split() for line in listed.splitlines()] == [
        ["ALIAS", "MODEL"],
        ["fast", "openai/gpt-fast"],
        ["quick", "openai/gpt-fast"],
    ]
    assert as_json == [
        {"name": "fast", "model": "openai/gpt-fast"},
        {"name": "quick", "model": "openai/gpt-fast"},
    ]
    assert provider.requests[0].json["model"] == "gpt-fast"
    assert path.read_text(encoding="utf-8") == f"{before}aliases: {{}}\n"
    assert cllm("models", "alias").succeeded().out == ""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["a/b", "openai/x"], "without slashes"),
        ([" ", "openai/x"], "without slashes"),
        (["", "openai/x"], "visible"),
        (["a b", "openai/x"], "without slashes"),
        (["a\nb", "openai/x"], "a\\nb"),
        (["x" * 101, "openai/x"], "at most 100"),
        (["--", "-x", "openai/x"], "no hyphen first"),
        (["fast"], "cllm models alias NAME MODEL"),
        (["fast", "nonsense"], "provider/model"),
        (["--remove", "fast"], "There is no alias 'fast'"),
        (["--remove", "a", "b"], "--remove takes one name"),
    ],
)
def test_a_wrong_alias_is_one_sentence_and_changes_nothing(settings, cllm, arguments, words):
    path = settings()
    before = path.read_bytes()

    cllm("models", "alias", *arguments).failed_with_one_sentence(words)

    assert path.read_bytes() == before


def test_an_alias_of_a_folder_has_priority_and_is_removed_there(home, settings, cllm):
    settings(aliases={"fast": "openai/a"})
    cllm("models", "alias", "fast", "openai/b", "--local").succeeded()
    cllm("models", "alias", "mine", "openai/c", "--local").succeeded()

    result = cllm("models", "alias", "fast", "openai/d").succeeded()
    assert "Here openai/b has priority" in result.err
    cllm("models", "alias", "--remove", "mine").failed_with_one_sentence(
        str(home.work / ".cllm/Cllmfile.yml"), "remove it there"
    )
    cllm("models", "alias", "--remove", "mine", "--local").succeeded()


def request_of(model: str) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": "Hello."}]}


def test_the_server_accepts_an_alias_and_stores_the_model(serve, provider):
    server = serve(aliases={"fast": "openai/gpt-fast"})

    response = server("POST", "/v1/chat/completions", request_of("fast"), {"X-Conversation-ID": ""})
    conversation = response.headers["x-conversation-id"]
    turn = response.headers["x-turn-id"]
    stored = server("GET", f"/v1/conversations/{conversation}/turns/{turn}").json
    names = [model["id"] for model in server("GET", "/v1/models").json["data"]]

    assert response.status == 200
    assert provider.requests[0].json["model"] == "gpt-fast"
    assert stored["model"] == "openai/gpt-fast"
    assert "fast" in names

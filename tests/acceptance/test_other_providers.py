"""Conversations with providers that do not speak OpenAI's protocol, kept in its words."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.fake_provider import Request

PIRATE = "You are a pirate. Always respond like a pirate."
ANTHROPIC = "anthropic/claude-sonnet-4-5"
BEDROCK = "bedrock/claude-sonnet-4-5"
AWS_SECRET = "dummy-0123456789abcdef"
AWS = {
    "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE",
    "AWS_SECRET_ACCESS_KEY": AWS_SECRET,
    "AWS_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}
BEDROCK_PATH = "/model/us.anthropic.claude-sonnet-4-5-20250929-v1%3A0/converse"
THOUGHT = {
    ANTHROPIC: {"type": "thinking", "thinking": "Hm.", "signature": "c2lnbmVk"},
    BEDROCK: {
        "reasoningContent": {"reasoningText": {"text": "Hm.", "signature": "c2lnbmVk"}},
    },
}
TEXT = {
    ANTHROPIC: {"type": "text", "text": "Hello Alice!"},
    BEDROCK: {"text": "Hello Alice!"},
}
both_models = pytest.mark.parametrize("model", [ANTHROPIC, BEDROCK], ids=["anthropic", "bedrock"])
both_ways = pytest.mark.parametrize("way", ["--stream", "--no-stream"])


@pytest.fixture
def ask(provider, settings, secret, cllm) -> Callable[..., Any]:
    """Asks that model in conversation `demo`; its provider is the fake one."""
    providers = {
        "anthropic": {"api_base": provider.root, "api_key": secret},
        "bedrock": {"api_base": provider.root},
    }
    settings(model=..., api_base=..., api_key=..., providers=providers)

    def ask(text: str, model: str, *arguments: str, env: dict[str, str] | None = None) -> Any:
        given = env if env is not None else AWS if model == BEDROCK else {}
        return cllm(text, "-m", model, "--conversation", "demo", *arguments, env=given)

    return ask


def said(request: Request) -> list[tuple[str, str]]:
    return [(message["role"], text_of(message["content"])) for message in request.messages]


def text_of(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(block.get("text", "") for block in content)


@both_models
@both_ways
def test_the_second_turn_carries_the_first(provider, ask, model, way):
    provider.queue_reply("Hello ", "Alice!")
    provider.queue_reply("Your name is Alice.")

    first = ask("My name is Alice", model, way).succeeded()
    second = ask("What is my name?", model, way).succeeded()

    assert (first.out, second.out) == ("Hello Alice!\n", "Your name is Alice.\n")
    assert said(provider.requests[0]) == [("user", "My name is Alice")]
    assert said(provider.requests[1]) == [
        ("user", "My name is Alice"),
        ("assistant", "Hello Alice!"),
        ("user", "What is my name?"),
    ]


@both_ways
def test_anthropic_is_asked_with_its_headers(provider, secret, ask, way):
    ask("Hello", ANTHROPIC, way).succeeded()

    (request,) = provider.requests
    assert (request.method, request.path) == ("POST", "/v1/messages")
    assert request.json["model"] == "claude-sonnet-4-5"
    assert request.headers["x-api-key"] == secret
    assert request.headers["anthropic-version"] == "2023-06-01"


@both_ways
def test_bedrock_is_asked_with_a_signature(provider, ask, way):
    ask("Hello", BEDROCK, way).succeeded()

    (request,) = provider.requests
    assert request.path == BEDROCK_PATH + ("-stream" if way == "--stream" else "")
    assert "Credential=AKIDEXAMPLE/" in request.headers["authorization"]


def test_bedrock_is_asked_with_a_bearer_key_if_there_is_one(provider, ask):
    ask("Hello", BEDROCK, env={"AWS_BEARER_TOKEN_BEDROCK": "abc"}).succeeded()

    assert provider.requests[0].headers["authorization"] == "Bearer abc"


@both_models
@both_ways
def test_the_file_is_openai_s_and_the_original_beside_it(provider, home, ask, model, way):
    provider.queue_reply("Hello Alice!", reasoning=("Hm.",))

    ask("My name is Alice", model, way).succeeded()

    kept = home.load("demo")
    assert kept["model"] == model
    user, answer = kept["messages"]
    assert (user["role"], user["content"]) == ("user", "My name is Alice")
    assert (answer["role"], answer["content"]) == ("assistant", "Hello Alice!")
    (extra,) = kept["metadata"]["cllm"]["extras"]
    original = {"role": "assistant", "content": [THOUGHT[model], TEXT[model]]}
    assert original in extra.values()
    assert model.partition("/")[0] in extra.values()


@both_models
def test_the_original_goes_back_to_its_provider(provider, ask, model):
    provider.queue_reply("Hello Alice!", reasoning=("Hm.",))

    ask("My name is Alice", model).succeeded()
    ask("What is my name?", model).succeeded()

    assert provider.requests[1].messages[1] == {
        "role": "assistant",
        "content": [THOUGHT[model], TEXT[model]],
    }


@both_models
def test_the_system_prompt_arrives_as_text(provider, settings, secret, cllm, model):
    providers = {
        "anthropic": {"api_base": provider.root, "api_key": secret},
        "bedrock": {"api_base": provider.root},
    }
    settings(
        model=model, api_base=..., api_key=..., providers=providers, default_system_message=PIRATE
    )

    cllm("Hello!", env=AWS).succeeded()

    (request,) = provider.requests
    assert text_of(request.json["system"]) == PIRATE
    assert said(request) == [("user", "Hello!")]


def test_a_conversation_may_change_its_provider(provider, ask):
    provider.queue_reply("Hello Alice!", reasoning=("Hm.",))
    provider.queue_reply("Yes.")

    ask("My name is Alice", ANTHROPIC).succeeded()
    ask("Sure?", BEDROCK).succeeded()
    ask("What is my name?", ANTHROPIC).succeeded()

    assert said(provider.requests[1])[1:] == [("assistant", "Hello Alice!"), ("user", "Sure?")]
    assert said(provider.requests[2]) == [
        ("user", "My name is Alice"),
        ("assistant", "Hello Alice!"),
        ("user", "Sure?"),
        ("assistant", "Yes."),
        ("user", "What is my name?"),
    ]


@both_models
def test_a_stream_that_breaks_is_an_error(provider, ask, model):
    provider.queue_reply("Hel", "lo", stop_after=1)

    result = ask("Hello", model)

    assert result.code == 1
    assert "Traceback" not in result.err
    assert "Error: " in result.err


@both_models
def test_a_refusal_is_one_sentence(provider, secret, ask, model):
    provider.queue_error(403, f"Not with {secret if model == ANTHROPIC else AWS_SECRET}.")

    line = ask("Hello", model, "--max-tokens", "9").failed_with_one_sentence("returned HTTP 403")

    assert "Not with ***." in line
    assert AWS_SECRET not in line


def test_bedrock_without_credentials_is_one_sentence(provider, ask):
    result = ask("Hello", BEDROCK, env={"AWS_EC2_METADATA_DISABLED": "true"})

    result.failed_with_one_sentence("credentials", "AWS_BEARER_TOKEN_BEDROCK")
    assert provider.requests == []


def test_a_model_that_bedrock_does_not_know_is_one_sentence(provider, ask):
    result = ask("Hello", "bedrock/claude-sonet-4-5", env=AWS)

    result.failed_with_one_sentence("claude-sonnet-4-5")
    assert provider.requests == []

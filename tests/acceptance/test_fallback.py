"""A model that gives nothing, another that is asked in its place, and strict mode."""

from typing import Any

import pytest
from tests.fake_provider import Cut, closed_port

OTHER = "anthropic/claude-sonnet-4-5"


@pytest.fixture
def two_models(provider, settings, secret):
    """OpenAI's protocol first, Anthropic's to fall back to, both on the fake provider."""

    def write(**keys: Any) -> None:
        providers = {"anthropic": {"api_base": provider.root, "api_key": secret}}
        settings(**({"fallbacks": [OTHER], "providers": providers} | keys))

    write()
    return write


@pytest.mark.parametrize("way", ["--stream", "--no-stream"])
def test_the_next_model_answers_and_the_fallback_is_reported(way, provider, two_models, cllm):
    provider.queue_error(503)
    provider.queue_reply("From the other.")

    result = cllm("Hello", "--conversation", "demo", way).succeeded()

    assert result.out == "From the other.\n"
    (warning,) = result.warnings
    assert OTHER in warning
    assert "503" in warning
    first, second = provider.requests
    assert first.json["model"] == "gpt-test"
    assert second.json["model"] == "claude-sonnet-4-5"
    assert cllm.home.messages("demo") == [("user", "Hello"), ("assistant", "From the other.")]


def test_a_prompt_too_long_for_the_first_model_is_sent_to_one_with_a_larger_window(
    provider, two_models, cllm
):
    larger = "anthropic/claude-opus-4-6"
    two_models(model=OTHER, fallbacks=[larger])
    provider.queue_error(400, "prompt is too long: 208310 tokens > 200000 maximum")
    provider.queue_reply("It fits.")

    result = cllm("Hello").succeeded()

    assert result.out == "It fits.\n"
    assert larger in result.warnings[0]
    assert [sent.json["model"] for sent in provider.requests] == [
        "claude-sonnet-4-5",
        "claude-opus-4-6",
    ]


def test_another_invalid_request_is_not_sent_to_the_next_model(provider, two_models, cllm):
    two_models(model=OTHER, fallbacks=["anthropic/claude-opus-4-6"])
    provider.queue_error(400, "max_tokens: 64000 > 8192")

    assert cllm("Hello").code == 1
    assert len(provider.requests) == 1


def test_the_conversation_has_its_model_and_the_turn_the_fallback_model(provider, two_models, cllm):
    provider.queue_error(503)
    provider.queue_reply("From the other.")
    cllm("Hello", "--conversation", "demo").succeeded()
    provider.queue_reply("From the first.")

    cllm("And now?", "--conversation", "demo").succeeded()

    file = cllm.home.load("demo")
    assert file["model"] == "openai/gpt-test"
    turns = file["metadata"]["cllm"]["turns"]
    assert [turn["model"] for turn in turns] == [OTHER, "openai/gpt-test"]
    assert provider.requests[-1].message_pairs == [
        ("user", "Hello"),
        ("assistant", "From the other."),
        ("user", "And now?"),
    ]


def test_there_is_no_fallback_after_a_partial_answer(provider, two_models, cllm):
    provider.queue_reply("Once", " upon", " a time", stop_after=2)

    result = cllm("Hello", "--conversation", "demo")

    assert result.code == 1
    assert len(provider.requests) == 1
    assert "Traceback" not in result.err
    assert cllm.home.turn_states("demo") == ["failed"]


def test_when_every_model_fails_the_command_fails_with_the_last_error(
    provider, two_models, secret, cllm
):
    two_models(api_base=f"http://127.0.0.1:{closed_port()}/v1")
    provider.queue_error(401)

    result = cllm("Hello", "--conversation", "demo")

    assert result.code == 1
    assert "401" in result.warnings[-1]
    assert "Cannot reach" in result.warnings[0]
    assert secret not in result.err
    assert cllm.home.turn_states("demo") == ["failed"]


def test_fallbacks_must_be_a_list_of_names(two_models, cllm):
    two_models(fallbacks="anthropic/claude")

    cllm("Hello").failed_with_one_sentence("fallbacks", "list", prefix="Configuration error: ")


def test_strict_mode_refuses_a_prompt_that_would_be_changed(provider, two_models, cllm):
    two_models(model=OTHER, fallbacks=[], strict=True, seed=7)

    cllm("Hello").failed_with_one_sentence("strict mode", "seed")

    assert provider.requests == []


def test_without_strict_mode_the_change_is_a_warning(provider, two_models, cllm):
    two_models(model=OTHER, fallbacks=[], seed=7)
    provider.queue_reply("Fine.")

    result = cllm("Hello").succeeded()

    assert result.out == "Fine.\n"
    assert any("seed" in warning for warning in result.warnings)
    assert "seed" not in provider.requests[0].json


def test_strict_mode_sends_a_prompt_that_needs_no_change(provider, two_models, cllm):
    two_models(model=OTHER, fallbacks=[], strict=True, temperature=0.5)
    provider.queue_reply("Fine.")

    result = cllm("Hello").succeeded()

    assert result.out == "Fine.\n"
    assert provider.requests[0].json["temperature"] == 0.5


def test_a_connection_lost_before_the_first_text_falls_back(provider, two_models, cllm):
    provider.queue_steps(Cut())
    provider.queue_reply("From the other.")

    assert cllm("Hello").succeeded().out == "From the other.\n"

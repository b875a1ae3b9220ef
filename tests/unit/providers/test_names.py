"""What a provider calls a model of another name, and whether it has it."""

import pytest

from cllm.providers.registry import Catalogue, has_model, map_model_name, model_not_found_error

SONNET = "claude-3-7-sonnet-20250219"
ON_BEDROCK = "us.anthropic.claude-3-7-sonnet-20250219-v1:0"
ANTHROPIC = Catalogue(provider="anthropic", kind="anthropic")
BEDROCK = Catalogue(provider="bedrock", kind="bedrock")
OPENAI = Catalogue(provider="openai", kind="openai")


def test_the_operators_table_comes_first():
    mapped = Catalogue(provider="openai", kind="openai", names={SONNET: "gpt-5.5"})

    assert map_model_name(SONNET, mapped) == "gpt-5.5"
    assert has_model(SONNET, mapped)


@pytest.mark.parametrize("place", ["us.", "eu.", "global.", ""])
def test_a_name_of_bedrocks_is_anthropics_own_at_anthropic(place: str):
    name = f"{place}anthropic.claude-3-7-sonnet-20250219-v1:0"

    assert map_model_name(name, ANTHROPIC) == SONNET
    assert has_model(name, ANTHROPIC)


def test_a_name_that_nobody_translates_stays_as_it_is():
    assert map_model_name("us.anthropic.claude-none-9", ANTHROPIC) == "us.anthropic.claude-none-9"
    assert map_model_name(SONNET, BEDROCK) == SONNET


@pytest.mark.parametrize("name", [SONNET, ON_BEDROCK, "claude-sonnet-4-5", "amazon.nova-pro-v1:0"])
def test_bedrock_has_what_its_table_or_its_form_says(name: str):
    assert has_model(name, BEDROCK) is True


def test_bedrock_has_no_models_of_others():
    assert has_model("gpt-5.5", BEDROCK) is False


def test_openai_has_no_claude_but_another_address_may():
    has_custom_address = Catalogue(provider="openai", kind="openai", has_custom_address=True)

    assert has_model(SONNET, OPENAI) is False
    assert has_model(SONNET, has_custom_address) is None
    assert has_model("gpt-5.5", OPENAI) is True


def test_a_server_of_ones_own_has_what_it_lists_and_perhaps_more():
    vllm = Catalogue(provider="my-vllm", kind="openai", models=("llama-3.1-8b",))

    assert has_model("llama-3.1-8b", vllm) is True
    assert has_model("qwen-3", vllm) is None


def test_the_error_says_what_there_is():
    mapped = Catalogue(provider="openai", kind="openai", models=("a",), names={"b": "c"})

    assert "openai/a, openai/b" in str(model_not_found_error(SONNET, mapped))
    assert "providers.openai.names" in str(model_not_found_error(SONNET, OPENAI))
    assert f"bedrock/{SONNET}" not in str(model_not_found_error("gpt-5.5", OPENAI))
    assert "bedrock/claude-sonnet-5-5" in str(model_not_found_error("gpt-5.5", BEDROCK))

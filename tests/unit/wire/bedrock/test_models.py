"""Bedrock's model names, inference profiles and features."""

import pytest

from cllm.wire.bedrock.models import (
    MODELS,
    SHORT_NAMES,
    UnknownModelError,
    find_features,
    find_media_rule,
    resolve_model_id,
)

SONNET = "claude-3-7-sonnet-20250219-v1:0"


@pytest.mark.parametrize(
    ("name", "region", "expected"),
    [
        ("claude-3-7-sonnet-20250219", "us-east-1", "us.anthropic.claude-3-7-sonnet-20250219-v1:0"),
        ("claude-3-7-sonnet-20250219", "eu-west-1", "eu.anthropic.claude-3-7-sonnet-20250219-v1:0"),
        (
            "claude-3-7-sonnet-latest",
            "ap-south-1",
            "apac.anthropic.claude-3-7-sonnet-20250219-v1:0",
        ),
        ("claude-3-5-sonnet-20241022", None, "anthropic.claude-3-5-sonnet-20241022-v2:0"),
        ("claude-3-5-haiku-20241022", "eu-west-1", "anthropic.claude-3-5-haiku-20241022-v1:0"),
        ("claude-sonnet-4-5", "ap-northeast-1", "jp.anthropic.claude-sonnet-4-5-20250929-v1:0"),
        ("claude-opus-4-6", "eu-central-1", "eu.anthropic.claude-opus-4-6-v1"),
        ("claude-sonnet-4-6", "us-west-2", "us.anthropic.claude-sonnet-4-6"),
    ],
)
def test_an_anthropic_name_resolves_to_a_bedrock_id(name, region, expected):
    assert resolve_model_id(name, region=region) == expected


@pytest.mark.parametrize(
    "name",
    [
        "anthropic.claude-3-7-sonnet-20250219-v1:0",
        "us.anthropic.claude-sonnet-4-6",
        "us-gov.anthropic.claude-3-5-sonnet-20240620-v1:0",
        "amazon.nova-pro-v1:0",
        "meta.llama3-3-70b-instruct-v1:0",
        "openai.gpt-oss-120b-1:0",
        "arn:aws:bedrock:us-east-1:123456789012:application-inference-profile/abc",
        "global.anthropic.claude-opus-9",
    ],
)
def test_a_bedrock_id_is_unchanged(name):
    assert resolve_model_id(name, region="eu-west-1") == name


@pytest.mark.parametrize("name", ["claude-3-7-sonet-20250219", "claude-sonnet-4.5", "gpt-4.1"])
def test_an_unknown_name_is_an_error_with_close_matches(name):
    with pytest.raises(UnknownModelError) as caught:
        resolve_model_id(name, region="us-east-1")
    assert caught.value.name == name
    for match in caught.value.matches:
        assert match in str(caught.value)


def test_a_misspelt_name_is_an_error_with_the_right_name():
    with pytest.raises(UnknownModelError, match="claude-3-7-sonnet-20250219"):
        resolve_model_id("claude-3-7-sonet-20250219")


def test_a_name_without_close_matches_asks_for_an_id():
    with pytest.raises(UnknownModelError, match="Bedrock id or ARN"):
        resolve_model_id("zzz")


def test_the_global_profile_is_used_only_by_its_id():
    with pytest.raises(UnknownModelError, match=r"global\.anthropic\.claude-opus-4-5"):
        resolve_model_id("claude-opus-4-5", region="sa-east-1")
    chosen = "global.anthropic.claude-opus-4-5-20251101-v1:0"
    assert resolve_model_id(chosen, region="sa-east-1") == chosen


def test_every_short_name_is_a_known_model():
    assert set(SHORT_NAMES.values()) <= set(MODELS)
    for name, model in MODELS.items():
        assert name in model.id


@pytest.mark.parametrize(
    ("model", "thinking", "cache"),
    [
        ("anthropic.claude-3-haiku-20240307-v1:0", "none", False),
        ("anthropic.claude-3-5-sonnet-20240620-v1:0", "none", False),
        ("anthropic.claude-3-5-sonnet-20241022-v2:0", "none", True),
        ("us.anthropic.claude-3-7-sonnet-20250219-v1:0", "budget", True),
        ("us.anthropic.claude-sonnet-4-20250514-v1:0", "budget", True),
        ("us.anthropic.claude-opus-4-1-20250805-v1:0", "budget", True),
        ("eu.anthropic.claude-haiku-4-5-20251001-v1:0", "budget", True),
        ("eu.anthropic.claude-sonnet-4-6", "either", True),
        ("global.anthropic.claude-opus-4-8", "adaptive", True),
        ("us.anthropic.claude-opus-5-5", "always", True),
        ("us.amazon.nova-pro-v1:0", "none", True),
        ("meta.llama3-3-70b-instruct-v1:0", "none", False),
        ("mistral.mistral-large-2402-v1:0", "none", False),
        ("cohere.command-r-v1:0", "none", False),
        ("arn:aws:bedrock:us-east-1:1:application-inference-profile/x", "as_sent", True),
    ],
)
def test_a_model_has_the_features_of_its_family(model, thinking, cache):
    assert (find_features(model).thinking, find_features(model).cache) == (thinking, cache)


@pytest.mark.parametrize(
    ("model", "has_images"),
    [
        ("us.anthropic.claude-sonnet-4-6", True),
        ("amazon.nova-lite-v1:0", True),
        ("amazon.nova-micro-v1:0", False),
        ("us.meta.llama3-3-70b-instruct-v1:0", False),
        ("us.meta.llama3-2-11b-instruct-v1:0", True),
        ("us.meta.llama4-scout-17b-instruct-v1:0", True),
        ("mistral.mistral-large-2402-v1:0", False),
        ("us.mistral.pixtral-large-2502-v1:0", True),
    ],
)
def test_some_models_have_no_image_input(model, has_images):
    assert ("image" in find_media_rule(model).reads) is has_images

"""Bedrock's models: names, inference profiles, and the features of each family."""

import difflib
import re
from typing import Literal

import msgspec

from cllm.wire.anthropic.models import find_claude_model
from cllm.wire.errors import MalformedError
from cllm.wire.media import BEDROCK, MediaRule

ToolChoiceName = Literal["auto", "any", "tool"]


class UnknownModelError(MalformedError):
    """The name of no Bedrock model; `matches` are the closest names."""

    def __init__(self, text: str, *, name: str, matches: tuple[str, ...] = ()) -> None:
        super().__init__(text)
        self.name = name
        self.matches = matches


class BedrockModel(msgspec.Struct, frozen=True):
    """An id, and the geographies that have an inference profile for it.

    `on_demand` models can also be called by their bare id.
    """

    id: str
    profiles: tuple[str, ...]
    on_demand: bool = False


_PROFILE_GEOGRAPHIES = frozenset(("us", "us-gov", "eu", "jp", "au", "apac", "global"))
_EVERYWHERE = ("us", "eu", "jp", "au", "apac", "global")

_REVISION = re.compile(r"-v\d+(:\d+)?$")
_MODELS = (
    BedrockModel("anthropic.claude-3-haiku-20240307-v1:0", ("us", "eu", "apac"), on_demand=True),
    BedrockModel("anthropic.claude-3-sonnet-20240229-v1:0", ("us", "eu", "apac"), on_demand=True),
    BedrockModel("anthropic.claude-3-opus-20240229-v1:0", ("us",), on_demand=True),
    BedrockModel("anthropic.claude-3-5-sonnet-20240620-v1:0", ("us", "eu", "apac"), on_demand=True),
    BedrockModel("anthropic.claude-3-5-sonnet-20241022-v2:0", ("us", "eu", "apac"), on_demand=True),
    BedrockModel("anthropic.claude-3-5-haiku-20241022-v1:0", ("us",), on_demand=True),
    BedrockModel("anthropic.claude-3-7-sonnet-20250219-v1:0", ("us", "eu", "apac")),
    BedrockModel("anthropic.claude-sonnet-4-20250514-v1:0", ("us", "eu", "apac", "global")),
    BedrockModel("anthropic.claude-opus-4-20250514-v1:0", ("us",)),
    BedrockModel("anthropic.claude-opus-4-1-20250805-v1:0", ("us",)),
    BedrockModel("anthropic.claude-sonnet-4-5-20250929-v1:0", ("us", "eu", "jp", "au", "global")),
    BedrockModel("anthropic.claude-haiku-4-5-20251001-v1:0", ("us", "eu", "jp", "au", "global")),
    BedrockModel("anthropic.claude-opus-4-5-20251101-v1:0", ("us", "eu", "global")),
    BedrockModel("anthropic.claude-opus-4-6-v1", ("us", "eu", "jp", "au", "apac", "global")),
    BedrockModel("anthropic.claude-sonnet-4-6", ("us", "eu", "jp", "au", "global")),
    BedrockModel("anthropic.claude-opus-4-7", _EVERYWHERE),
    BedrockModel("anthropic.claude-opus-4-8", (*_EVERYWHERE, "us-gov")),
    BedrockModel("anthropic.claude-opus-5", (*_EVERYWHERE, "us-gov")),
    BedrockModel("anthropic.claude-sonnet-5", (*_EVERYWHERE, "us-gov")),
    BedrockModel("anthropic.claude-fable-5", ("us", "eu", "au", "apac", "global")),
    BedrockModel("anthropic.claude-mythos-5", ("us",)),
    BedrockModel("anthropic.claude-fable-5-1", ("us", "eu", "global", "us-gov")),
    BedrockModel("anthropic.claude-mythos-5-1", ("us", "global")),
    BedrockModel("anthropic.claude-opus-5-5", (*_EVERYWHERE, "us-gov")),
    BedrockModel("anthropic.claude-sonnet-5-5", (*_EVERYWHERE, "us-gov")),
    BedrockModel("anthropic.claude-haiku-5-5", (*_EVERYWHERE, "us-gov")),
)
# Anthropic's name → model: the name is the id without vendor and revision.
MODELS = {_REVISION.sub("", model.id).removeprefix("anthropic."): model for model in _MODELS}

SHORT_NAMES = {
    "claude-3-haiku-latest": "claude-3-haiku-20240307",
    "claude-3-opus-latest": "claude-3-opus-20240229",
    "claude-3-5-sonnet-latest": "claude-3-5-sonnet-20241022",
    "claude-3-5-haiku-latest": "claude-3-5-haiku-20241022",
    "claude-3-7-sonnet-latest": "claude-3-7-sonnet-20250219",
    "claude-sonnet-4-0": "claude-sonnet-4-20250514",
    "claude-opus-4-0": "claude-opus-4-20250514",
    "claude-opus-4-1": "claude-opus-4-1-20250805",
    "claude-sonnet-4-5": "claude-sonnet-4-5-20250929",
    "claude-haiku-4-5": "claude-haiku-4-5-20251001",
    "claude-opus-4-5": "claude-opus-4-5-20251101",
}

REGION_GEOGRAPHIES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("us-gov-", ("us-gov",)),
    ("us-", ("us",)),
    ("ca-", ("us",)),
    ("eu-", ("eu",)),
    ("ap-northeast-1", ("jp", "apac")),
    ("ap-northeast-3", ("jp", "apac")),
    ("ap-southeast-2", ("au", "apac")),
    ("ap-southeast-4", ("au", "apac")),
    ("ap-", ("apac",)),
)
_BEDROCK_ID = re.compile(r"(?:[a-z]+(?:-gov)?\.)?[a-z][a-z0-9]*\.[a-z0-9][a-zA-Z0-9.-]*(?::\w+)*")


def resolve_model_id(name: str, *, region: str | None = None) -> str:
    """Return the id to call, with the inference profile of the region if one is needed.

    A Bedrock id or ARN is returned unchanged. A global profile is used only by its id.
    """
    if _is_own_id(name):
        return name
    model = MODELS.get(SHORT_NAMES.get(name, name))
    if model is None:
        raise _unknown_model_error(name)
    return model.id if region is None else _find_profile(name, model, region)


def is_known_model(name: str) -> bool:
    """Whether the name is a Bedrock model or one of Bedrock's own ids."""
    return _is_own_id(name) or SHORT_NAMES.get(name, name) in MODELS


def _is_own_id(name: str) -> bool:
    return name.startswith("arn:") or _BEDROCK_ID.fullmatch(name) is not None


def strip_geography(model: str) -> str:
    """Return the id without the geography of a profile."""
    first, dot, rest = model.partition(".")
    return rest if dot and first in _PROFILE_GEOGRAPHIES else model


def find_anthropic_name(model: str) -> str | None:
    """Return Anthropic's name for a Bedrock id, or None."""
    model_id = strip_geography(model)
    return next((name for name, row in MODELS.items() if row.id == model_id), None)


def _find_profile(name: str, model: BedrockModel, region: str) -> str:
    regional = next((names for start, names in REGION_GEOGRAPHIES if region.startswith(start)), ())
    for geography in regional:
        if geography in model.profiles:
            return f"{geography}.{model.id}"
    if model.on_demand:
        return model.id
    profiles = tuple(f"{geography}.{model.id}" for geography in model.profiles)
    raise UnknownModelError(
        f"{name} has no inference profile for the region {region}; use {', '.join(profiles)}",
        name=name,
        matches=profiles,
    )


def _unknown_model_error(name: str) -> UnknownModelError:
    names = sorted([*MODELS, *SHORT_NAMES])
    matches = tuple(difflib.get_close_matches(name, names, n=3, cutoff=0.5))
    advice = f"did you mean {', '.join(matches)}?" if matches else "use a Bedrock id or ARN."
    return UnknownModelError(
        f"{name!r} is not a known model on Bedrock; {advice}", name=name, matches=matches
    )


class BedrockFeatures(msgspec.Struct, frozen=True, kw_only=True):
    """The features of a family of models.

    `sampling`: both temperature and top_p, one of them, or none.
    `top_k`: its path in the family's own fields. `thinking` as_sent: the model is not known.
    """

    claude: bool = False
    cache: bool = False
    cache_tools: bool = False
    cache_hour: bool = False
    thinking: Literal["none", "budget", "either", "adaptive", "always", "as_sent"] = "none"
    sampling: Literal["all", "one", "none"] = "all"
    json_schema: bool = False
    top_k: tuple[str, ...] = ()
    choices: frozenset[ToolChoiceName] = frozenset({"auto"})


_ALL_CHOICES: frozenset[ToolChoiceName] = frozenset({"auto", "any", "tool"})
_CLAUDE_3 = BedrockFeatures(claude=True, top_k=("top_k",), choices=_ALL_CHOICES)
_CLAUDE_3_5 = msgspec.structs.replace(_CLAUDE_3, cache=True, cache_tools=True)
_CLAUDE_4_5 = msgspec.structs.replace(_CLAUDE_3_5, cache_hour=True, json_schema=True)
_OPAQUE = msgspec.structs.replace(_CLAUDE_4_5, thinking="as_sent")

FAMILIES: tuple[tuple[re.Pattern[str], BedrockFeatures], ...] = (
    (re.compile(r"claude-(3-(haiku|sonnet|opus)|3-5-sonnet-20240620|v|instant)"), _CLAUDE_3),
    (re.compile(r"claude-(3-[57]|(sonnet|opus)-4-(0|1|2025))"), _CLAUDE_3_5),
    (re.compile(r"claude"), _CLAUDE_4_5),
    (
        re.compile(r"amazon\.nova"),
        BedrockFeatures(cache=True, top_k=("inferenceConfig", "topK"), choices=_ALL_CHOICES),
    ),
    (re.compile(r"meta\.llama"), BedrockFeatures(choices=frozenset())),
    (
        re.compile(r"mistral\."),
        BedrockFeatures(top_k=("top_k",), choices=frozenset({"auto", "any"})),
    ),
    (re.compile(r"arn:.*:(application-inference-profile|provisioned-model|prompt)"), _OPAQUE),
)


BEDROCK_BETAS = frozenset(
    {
        "computer-use-2024-10-22",
        "computer-use-2025-01-24",
        "computer-use-2025-11-24",
        "context-1m-2025-08-07",
        "context-management-2025-06-27",
        "dev-full-thinking-2025-05-14",
        "effort-2025-11-24",
        "fine-grained-tool-streaming-2025-05-14",
        "interleaved-thinking-2025-05-14",
        "output-128k-2025-02-19",
        "structured-outputs-2025-11-13",
        "thinking-binding-controls-2026-08-01",
        "thinking-display-updates-2026-08-18",
        "token-efficient-tools-2025-02-19",
        "tool-examples-2025-10-29",
        "tool-search-tool-2025-10-19",
    }
)
"""The Anthropic beta flags that Bedrock accepts; it refuses others. Collected 2026-11-15."""


NO_IMAGES = re.compile(
    r"amazon\.(nova-micro|titan)|claude-(v\d|instant)|cohere\.|ai21\.|deepseek\.|openai\.gpt-oss"
    r"|meta\.llama(2|3-\d+b|3-1|3-2-[13]b|3-3)|mistral\.(mistral-(7b|large-24|small-24)|mixtral)"
)
"""Models without image input, from the feature table of Converse. Collected 2026-11-15."""


def find_media_rule(model: str) -> MediaRule:
    if NO_IMAGES.search(model) is None:
        return BEDROCK
    reads = BEDROCK.reads - {"image"}
    return msgspec.structs.replace(BEDROCK, provider="This model", reads=reads)


def find_features(model: str) -> BedrockFeatures:
    """Return the features of a model; an ARN that hides its model has all of them."""
    row = next((row for pattern, row in FAMILIES if pattern.search(model)), BedrockFeatures())
    claude = find_claude_model(model)
    if claude is None or not row.claude or row.thinking == "as_sent":
        return row
    choices = row.choices if claude.forced_tools else frozenset[ToolChoiceName]({"auto"})
    return msgspec.structs.replace(
        row, thinking=claude.thinking, sampling=claude.sampling, choices=choices
    )

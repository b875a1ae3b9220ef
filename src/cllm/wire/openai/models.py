"""Efforts and parameters that OpenAI's models accept; unknown models get the request unchanged.

Collected in November 2026 from OpenAI's documentation and error messages.
"""

import re
from typing import Any

import msgspec

from cllm.wire.media import OPENAI_CHAT, MediaRule
from cllm.wire.reasoning import EFFORT_ORDER, nearest_effort

Fields = dict[str, Any]
LIMIT, LIMIT_OF_REASONERS = "max_tokens", "max_completion_tokens"
Changes = list[tuple[str, str]]
"""The notice code and the field of each change."""


class ReasoningModel(msgspec.Struct, frozen=True, kw_only=True):
    """A reasoning model.

    `default` is its effort without a setting. `accepts_sampling`: also while it reasons.
    `accepts_stop`: stop sequences, which OpenAI's newer models refuse.
    `needs_responses_api_for_tools`: with reasoning, it calls tools only by that API.
    """

    efforts: tuple[str, ...]
    default: str = "medium"
    accepts_sampling: bool = False
    accepts_stop: bool = False
    parallel_calls: bool = True
    calls_elsewhere: bool = False


def _efforts(least: str, most: str, *, without: str = "minimal") -> tuple[str, ...]:
    between = EFFORT_ORDER[EFFORT_ORDER.index(least) : EFFORT_ORDER.index(most) + 1]
    return tuple(effort for effort in between if effort != without)


def _responses_model(least: str, most: str, *, default: str = "medium") -> ReasoningModel:
    return ReasoningModel(efforts=_efforts(least, most), default=default, calls_elsewhere=True)


_LOW_TO_HIGH = _efforts("low", "high")
REASONING_MODELS: tuple[tuple[re.Pattern[str], ReasoningModel | None], ...] = (
    (re.compile(r"gpt-\d[\d.]*-chat"), None),
    (re.compile(r"gpt-oss"), ReasoningModel(efforts=_LOW_TO_HIGH, accepts_sampling=True)),
    (re.compile(r"o1-(mini|preview)"), ReasoningModel(efforts=(), parallel_calls=False)),
    (
        re.compile(r"o1|o3-mini"),
        ReasoningModel(efforts=_LOW_TO_HIGH, parallel_calls=False, accepts_stop=True),
    ),
    (re.compile(r"o\d"), ReasoningModel(efforts=_LOW_TO_HIGH, parallel_calls=False)),
    (re.compile(r"gpt-5-pro"), ReasoningModel(efforts=("high",), default="high")),
    (re.compile(r"gpt-5(\.1)?-codex(?!-max)"), ReasoningModel(efforts=_LOW_TO_HIGH)),
    (re.compile(r"gpt-5[\d.]*-codex"), ReasoningModel(efforts=_efforts("low", "xhigh"))),
    (re.compile(r"gpt-5\.\d-pro"), ReasoningModel(efforts=_efforts("medium", "xhigh"))),
    (re.compile(r"gpt-5\.1"), ReasoningModel(efforts=_efforts("none", "high"), default="none")),
    (re.compile(r"gpt-5\.[23]"), ReasoningModel(efforts=_efforts("none", "xhigh"), default="none")),
    (re.compile(r"gpt-5\.4"), _responses_model("none", "xhigh", default="none")),
    (re.compile(r"gpt-5\.5"), _responses_model("none", "xhigh")),
    (re.compile(r"gpt-5\."), _responses_model("none", "max")),
    (re.compile(r"gpt-5"), ReasoningModel(efforts=_efforts("minimal", "high", without=""))),
    (re.compile(r"gpt-6(-astra|\.1)"), _responses_model("low", "max")),
    (re.compile(r"gpt-([6-9]|\d\d)"), _responses_model("none", "max")),
)

SAMPLING_DEFAULTS: Fields = {
    "temperature": 1,
    "top_p": 1,
    "presence_penalty": 0,
    "frequency_penalty": 0,
    "logit_bias": {},
    "logprobs": False,
    "top_logprobs": 0,
}
"""Parameters that are refused while a model reasons, with their defaults."""
DEFAULTS: Fields = {**SAMPLING_DEFAULTS, "n": 1, "store": False, "metadata": {}}


DEVELOPER_ROLE_MODELS = re.compile(r"(ft:)?(gpt-|o\d|chatgpt-|codex|computer-use)")


def supports_developer_role(model: str) -> bool:
    """Whether a model supports the developer role; other vendors' models support only system."""
    return DEVELOPER_ROLE_MODELS.match(model.rpartition("/")[2].lower()) is not None


TEXT_MODELS = re.compile(r"(ft:)?(gpt-3\.5|gpt-4(-\d{4}|-32k)?($|-\d|:)|o1-(mini|preview)|o3-mini)")
AUDIO_MODELS = re.compile(r"gpt-.*audio")


def fit_media_rule(rule: MediaRule, model: str) -> MediaRule:
    """Return OpenAI's rule for one of its models; the rule of another server is unchanged."""
    if rule is not OPENAI_CHAT:
        return rule
    name = model.lower()
    if AUDIO_MODELS.match(name):
        return msgspec.structs.replace(rule, provider="This model", reads=frozenset({"other"}))
    if TEXT_MODELS.match(name):
        return msgspec.structs.replace(rule, provider="This model", reads=frozenset())
    return msgspec.structs.replace(rule, reads=frozenset({"image", "file"}))


def find_reasoning_model(model: str) -> ReasoningModel | None:
    """Return the row of a reasoning model, by its name with or without a provider prefix."""
    name = model.rpartition("/")[2].lower()
    return next((row for pattern, row in REASONING_MODELS if pattern.match(name)), None)


def needs_responses_api_for_tools(model: str, *, thinks: bool | None) -> bool:
    """Whether Chat Completions refuses tools for this model; `thinks` None if not specified."""
    row = find_reasoning_model(model)
    if row is None or not row.calls_elsewhere:
        return False
    return row.default != "none" if thinks is None else thinks or "none" not in row.efforts


def is_default(name: str, value: Any) -> bool:
    """Whether a field has its default value, or concerns only the transport."""
    return name == "stream_options" or (name in DEFAULTS and value == DEFAULTS[name])


def fit_fields(fields: Fields, model: str) -> tuple[Fields, Changes]:
    """Return the parameters as this model accepts them, and the changes."""
    row = find_reasoning_model(model)
    if row is None:
        return fields, []
    changes: Changes = []
    fields = _fit_effort(_fit_limit(fields), row, changes)
    refused = dict(_find_refused(fields, row))
    for name, default in refused.items():
        if fields[name] != default:
            changes.append(("parameter_left_out", name))
    return {name: value for name, value in fields.items() if name not in refused}, changes


def _fit_limit(fields: Fields) -> Fields:
    if fields.get(LIMIT) is None:
        return fields
    newer = {LIMIT_OF_REASONERS: fields[LIMIT], **fields}
    return {name: value for name, value in newer.items() if name != LIMIT}


def _fit_effort(fields: Fields, row: ReasoningModel, changes: Changes) -> Fields:
    requested = fields.get("reasoning_effort")
    if not isinstance(requested, str) or requested in row.efforts:
        return fields
    effort = nearest_effort(requested, row.efforts)
    if effort is None:
        changes.append(("thinking_disabled", "reasoning_effort"))
        return {name: value for name, value in fields.items() if name != "reasoning_effort"}
    changes.append(
        ("thinking_kept" if requested == "none" else "effort_changed", "reasoning_effort")
    )
    return {**fields, "reasoning_effort": effort}


def _find_refused(fields: Fields, row: ReasoningModel) -> Fields:
    refused: Fields = {}
    effort = fields.get("reasoning_effort") or row.default
    if not row.accepts_sampling and effort != "none":
        refused |= SAMPLING_DEFAULTS
    if not row.accepts_sampling and not row.accepts_stop:
        refused["stop"] = None
    if not row.parallel_calls:
        refused["parallel_tool_calls"] = True
    return {name: default for name, default in refused.items() if fields.get(name) is not None}

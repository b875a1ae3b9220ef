"""The parameters that each Claude model accepts, and the beta flags that the API accepts.

Collected in November 2026. The API refuses a request with an unknown beta flag.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any, Literal

import msgspec

from cllm.core.notice import Notice, NoticeCollector
from cllm.core.options import Reasoning
from cllm.wire.reasoning import nearest_effort

# From Anthropic's SDK and clients, 2026-11-15. Only flags of the messages endpoint.
KNOWN_BETAS = frozenset(
    {
        "adaptive-thinking-2026-01-28",
        "advanced-tool-use-2025-11-20",
        "advisor-tool-2026-03-01",
        "afk-mode-2026-01-31",
        "agent-memory-2026-07-22",
        "cache-diagnosis-2026-04-07",
        "claude-code-20250219",
        "code-execution-2025-05-22",
        "code-execution-2025-08-25",
        "compact-2026-01-12",
        "compact-2026-09-04",
        "computer-use-2024-10-22",
        "computer-use-2025-01-24",
        "computer-use-2025-11-24",
        "context-1m-2025-08-07",
        "context-management-2025-06-27",
        "dangerous-tool-use-2026-09-03",
        "dev-full-thinking-2025-05-14",
        "effort-2025-11-24",
        "extended-cache-ttl-2025-04-11",
        "fallback-credit-2026-06-01",
        "fallback-credit-2026-07-01",
        "fast-mode-2026-02-01",
        "files-api-2025-04-14",
        "fine-grained-tool-streaming-2025-05-14",
        "inline-tools-2026-09-15",
        "interleaved-thinking-2025-05-14",
        "mcp-client-2025-04-04",
        "mcp-client-2025-11-20",
        "mcp-client-2026-09-15",
        "message-batches-2024-09-24",
        "message-threads-2026-08-12",
        "mid-conversation-output-config-2026-07-01",
        "mid-conversation-system-clear-at-2026-08-21",
        "mid-conversation-tool-changes-2026-07-01",
        "model-context-window-exceeded-2025-08-26",
        "oauth-2025-04-20",
        "output-128k-2025-02-19",
        "output-300k-2026-03-24",
        "pdfs-2024-09-25",
        "per-turn-control-2026-07-01",
        "prompt-caching-2024-07-31",
        "prompt-caching-scope-2026-01-05",
        "redact-thinking-2026-02-12",
        "server-side-fallback-2026-06-01",
        "server-side-fallback-2026-07-01",
        "skills-2025-10-02",
        "structured-outputs-2025-11-13",
        "structured-outputs-2025-12-15",
        "task-budgets-2026-03-13",
        "thinking-binding-controls-2026-08-01",
        "thinking-display-updates-2026-08-18",
        "thinking-token-count-2026-05-13",
        "token-counting-2024-11-01",
        "token-efficient-tools-2025-02-19",
        "token-efficient-tools-2026-03-28",
        "tool-examples-2025-10-29",
        "user-profiles-2026-03-24",
        "user-profiles-2026-08-18",
        "user-profiles-2026-09-04",
        "web-fetch-2025-09-10",
        "web-search-2025-03-05",
    }
)


def parse_betas(value: Any) -> tuple[str, ...]:
    """Return the flags of a request, from a list or the text of a header."""
    flags = value.split(",") if isinstance(value, str) else value
    if not isinstance(flags, list):
        return ()
    return tuple(flag for flag in flags if isinstance(flag, str))


def filter_betas(
    requested: Iterable[str], *, always: Sequence[str] = ()
) -> tuple[tuple[str, ...], tuple[Notice, ...]]:
    """Return the flags to send, each once, and notices for unknown ones.

    `always`: the operator's flags, sent with every request.
    """
    flags = dict.fromkeys(flag.strip() for flag in requested)
    sent = dict.fromkeys(flag.strip() for flag in always)
    unknown = [flag for flag in flags if flag not in KNOWN_BETAS and flag not in sent]
    sent |= {flag: None for flag in flags if flag in KNOWN_BETAS}
    notices = tuple(
        Notice(
            code="beta_left_out",
            path="betas",
            message=f"Anthropic has no known beta flag {flag!r}; it is not sent.",
        )
        for flag in unknown
        if flag
    )
    return tuple(flag for flag in sent if flag), notices


UNKNOWN_VERSION, NEWEST_VERSION = (0, 0), (99, 0)
UP_TO_HIGH = ("low", "medium", "high")


class ClaudeModel(msgspec.Struct, frozen=True, kw_only=True):
    """The features of one model.

    `thinking`: never, with a budget, with a budget or adaptive, adaptive only, or always on.
    `sampling`: both temperature and top_p, one of them, or none. `efforts`: the accepted values.
    """

    max_output: int
    thinking: Literal["none", "budget", "either", "adaptive", "always"] = "none"
    sampling: Literal["all", "one", "none"] = "all"
    efforts: tuple[str, ...] = ()
    forced_tools: bool = True


_V4_5 = ClaudeModel(max_output=64_000, thinking="budget", sampling="one")
_V4_6 = ClaudeModel(
    max_output=128_000, thinking="either", sampling="one", efforts=(*UP_TO_HIGH, "max")
)
_V4_7 = ClaudeModel(
    max_output=128_000, thinking="adaptive", sampling="none", efforts=(*UP_TO_HIGH, "xhigh", "max")
)
_ALWAYS = msgspec.structs.replace(_V4_7, thinking="always")
_UNFORCED = msgspec.structs.replace(_ALWAYS, forced_tools=False)

# The first pattern that matches "family major.minor" applies.
CLAUDE_MODELS: tuple[tuple[re.Pattern[str], ClaudeModel], ...] = (
    (re.compile(r"instant"), ClaudeModel(max_output=4_096)),
    (re.compile(r"(fable|mythos) (5\.[1-9]|[6-9]\.)"), _UNFORCED),
    (re.compile(r"opus (5\.[5-9]|[6-9]\.)"), _UNFORCED),
    (re.compile(r"fable|mythos"), _ALWAYS),
    (re.compile(r" (4\.[7-9]|[5-9]\.|\d\d\.)"), _V4_7),
    (re.compile(r" 4\.6"), _V4_6),
    (re.compile(r"opus 4\.5"), msgspec.structs.replace(_V4_5, efforts=UP_TO_HIGH)),
    (re.compile(r" 4\.5"), _V4_5),
    (re.compile(r" 4\.[1-4]"), msgspec.structs.replace(_V4_5, max_output=32_000)),
    (re.compile(r"opus 4\.0"), ClaudeModel(max_output=32_000, thinking="budget")),
    (re.compile(r" (4\.0|3\.7)"), ClaudeModel(max_output=64_000, thinking="budget")),
    (re.compile(r" 3\.5"), ClaudeModel(max_output=8_192)),
    (re.compile(r""), ClaudeModel(max_output=4_096)),
)
BEDROCK_REVISION = re.compile(r"(?<=\w)-v\d+(:\w+)*$")
FAMILIES = re.compile(r"opus|sonnet|haiku|fable|mythos|instant")


# Called about ten times for a request, which takes 50 µs without the cache.
@lru_cache(maxsize=256)
def find_claude_model(name: str) -> ClaudeModel | None:
    """Return the features of a model by any of its names; None if it is not Claude.

    An unknown Claude model has the features of the newest.
    """
    version = parse_claude_version(name)
    if version == UNKNOWN_VERSION:
        return None
    family = FAMILIES.search(name.lower())
    key = f"{family[0] if family else ''} {version[0]}.{version[1]}"
    return next(row for pattern, row in CLAUDE_MODELS if pattern.search(key))


@lru_cache(maxsize=256)
def parse_claude_version(model: str) -> tuple[int, int]:
    """Return the version in a Claude model's name: 4.6 of claude-opus-4-6-20260205.

    Without a number it is the newest; UNKNOWN_VERSION for other models.
    """
    _, claude, name = model.lower().partition("claude")
    if not claude:
        return UNKNOWN_VERSION
    words = re.split(r"[^0-9a-z]", BEDROCK_REVISION.sub("", name))
    numbers = [int(word) for word in words if re.fullmatch(r"\d{1,2}", word)]
    return (numbers[0], numbers[1] if len(numbers) > 1 else 0) if numbers else NEWEST_VERSION


Fields = dict[str, Any]

DISABLED = {"type": "disabled"}
MIN_EFFORT = "low"
MIN_BUDGET = 1024
BUDGETS = {
    "minimal": 1024,
    "low": 2048,
    "medium": 8192,
    "high": 16384,
    "xhigh": 24576,
    "max": 32000,
}
INTERLEAVED = "interleaved-thinking-2025-05-14"
MAX_TEMPERATURE = 1
MIN_THINKING_TOP_P = 0.95
SAMPLING = ("temperature", "top_p", "top_k")
SAMPLING_DEFAULTS = {"temperature": 1, "top_p": 1}
ALLOWED_WHILE_THINKING: dict[str, Callable[[float], bool]] = {
    "temperature": lambda value: value == 1,
    "top_p": lambda value: value >= MIN_THINKING_TOP_P,
    "top_k": lambda _value: False,
}


class NoticeSink(NoticeCollector):
    def add(self, code: str, path: str, message: str) -> None:
        self.append(Notice(code=code, path=path, message=message))


def fit_parameters(fields: Fields, model: str, notices: NoticeSink) -> Fields:
    """Drop or change parameters that exclude one another or that this model refuses."""
    features = find_claude_model(model)
    fields = _fit_choice(fields, model, features, notices)
    if features is not None:
        fields = _fit_thinking(fields, model, features, notices)
    fields = _fit_forced_tool(fields, notices)
    if features is not None:
        fields = _fit_effort(fields, model, features, notices)
        fields = _fit_sampling(fields, model, features, notices)
    return _fit_temperature(fields, notices)


def drop_idle_tool_choice(fields: Fields, notices: NoticeSink) -> Fields:
    """Drop a tool choice without tools, which the API refuses."""
    if fields.get("tool_choice") is None or fields.get("tools"):
        return fields
    notices.add(
        "tool_choice_left_out", "tool_choice", "The request has no tools; tool_choice is not sent."
    )
    return _without(fields, "tool_choice")


def build_thinking(reasoning: Reasoning, model: str, *, limit: int | None) -> Fields:
    """Return the fields for thinking and effort, before `fit_parameters`; `limit`: max_tokens."""
    if not reasoning.enabled or reasoning.effort == "none":
        return {"thinking": DISABLED}
    features = find_claude_model(model)
    if features is not None and features.thinking in ("either", "adaptive", "always"):
        effort = MIN_EFFORT if reasoning.effort == "minimal" else reasoning.effort
        return _with_effort({"thinking": {"type": "adaptive"}}, effort)
    budget = reasoning.budget_tokens or _find_budget(reasoning.effort, limit)
    return {"thinking": {"type": "enabled", "budget_tokens": budget}}


def _find_budget(effort: str | None, limit: int | None) -> int:
    """Return the budget of an effort; half of max_tokens is for the reply, if thinking fits."""
    budget = BUDGETS.get(effort or "medium", MIN_BUDGET)
    return budget if limit is None else min(budget, max(MIN_BUDGET, limit // 2))


def _fit_choice(
    fields: Fields, model: str, features: ClaudeModel | None, notices: NoticeSink
) -> Fields:
    """Replace a forced tool for a model that refuses it."""
    if features is None or features.forced_tools or not _has_forced_tool(fields):
        return fields
    message = f"{model} does not accept a forced tool; tool_choice is sent as auto."
    notices.add("tool_choice_changed", "tool_choice", message)
    choice = {key: value for key, value in fields["tool_choice"].items() if key != "name"}
    return {**fields, "tool_choice": choice | {"type": "auto"}}


def _has_forced_tool(fields: Fields) -> bool:
    choice = fields.get("tool_choice")
    return isinstance(choice, dict) and choice.get("type") in ("any", "tool")


def _fit_forced_tool(fields: Fields, notices: NoticeSink) -> Fields:
    """Disable thinking with a budget, which excludes a forced tool; adaptive thinking does not."""
    thinking = fields.get("thinking")
    is_enabled = isinstance(thinking, dict) and thinking.get("type") == "enabled"
    if not is_enabled or not _has_forced_tool(fields):
        return fields
    notices.add(
        "thinking_disabled", "thinking", "Thinking is disabled: the request forces a tool call."
    )
    return {**fields, "thinking": DISABLED}


def _has_thinking(fields: Fields) -> bool:
    thinking = fields.get("thinking")
    return isinstance(thinking, dict) and thinking.get("type") != "disabled"


def _fit_thinking(fields: Fields, model: str, features: ClaudeModel, notices: NoticeSink) -> Fields:
    thinking = fields.get("thinking")
    if not isinstance(thinking, dict):
        return fields
    kind = thinking.get("type")
    if features.thinking == "none":
        if kind != "disabled":
            notices.add("thinking_disabled", "thinking", f"{model} does not support thinking.")
        return _without(fields, "thinking")
    if features.thinking == "always" and kind == "disabled":
        notices.add(
            "thinking_kept", "thinking", f"{model} always thinks; the lowest effort is sent."
        )
        return _without(_with_effort(fields, _get_effort(fields) or MIN_EFFORT), "thinking")
    if features.thinking in ("adaptive", "always") and kind == "enabled":
        message = f"{model} chooses its own thinking budget; the budget is not sent."
        notices.add("thinking_changed", "thinking.budget_tokens", message)
        display = {"display": thinking["display"]} if "display" in thinking else {}
        return {**fields, "thinking": {"type": "adaptive", **display}}
    if features.thinking == "budget" and kind == "adaptive":
        limit = fields.get("max_tokens")
        budget = _find_budget(_get_effort(fields), limit if isinstance(limit, int) else None)
        notices.add(
            "thinking_changed",
            "thinking",
            f"{model} needs a thinking budget; {budget} tokens are sent.",
        )
        fields = {**fields, "thinking": {"type": "enabled", "budget_tokens": budget}}
    return _fit_budget(fields, notices)


def _fit_budget(fields: Fields, notices: NoticeSink) -> Fields:
    """Limit the budget: at least 1024, and below max_tokens unless thinking is interleaved."""
    thinking, limit = fields["thinking"], fields.get("max_tokens")
    budget = thinking.get("budget_tokens")
    if thinking.get("type") != "enabled" or not isinstance(budget, int):
        return fields
    fitted = max(budget, MIN_BUDGET)
    if isinstance(limit, int) and INTERLEAVED not in parse_betas(fields.get("betas")):
        fitted = min(fitted, limit - 1)
    if fitted < MIN_BUDGET:
        notices.add(
            "thinking_disabled", "thinking", "Thinking is disabled: max_tokens is too small for it."
        )
        return _without(fields, "thinking")
    if fitted != budget:
        message = (
            f"The thinking budget must be at least {MIN_BUDGET} and less than max_tokens; "
            f"{fitted} is sent."
        )
        notices.add("thinking_changed", "thinking.budget_tokens", message)
        return {**fields, "thinking": {**thinking, "budget_tokens": fitted}}
    return fields


def _fit_effort(fields: Fields, model: str, features: ClaudeModel, notices: NoticeSink) -> Fields:
    requested = _get_effort(fields)
    if requested is None:
        return fields
    if not features.efforts:
        notices.add(
            "parameter_left_out", "output_config.effort", f"{model} has no effort; it is not sent."
        )
        return _with_effort(fields, None)
    # Without thinking the highest efforts are refused.
    efforts = features.efforts if fields.get("thinking") != DISABLED else features.efforts[:3]
    effort = nearest_effort(requested, efforts)
    if effort in (None, requested):
        return fields
    message = f"{model} does not accept the effort {requested!r} here; {effort!r} is sent."
    notices.add("effort_changed", "output_config.effort", message)
    return _with_effort(fields, effort)


def _get_effort(fields: Fields) -> str | None:
    config = fields.get("output_config")
    effort = config.get("effort") if isinstance(config, dict) else None
    return effort if isinstance(effort, str) else None


def _with_effort(fields: Fields, effort: str | None) -> Fields:
    config = fields.get("output_config")
    rest = _without(config, "effort") if isinstance(config, dict) else {}
    config = rest if effort is None else {"effort": effort, **rest}
    return {**fields, "output_config": config} if config else _without(fields, "output_config")


def _fit_sampling(fields: Fields, model: str, features: ClaudeModel, notices: NoticeSink) -> Fields:
    refused = {
        name: reason
        for name in SAMPLING
        if fields.get(name) is not None
        and (reason := _refusal_reason(name, fields, model, features))
    }
    for name, reason in refused.items():
        if fields[name] != SAMPLING_DEFAULTS.get(name):
            notices.add("parameter_left_out", name, reason)
    return _without(fields, *refused) if refused else fields


def _fit_temperature(fields: Fields, notices: NoticeSink) -> Fields:
    temperature = fields.get("temperature")
    if not isinstance(temperature, int | float) or temperature <= MAX_TEMPERATURE:
        return fields
    notices.add(
        "parameter_changed",
        "temperature",
        f"The highest temperature is {MAX_TEMPERATURE}, which is sent.",
    )
    return {**fields, "temperature": MAX_TEMPERATURE}


def _refusal_reason(name: str, fields: Fields, model: str, features: ClaudeModel) -> str | None:
    if features.sampling == "none":
        return f"{model} does not accept {name}; it is not sent."
    if name == "top_p" and features.sampling == "one" and fields.get("temperature") is not None:
        return f"{model} accepts temperature or top_p, not both; temperature is sent."
    if _has_thinking(fields) and not ALLOWED_WHILE_THINKING[name](fields[name]):
        return f"This {name} is not accepted with thinking; it is not sent."
    return None


def _without(fields: Fields, *names: str) -> Fields:
    return {name: value for name, value in fields.items() if name not in names}

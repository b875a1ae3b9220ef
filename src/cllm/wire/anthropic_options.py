"""What a request asks of Anthropic beside its messages: parameters, between JSON and options.

What a model cannot be told becomes a notice, and a tool that only another protocol has is an error.
It does not see the messages, and never makes up a parameter that nobody gave.
"""

import itertools
import re
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import msgspec

from cllm.core.message import CacheMark
from cllm.core.notice import Notice
from cllm.core.options import (
    AnyTool,
    ForeignTool,
    JsonOutput,
    Options,
    Reasoning,
    Tool,
    ToolChoice,
    ToolChoiceKind,
)
from cllm.wire.anthropic_parts import DIALECT
from cllm.wire.malformed import FieldError, NotExpressibleError

Fields = dict[str, Any]
Notices = list[Notice]

SMALLEST_BUDGET = 1024
BUDGETS = {
    "minimal": 1024,
    "low": 2048,
    "medium": 8192,
    "high": 16384,
    "xhigh": 24576,
    "max": 32000,
}
EFFORTS = {"minimal": "low"}
OWN_FIELDS = frozenset(
    (
        "betas",
        "cache_control",
        "container",
        "context_management",
        "diagnostics",
        "inference_geo",
        "mcp_servers",
        "service_tier",
        "speed",
        "user_profile_id",
        "workspace_id",
    )
)
SERVICE_TIERS = ("auto", "standard_only")
TOOL_FIELDS = frozenset(
    ("allowed_callers", "defer_loading", "eager_input_streaming", "input_examples", "type")
)
DISABLED = {"type": "disabled"}
SAMPLING_WHILE_THINKING: dict[str, Callable[[float], bool]] = {
    "temperature": lambda value: value == 1,
    "top_p": lambda value: value >= LEAST_TOP_P_WHILE_THINKING,
    "top_k": lambda _value: False,
}
LEAST_TOP_P_WHILE_THINKING = 0.95
UNKNOWN_VERSION, NEWEST_VERSION = (0, 0), (99, 0)
THINKING_SINCE = (3, 7)
ONE_SAMPLER_SINCE = (4, 1)
ADAPTIVE_SINCE = (4, 6)
TOOL_NAMES = frozenset(("name", "input_schema", "description", "strict"))
Shape = TypeVar("Shape")


def _dropped(path: str, message: str, *, code: str = "dropped_field") -> Notice:
    return Notice(code=code, path=path, message=message)


class _ToolChoice(msgspec.Struct):
    type: ToolChoiceKind
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class _Parameters(msgspec.Struct):
    """The parameters that have a name in `Options`, and their types."""

    max_tokens: int | None = None
    temperature: int | float | None = None
    top_p: int | float | None = None
    top_k: int | None = None
    stop_sequences: tuple[str, ...] | None = None
    tools: list[Fields] | None = None
    tool_choice: _ToolChoice | None = None
    output_format: Fields | None = None
    output_config: Fields | None = None
    thinking: Fields | None = None
    metadata: Fields | None = None


PARAMETERS = frozenset(_Parameters.__struct_fields__)


class _Tool(msgspec.Struct):
    name: str
    input_schema: Fields
    description: str | None = None
    strict: bool | None = None


class _ThinkingConfig(msgspec.Struct):
    type: str
    budget_tokens: int | None = None


class _OutputConfig(msgspec.Struct):
    effort: str | None = None
    format: Fields | None = None


class _Metadata(msgspec.Struct):
    user_id: str | None = None


def _convert(value: Any, shape: type[Shape], path: str = "") -> Shape:
    try:
        return msgspec.convert(value, shape)
    except (msgspec.ValidationError, RecursionError) as error:
        raise field_error(error, path) from error


def field_error(error: Exception, path: str = "") -> FieldError:
    """The error with the path of its field: `messages[3].content`."""
    problem, _, place = str(error).partition(" - at `$")
    place = place.removesuffix("`")
    return FieldError(f"{path}{place}" if path else place.removeprefix("."), problem)


def decode_options(parameters: Fields) -> Options:
    """The parameters of a request in no protocol's words; what has no name there is in `extra`."""
    said = _convert(parameters, _Parameters)
    extra = {name: parameters[name] for name in parameters if name not in PARAMETERS}
    config = _convert(said.output_config or {}, _OutputConfig, "output_config")
    user = _convert(said.metadata or {}, _Metadata, "metadata").user_id
    _keep_rest(extra, "output_config", said.output_config, ("effort", "format"))
    _keep_rest(extra, "metadata", said.metadata, ("user_id",))
    choice = said.tool_choice
    tools = None if said.tools is None else tuple(map(_decode_tool, said.tools, _tool_paths()))
    disabled = None if choice is None else choice.disable_parallel_tool_use
    return Options(
        max_tokens=said.max_tokens,
        temperature=said.temperature,
        top_p=said.top_p,
        top_k=said.top_k,
        stop=said.stop_sequences,
        tools=tools,
        tool_choice=None if choice is None else ToolChoice(kind=choice.type, name=choice.name),
        parallel_tool_calls=None if disabled is None else not disabled,
        output=_decode_output(config.format or said.output_format),
        reasoning=_decode_reasoning(said.thinking, config.effort),
        user=user,
        extra=extra,
    )


def _keep_rest(extra: Fields, name: str, given: Fields | None, known: tuple[str, ...]) -> None:
    rest = {key: value for key, value in (given or {}).items() if key not in known}
    if rest:
        extra[name] = rest


def _tool_paths() -> Iterator[str]:
    return (f"tools[{index}]" for index in itertools.count())


def _decode_tool(fields: Fields, path: str) -> AnyTool:
    if fields.get("type") not in (None, "custom"):
        name = fields.get("name") or fields["type"]
        return ForeignTool(dialect=DIALECT, name=str(name), raw=fields)
    tool = _convert(fields, _Tool, path)
    cache, rest = fields.get("cache_control"), {k: fields[k] for k in fields if k not in TOOL_NAMES}
    if isinstance(cache, dict) and set(cache) <= {"type", "ttl"}:
        del rest["cache_control"]
        mark = CacheMark(ttl=cache.get("ttl"))
    else:
        mark = None
    return Tool(
        name=tool.name,
        description=tool.description,
        schema=tool.input_schema,
        strict=tool.strict,
        cache=mark,
        extra=rest,
    )


def _decode_output(given: Fields | None) -> JsonOutput | None:
    schema = (given or {}).get("schema")
    return JsonOutput(schema=schema) if isinstance(schema, dict) else None


def _decode_reasoning(thinking: Fields | None, effort: str | None) -> Reasoning | None:
    if thinking is None and effort is None:
        return None
    said = None if thinking is None else _convert(thinking, _ThinkingConfig, "thinking")
    return Reasoning(
        enabled=said is None or said.type != "disabled",
        effort=effort,
        budget_tokens=None if said is None else said.budget_tokens,
        dialect=DIALECT,
        raw=thinking or {},
    )


def encode_options(options: Options, *, model: str) -> tuple[Fields, tuple[Notice, ...]]:
    """The parameters of a request to this model, and what of the options they do not say."""
    notices: Notices = []
    fields: Fields = {}
    if options.max_tokens is not None:
        fields["max_tokens"] = options.max_tokens
    fields |= _encode_sampling(options, notices)
    if options.tools is not None:
        fields["tools"] = [_encode_tool(tool, notices) for tool in options.tools]
    fields |= _encode_choice(options)
    fields |= _encode_reasoning(options, model, notices)
    fields |= _encode_output(options.output, notices)
    if options.user is not None:
        fields["metadata"] = {"user_id": options.user}
    _encode_extra(options.extra, fields, notices)
    if options.reasoning is not None and options.reasoning.dialect != DIALECT:
        _fit_sampling(fields, notices)
    if isinstance(effort := fields.pop("effort", None), str):
        fields["output_config"] = {"effort": effort, **fields.get("output_config", {})}
    return fit(fields, model, notices), tuple(notices)


def fit(fields: Fields, model: str, notices: Notices) -> Fields:
    """The parameters without those that exclude one another, on this model."""
    both = fields.get("temperature") is not None and fields.get("top_p") is not None
    if both and version_of(model) >= ONE_SAMPLER_SINCE:
        fields = {name: fields[name] for name in fields if name != "top_p"}
        notices.append(_dropped("top_p", f"{model} takes temperature or top_p: temperature sent"))
    choice, thinking = fields.get("tool_choice"), fields.get("thinking")
    forced = isinstance(choice, dict) and choice.get("type") in ("any", "tool")
    if forced and isinstance(thinking, dict) and thinking.get("type") != "disabled":
        fields = {**fields, "thinking": DISABLED}
        why = "a forced tool excludes thinking"
        notices.append(_dropped("thinking", why, code="thinking_disabled"))
    return fields


def _encode_sampling(options: Options, notices: Notices) -> Fields:
    said = {"temperature": options.temperature, "top_p": options.top_p, "top_k": options.top_k}
    fields: Fields = {name: value for name, value in said.items() if value is not None}
    if options.stop is not None:
        fields["stop_sequences"] = [text for text in options.stop if text.strip()]
        if len(fields["stop_sequences"]) < len(options.stop):
            notices.append(_dropped("stop_sequences", "a stop sequence of white space left out"))
    if options.seed is not None:
        notices.append(_dropped("seed", "Anthropic has no seed"))
    return fields


def _fit_sampling(fields: Fields, notices: Notices) -> None:
    """Leaves out the sampling that a model refuses while it thinks."""
    if fields.get("thinking", DISABLED)["type"] == "disabled":
        return
    for name, is_taken in SAMPLING_WHILE_THINKING.items():
        if name in fields and not is_taken(fields[name]):
            del fields[name]
            notices.append(_dropped(name, f"a model that thinks does not take this {name}"))


def _encode_tool(tool: AnyTool, notices: Notices) -> Fields:
    if isinstance(tool, ForeignTool):
        if tool.dialect != DIALECT:
            raise NotExpressibleError(f"the tool {tool.name!r} is one that only {tool.dialect} has")
        return tool.raw
    schema = tool.schema if "type" in tool.schema else {"type": "object", **tool.schema}
    fields: Fields = {"name": tool.name, "input_schema": schema}
    if tool.description is not None:
        fields["description"] = tool.description
    if tool.strict:
        fields["strict"] = True
    for name, value in tool.extra.items():
        if name in TOOL_FIELDS:
            fields[name] = value
        else:
            notices.append(_dropped(f"tools.{tool.name}.{name}", f"Anthropic has no {name}"))
    if tool.cache is not None:
        ttl = {} if tool.cache.ttl is None else {"ttl": tool.cache.ttl}
        fields["cache_control"] = {"type": "ephemeral", **ttl}
    return fields


def _encode_choice(options: Options) -> Fields:
    choice = options.tool_choice
    if choice is None and options.parallel_tool_calls is not False:
        return {}
    said: Fields = {"type": "auto" if choice is None else choice.kind}
    if choice is not None and choice.name is not None:
        said["name"] = choice.name
    if options.parallel_tool_calls is False and said["type"] != "none":
        said["disable_parallel_tool_use"] = True
    return {"tool_choice": said}


def _encode_reasoning(options: Options, model: str, notices: Notices) -> Fields:
    """Thinking and effort; the client's own words if it said them in Anthropic's."""
    reasoning = options.reasoning
    if reasoning is None:
        return {}
    if reasoning.dialect == DIALECT and reasoning.raw is not None:
        fields: Fields = {"thinking": reasoning.raw} if reasoning.raw else {}
        if reasoning.effort is not None:
            fields["effort"] = reasoning.effort
    else:
        fields = _translate_reasoning(reasoning, options, model, notices)
    return fields


def _translate_reasoning(
    reasoning: Reasoning, options: Options, model: str, notices: Notices
) -> Fields:
    if not reasoning.enabled or reasoning.effort == "none":
        return {"thinking": DISABLED}
    effort = EFFORTS.get(reasoning.effort or "", reasoning.effort)
    if version_of(model) >= ADAPTIVE_SINCE:
        adaptive: Fields = {"thinking": {"type": "adaptive"}}
        return adaptive if effort is None else {**adaptive, "effort": effort}
    budget = reasoning.budget_tokens or BUDGETS.get(reasoning.effort or "medium", SMALLEST_BUDGET)
    if options.max_tokens is not None:
        budget = min(budget, options.max_tokens - 1)
    if budget < SMALLEST_BUDGET or UNKNOWN_VERSION < version_of(model) < THINKING_SINCE:
        notices.append(_dropped("thinking", f"{model} cannot think within these limits"))
        return {}
    return {"thinking": {"type": "enabled", "budget_tokens": budget}}


def _encode_output(output: JsonOutput | None, notices: Notices) -> Fields:
    if output is None:
        return {}
    if output.schema is None:
        notices.append(_dropped("output_config.format", "Anthropic has no JSON without a schema"))
        return {}
    return {"output_config": {"format": {"type": "json_schema", "schema": output.schema}}}


def _encode_extra(extra: Fields, fields: Fields, notices: Notices) -> None:
    for name, value in extra.items():
        if name == "output_config" and isinstance(value, dict):
            fields[name] = {**fields.get(name, {}), **value}
        elif name in OWN_FIELDS and (name != "service_tier" or value in SERVICE_TIERS):
            fields[name] = value
        else:
            notices.append(_dropped(name, f"Anthropic has no such {name}"))


def version_of(model: str) -> tuple[int, int]:
    """The version in the name of a Claude model: 4.6 of claude-opus-4-6-20260205.

    A Claude model without a number counts as the newest, a name of another kind as none.
    """
    _, claude, name = model.lower().partition("claude")
    if not claude:
        return UNKNOWN_VERSION
    numbers = [int(word) for word in re.split(r"[^0-9a-z]", name) if re.fullmatch(r"\d{1,2}", word)]
    return (numbers[0], numbers[1] if len(numbers) > 1 else 0) if numbers else NEWEST_VERSION

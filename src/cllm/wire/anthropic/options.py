"""Decodes and encodes the parameters of the Messages API."""

import msgspec

from cllm.core.message import CacheMark, Dialect
from cllm.core.notice import Notice
from cllm.core.options import (
    AnyTool,
    ForeignTool,
    JsonOutput,
    Reasoning,
    RequestOptions,
    Tool,
    ToolChoice,
    ToolChoiceKind,
)
from cllm.wire.anthropic.models import (
    Fields,
    NoticeSink,
    build_thinking,
    find_claude_model,
    fit_parameters,
    parse_claude_version,
)
from cllm.wire.anthropic.parts import DIALECT
from cllm.wire.errors import NotExpressibleError
from cllm.wire.messages import convert, shorten

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
# The names of the limit in the protocols.
LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
TOOL_FIELDS = frozenset(
    ("allowed_callers", "defer_loading", "eager_input_streaming", "input_examples", "type")
)
# Since this version max_tokens does not reduce the context window for the prompt.
SEPARATE_LIMIT_SINCE = (4, 5)
SHARED_WINDOW_LIMIT = 32_000
UNKNOWN_MODEL_LIMIT = 8_192
DECODED_TOOL_FIELDS = frozenset(("name", "input_schema", "description", "strict"))


class _ToolChoice(msgspec.Struct):
    type: ToolChoiceKind
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class _Parameters(msgspec.Struct):
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


def decode_options(parameters: Fields) -> RequestOptions:
    """Decode request parameters; those that `RequestOptions` does not have are in `extra`."""
    decoded = convert(parameters, _Parameters)
    extra = {name: parameters[name] for name in parameters if name not in PARAMETERS}
    config = convert(decoded.output_config or {}, _OutputConfig, "output_config")
    user = convert(decoded.metadata or {}, _Metadata, "metadata").user_id
    _add_rest(extra, "output_config", decoded.output_config, ("effort", "format"))
    _add_rest(extra, "metadata", decoded.metadata, ("user_id",))
    choice = decoded.tool_choice
    schema = (config.format or decoded.output_format or {}).get("schema")
    tools = None
    if decoded.tools is not None:
        tools = tuple(_decode_tool(tool, f"tools[{n}]") for n, tool in enumerate(decoded.tools))
    disabled = None if choice is None else choice.disable_parallel_tool_use
    return RequestOptions(
        max_tokens=decoded.max_tokens,
        temperature=decoded.temperature,
        top_p=decoded.top_p,
        top_k=decoded.top_k,
        stop=decoded.stop_sequences,
        tools=tools,
        tool_choice=None if choice is None else ToolChoice(kind=choice.type, name=choice.name),
        parallel_tool_calls=None if disabled is None else not disabled,
        output=JsonOutput(schema=schema) if isinstance(schema, dict) else None,
        reasoning=_decode_reasoning(decoded.thinking, config.effort),
        user=user,
        extra=extra,
    )


def _add_rest(extra: Fields, name: str, fields: Fields | None, known: tuple[str, ...]) -> None:
    rest = {key: value for key, value in (fields or {}).items() if key not in known}
    if rest:
        extra[name] = rest


def _decode_tool(fields: Fields, path: str) -> AnyTool:
    if fields.get("type") not in (None, "custom"):
        name = fields.get("name") or fields["type"]
        return ForeignTool(dialect=DIALECT, name=str(name), raw=fields)
    tool = convert(fields, _Tool, path)
    rest = {name: fields[name] for name in fields if name not in DECODED_TOOL_FIELDS}
    control, cache = rest.get("cache_control"), None
    if isinstance(control, dict) and set(control) <= {"type", "ttl"}:
        del rest["cache_control"]
        cache = CacheMark(ttl=control.get("ttl"))
    return Tool(
        name=tool.name,
        description=tool.description,
        schema=tool.input_schema,
        strict=tool.strict,
        cache=cache,
        extra=rest,
    )


def _decode_reasoning(thinking: Fields | None, effort: str | None) -> Reasoning | None:
    if thinking is None and effort is None:
        return None
    config = None if thinking is None else convert(thinking, _ThinkingConfig, "thinking")
    return Reasoning(
        enabled=config is None or config.type != "disabled",
        effort=effort,
        budget_tokens=None if config is None else config.budget_tokens,
        dialect=DIALECT,
        raw=thinking or {},
    )


def encode_options(options: RequestOptions, *, model: str) -> tuple[Fields, tuple[Notice, ...]]:
    """Encode options for a model, with notices for options that it does not accept."""
    notices = NoticeSink()
    fields = _encode_limits(options, notices)
    if options.tools is not None:
        fields["tools"] = [_encode_tool(tool, notices) for tool in options.tools]
    fields |= _encode_choice(options)
    fields |= _encode_reasoning(options, model)
    _encode_output(options.output, fields, notices)
    if options.user is not None:
        fields["metadata"] = {"user_id": options.user}
    _encode_extra(options.extra, fields, notices)
    return fit_parameters(fields, model, notices), tuple(notices)


def _encode_limits(options: RequestOptions, notices: NoticeSink) -> Fields:
    names = ("max_tokens", "temperature", "top_p", "top_k")
    values = ((name, getattr(options, name)) for name in names)
    fields: Fields = {name: value for name, value in values if value is not None}
    if options.stop is not None:
        fields["stop_sequences"] = [text for text in options.stop if text.strip()]
        if len(fields["stop_sequences"]) < len(options.stop):
            notices.add("parameter_changed", "stop_sequences", "A blank stop sequence is not sent.")
    if options.seed is not None:
        notices.add("field_left_out", "seed", "Anthropic has no seed; it is not sent.")
    return fields


def _encode_tool(tool: AnyTool, notices: NoticeSink) -> Fields:
    if isinstance(tool, ForeignTool):
        if tool.dialect != DIALECT:
            raise NotExpressibleError(f"only {tool.api} has the tool {tool.name!r}: remove it")
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
            path = f"tools.{shorten(tool.name)}.{name}"
            notices.add(
                "field_left_out", path, f"Anthropic has no {name} in a tool; it is not sent."
            )
    if tool.cache is not None:
        ttl = {} if tool.cache.ttl is None else {"ttl": tool.cache.ttl}
        fields["cache_control"] = {"type": "ephemeral", **ttl}
    return fields


def _encode_choice(options: RequestOptions) -> Fields:
    choice = options.tool_choice
    if choice is None and (options.parallel_tool_calls is not False or not options.tools):
        return {}
    fields: Fields = {"type": "auto" if choice is None else choice.kind}
    if choice is not None and choice.name is not None:
        fields["name"] = choice.name
    if options.parallel_tool_calls is False and fields["type"] != "none":
        fields["disable_parallel_tool_use"] = True
    return {"tool_choice": fields}


def _encode_reasoning(options: RequestOptions, model: str) -> Fields:
    reasoning = options.reasoning
    if reasoning is None:
        return {}
    if reasoning.dialect == DIALECT and reasoning.raw is not None:
        fields: Fields = {"thinking": reasoning.raw} if reasoning.raw else {}
        effort = reasoning.effort
        return fields if effort is None else {**fields, "output_config": {"effort": effort}}
    return build_thinking(reasoning, model, limit=options.max_tokens)


def _encode_output(output: JsonOutput | None, fields: Fields, notices: NoticeSink) -> None:
    if output is None:
        return
    if output.schema is None:
        notices.add(
            "field_left_out",
            "response_format",
            "Anthropic has no JSON output without a schema; response_format is not sent.",
        )
        return
    output_format = {"format": {"type": "json_schema", "schema": output.schema}}
    fields["output_config"] = {**fields.get("output_config", {}), **output_format}


def _encode_extra(extra: Fields, fields: Fields, notices: NoticeSink) -> None:
    for name, value in extra.items():
        if name == "output_config" and isinstance(value, dict):
            fields[name] = {**fields.get(name, {}), **value}
        elif name in OWN_FIELDS and (name != "service_tier" or value in SERVICE_TIERS):
            fields[name] = value
        else:
            is_known = name in OWN_FIELDS
            problem = f"does not accept this {name}" if is_known else f"has no parameter `{name}`"
            notices.add("field_left_out", name, f"Anthropic {problem}; it is not sent.")


def default_max_tokens(model: str) -> int:
    """Return the model's maximum output in tokens."""
    features = find_claude_model(model)
    if features is None:
        return UNKNOWN_MODEL_LIMIT
    is_separate = parse_claude_version(model) >= SEPARATE_LIMIT_SINCE
    return features.max_output if is_separate else min(features.max_output, SHARED_WINDOW_LIMIT)


def build_limit_notices(parameters: Fields, dialect: Dialect, *, model: str) -> tuple[Notice, ...]:
    """Return a notice about an added limit, unless it is the model's own and not required.

    Only Anthropic's protocol requires a limit from its clients.
    """
    if any(parameters.get(name) is not None for name in LIMITS):
        return ()
    limit, features = default_max_tokens(model), find_claude_model(model)
    is_models_own = features is not None and limit == features.max_output
    if dialect != DIALECT and is_models_own:
        return ()
    whose = "the model's limit" if is_models_own else "less than the model may accept"
    message = f"Anthropic requires max_tokens; {limit} is sent, {whose}."
    return (Notice(code="max_tokens_added", path="max_tokens", message=message),)

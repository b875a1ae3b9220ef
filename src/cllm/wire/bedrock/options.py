"""Encodes options as parameters of Converse."""

from collections.abc import Iterator
from typing import Any

import msgspec

from cllm.core.notice import Notice
from cllm.core.options import (
    AnyTool,
    ForeignTool,
    JsonOutput,
    RequestOptions,
    Tool,
    ToolChoice,
)
from cllm.wire.anthropic.models import (
    DISABLED,
    SAMPLING,
    NoticeSink,
    build_thinking,
    fit_parameters,
)
from cllm.wire.anthropic.options import default_max_tokens
from cllm.wire.bedrock.models import BEDROCK_BETAS, BedrockFeatures, find_features
from cllm.wire.bedrock.parts import Block, encode_cache_point
from cllm.wire.errors import NotExpressibleError
from cllm.wire.messages import NoticeMerger, shorten

MATCHED_STOP = "/stop_sequence"
"""The field in which Claude reports the stop sequence; our encoder requests it."""


OWN_FIELDS = (
    "additionalModelRequestFields",
    "additionalModelResponseFieldPaths",
    "guardrailConfig",
    "outputConfig",
    "performanceConfig",
    "promptVariables",
    "requestMetadata",
    "serviceTier",
)
DEFAULT_VALUES = {"service_tier": "auto"}


def encode_options(
    options: RequestOptions, *, model: str, history_has_tools: bool = False
) -> tuple[dict[str, Any], tuple[Notice, ...]]:
    """Encode options for a model, with notices for options that it does not accept.

    The tool choice `none` drops the tools, unless the history has tools: Converse then requires
    them.
    """
    notes = NoticeMerger()
    features = find_features(model)
    options, thinking = _fit_options(options, features, model, notes)
    body: Block = {}
    inference = dict(_encode_inference(options, notes))
    if inference:
        body["inferenceConfig"] = inference
    config = _encode_tool_config(options, features, notes, history_has_tools=history_has_tools)
    more: Block = {}
    if config:
        more = _encode_parallel_ban(options, config, features)
        body["toolConfig"] = config
    body |= _own_fields(options, notes)
    more |= thinking | _model_fields(options, features, notes)
    if more:
        name = "additionalModelRequestFields"
        body[name] = {**body.get(name, {}), **more}
    if options.output is not None:
        _add_output(body, options.output, features, notes)
    if options.stop and features.claude:
        body.setdefault("additionalModelResponseFieldPaths", [MATCHED_STOP])
    _report_unsupported(options, features, notes)
    return body, notes.notices()


def _fit_options(
    options: RequestOptions, features: BedrockFeatures, model: str, notes: NoticeMerger
) -> tuple[RequestOptions, Block]:
    if not features.claude:
        if options.reasoning is not None and options.reasoning.enabled:
            notes.add("thinking_disabled", "thinking", "This model does not support thinking.")
        return options, {}
    requested = _requested_fields(options, model)
    fit_notices = NoticeSink()
    fitted = fit_parameters(requested, model, fit_notices)
    notes.extend(fit_notices)
    choice = options.tool_choice
    if fitted.get("tool_choice") != requested.get("tool_choice"):
        choice = ToolChoice(kind="auto")
    sampling = {name: fitted.get(name) for name in SAMPLING}
    names = ("thinking", "output_config")
    thinking: Block = {name: fitted[name] for name in names if name in fitted}
    if thinking.get("thinking") == DISABLED != requested.get("thinking"):
        del thinking["thinking"]
    # A request with a budget needs max_tokens, because the budget must be lower.
    has_budget = (thinking.get("thinking") or {}).get("type") == "enabled"
    limit = fitted["max_tokens"] if has_budget else options.max_tokens
    fitted_options = msgspec.structs.replace(
        options, max_tokens=limit, tool_choice=choice, **sampling
    )
    return fitted_options, thinking


def _requested_fields(options: RequestOptions, model: str) -> Block:
    limit = options.max_tokens
    fields: Block = {
        "max_tokens": default_max_tokens(model) if limit is None else limit,
        "betas": options.extra.get("betas"),
        "temperature": options.temperature,
        "top_p": options.top_p,
        "top_k": options.top_k,
    }
    choice = options.tool_choice
    if choice is not None and options.tools:
        fields["tool_choice"] = {"type": choice.kind}
    reasoning = options.reasoning
    if reasoning is None:
        return fields
    if reasoning.raw is None or reasoning.dialect != "anthropic":
        return fields | build_thinking(reasoning, model, limit=limit)
    if reasoning.raw:
        fields["thinking"] = reasoning.raw
    if reasoning.effort is not None:
        fields["output_config"] = {"effort": reasoning.effort}
    return fields


def _encode_inference(options: RequestOptions, notes: NoticeMerger) -> Iterator[tuple[str, Any]]:
    if options.max_tokens is not None:
        yield "maxTokens", options.max_tokens
    if options.temperature is not None:
        if options.temperature > 1:
            notes.add(
                "parameter_changed",
                "temperature",
                "The highest temperature on Bedrock is 1, which is sent.",
            )
        yield "temperature", min(options.temperature, 1)
    if options.top_p is not None:
        yield "topP", options.top_p
    if options.stop is not None:
        sequences = [text for text in options.stop if text.strip()]
        if len(sequences) < len(options.stop):
            notes.add("parameter_changed", "stop", "A blank stop sequence is not sent.")
        yield "stopSequences", sequences


def _encode_tool_config(
    options: RequestOptions,
    features: BedrockFeatures,
    notes: NoticeMerger,
    *,
    history_has_tools: bool,
) -> Block | None:
    choice = options.tool_choice
    if not options.tools:
        if choice is not None:
            notes.add(
                "tool_choice_left_out",
                "tool_choice",
                "The request has no tools; tool_choice is not sent.",
            )
        return None
    if choice is not None and choice.kind == "none":
        if not history_has_tools:
            return None
        notes.add(
            "tool_choice_left_out",
            "tool_choice",
            "Bedrock cannot forbid the tools of the history; the model can call one.",
        )
        choice = None
    config: Block = {"tools": list(_encode_tools(options.tools, features, notes))}
    if choice is not None:
        config |= _encode_choice(choice, features, notes)
    return config


def _encode_tools(
    tools: tuple[AnyTool, ...], features: BedrockFeatures, notes: NoticeMerger
) -> Iterator[Block]:
    for tool in tools:
        if isinstance(tool, ForeignTool):
            raise NotExpressibleError(
                f"only {tool.api} has the tool {tool.name!r}: "
                "remove it, or use a model of that provider."
            )
        yield _encode_tool(tool, features, notes)
        if tool.cache is not None:
            yield encode_cache_point(tool.cache)


def _encode_tool(tool: Tool, features: BedrockFeatures, notes: NoticeMerger) -> Block:
    spec: Block = {"name": tool.name}
    if tool.description:
        spec["description"] = tool.description
    spec["inputSchema"] = {"json": {"type": "object", **tool.schema}}
    if tool.strict and features.json_schema:
        spec["strict"] = True
    path = f"tools.{shorten(tool.name)}"
    if tool.strict and not features.json_schema:
        notes.add(
            "field_left_out", f"{path}.strict", "This model has no strict tools; it is not sent."
        )
    for name in tool.extra:
        message = f"Bedrock has no {name} in a tool; it is not sent."
        notes.add("field_left_out", f"{path}.{name}", message)
    return {"toolSpec": spec}


def _encode_choice(choice: ToolChoice, features: BedrockFeatures, notes: NoticeMerger) -> Block:
    kind = choice.kind
    if kind in features.choices:
        return {"toolChoice": {kind: {"name": choice.name or ""} if kind == "tool" else {}}}
    if kind != "auto":
        message = f"This model does not accept the tool choice {kind!r}; it is not sent."
        notes.add("tool_choice_left_out", "tool_choice", message)
    return {}


def _encode_parallel_ban(
    options: RequestOptions, config: Block, features: BedrockFeatures
) -> Block:
    """Return Claude's own tool choice, which forbids parallel calls.

    Bedrock refuses it together with `toolChoice`, so it replaces that in `config`.
    """
    if options.parallel_tool_calls is not False or not features.claude:
        return {}
    ((kind, value),) = config.pop("toolChoice", {"auto": {}}).items()
    return {"tool_choice": {"type": kind, **value, "disable_parallel_tool_use": True}}


def _own_fields(options: RequestOptions, notes: NoticeMerger) -> Block:
    for name in options.extra:
        is_set = name not in DEFAULT_VALUES or options.extra[name] != DEFAULT_VALUES[name]
        if is_set and name not in (*OWN_FIELDS, "betas"):
            notes.add("field_left_out", name, f"Bedrock has no parameter `{name}`; it is not sent.")
    return {name: options.extra[name] for name in OWN_FIELDS if name in options.extra}


def _model_fields(options: RequestOptions, features: BedrockFeatures, notes: NoticeMerger) -> Block:
    fields: Block = {}
    if options.top_k is not None and features.top_k:
        value: Any = options.top_k
        for name in reversed(features.top_k):
            value = {name: value}
        fields |= value
    elif options.top_k is not None:
        notes.add("parameter_left_out", "top_k", "This model has no top_k; it is not sent.")
    betas = options.extra.get("betas")
    return fields | (_encode_betas(betas, features, notes) if isinstance(betas, list) else {})


def _encode_betas(betas: list[Any], features: BedrockFeatures, notes: NoticeMerger) -> Block:
    accepted: list[str] = []
    for beta in betas:
        if features.claude and isinstance(beta, str) and beta in BEDROCK_BETAS:
            accepted.append(beta)
        else:
            message = f"Bedrock does not accept the beta flag {beta!r}; it is not sent."
            notes.add("beta_left_out", "betas", message)
    return {"anthropic_beta": accepted} if accepted else {}


def _add_output(
    body: Block, output: JsonOutput, features: BedrockFeatures, notes: NoticeMerger
) -> None:
    if output.schema is None or not features.json_schema:
        message = "This model has no JSON output of this kind; response_format is not sent."
        notes.add("field_left_out", "response_format", message)
        return
    schema: Block = {"schema": msgspec.json.encode(output.schema).decode()}
    if output.name:
        schema["name"] = output.name
    text_format = {"type": "json_schema", "structure": {"jsonSchema": schema}}
    body["outputConfig"] = {**body.get("outputConfig", {}), "textFormat": text_format}


def _report_unsupported(
    options: RequestOptions, features: BedrockFeatures, notes: NoticeMerger
) -> None:
    if options.parallel_tool_calls is False and not features.claude:
        notes.add(
            "field_left_out",
            "parallel_tool_calls",
            "Only Claude can be prevented from parallel tool calls; this model can make several.",
        )
    for name in ("seed", "user"):
        if getattr(options, name) is not None:
            notes.add("field_left_out", name, f"Bedrock has no {name}; it is not sent.")

"""Options as parameters of Converse."""

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
"""Where Claude reports the stop sequence; our encoder requests it."""


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
    """Encode options for a model, with notices for what it does not accept.

    A tool choice of none drops the tools, unless the history has tools: Converse then requires
    them.
    """
    notes = NoticeMerger()
    known = find_features(model)
    options, thinking = _fitted(options, known, model, notes)
    body: Block = {}
    inference = dict(_inference(options, notes))
    if inference:
        body["inferenceConfig"] = inference
    config = _tool_config(options, known, notes, history_has_tools=history_has_tools)
    if config:
        body["toolConfig"] = config
    body |= _own_fields(options, notes)
    more = thinking | _model_fields(options, known, notes)
    if more:
        name = "additionalModelRequestFields"
        body[name] = {**body.get(name, {}), **more}
    if options.output is not None:
        _add_output(body, options.output, known, notes)
    if options.stop and known.claude:
        body.setdefault("additionalModelResponseFieldPaths", [MATCHED_STOP])
    _note_unsaid(options, notes)
    return body, notes.notices()


def _fitted(
    options: RequestOptions, known: BedrockFeatures, model: str, notes: NoticeMerger
) -> tuple[RequestOptions, Block]:
    if not known.claude:
        if options.reasoning is not None and options.reasoning.enabled:
            notes.add("thinking_disabled", "thinking", "this model cannot be asked to think")
        return options, {}
    asked = _asked(options, model)
    noticed = NoticeSink()
    fitted = fit_parameters(asked, model, noticed)
    notes.extend(noticed)
    choice = options.tool_choice
    if fitted.get("tool_choice") != asked.get("tool_choice"):
        choice = ToolChoice(kind="auto")
    sampling = {name: fitted.get(name) for name in SAMPLING}
    asked_of = ("thinking", "output_config")
    thinking: Block = {name: fitted[name] for name in asked_of if name in fitted}
    if thinking.get("thinking") == DISABLED != asked.get("thinking"):
        del thinking["thinking"]
    # A budget must be below the limit, so that a request with one needs a limit.
    has_budget = (thinking.get("thinking") or {}).get("type") == "enabled"
    limit = fitted["max_tokens"] if has_budget else options.max_tokens
    fitted_options = msgspec.structs.replace(
        options, max_tokens=limit, tool_choice=choice, **sampling
    )
    return fitted_options, thinking


def _asked(options: RequestOptions, model: str) -> Block:
    given = options.max_tokens
    asked: Block = {
        "max_tokens": default_max_tokens(model) if given is None else given,
        "betas": options.extra.get("betas"),
        "temperature": options.temperature,
        "top_p": options.top_p,
        "top_k": options.top_k,
    }
    choice = options.tool_choice
    if choice is not None and options.tools:
        asked["tool_choice"] = {"type": choice.kind}
    reasoning = options.reasoning
    if reasoning is None:
        return asked
    if reasoning.raw is None or reasoning.dialect != "anthropic":
        return asked | build_thinking(reasoning, model)
    if reasoning.raw:
        asked["thinking"] = reasoning.raw
    if reasoning.effort is not None:
        asked["output_config"] = {"effort": reasoning.effort}
    return asked


def _inference(options: RequestOptions, notes: NoticeMerger) -> Iterator[tuple[str, Any]]:
    if options.max_tokens is not None:
        yield "maxTokens", options.max_tokens
    if options.temperature is not None:
        if options.temperature > 1:
            notes.add("parameter_changed", "temperature", "Bedrock's highest temperature is 1")
        yield "temperature", min(options.temperature, 1)
    if options.top_p is not None:
        yield "topP", options.top_p
    if options.stop is not None:
        kept = [word for word in options.stop if word.strip()]
        if len(kept) < len(options.stop):
            notes.add("parameter_changed", "stop", "a blank stop sequence was left out")
        yield "stopSequences", kept


def _tool_config(
    options: RequestOptions, known: BedrockFeatures, notes: NoticeMerger, *, history_has_tools: bool
) -> Block | None:
    choice = options.tool_choice
    if not options.tools:
        if choice is not None:
            notes.add("tool_choice_left_out", "tool_choice", "there are no tools to choose from")
        return None
    if choice is not None and choice.kind == "none":
        if not history_has_tools:
            return None
        notes.add(
            "tool_choice_left_out",
            "tool_choice",
            "Bedrock cannot forbid tools that the history speaks of: the model may call one",
        )
        choice = None
    config: Block = {"tools": list(_encode_tools(options.tools, known, notes))}
    if choice is not None:
        config |= _encode_choice(choice, known, notes)
    return config


def _encode_tools(
    tools: tuple[AnyTool, ...], known: BedrockFeatures, notes: NoticeMerger
) -> Iterator[Block]:
    for tool in tools:
        if isinstance(tool, ForeignTool):
            raise NotExpressibleError(
                f"the tool {tool.name!r} exists only in {tool.dialect}'s protocol: "
                "leave it out, or ask a model there."
            )
        yield _encode_tool(tool, known, notes)
        if tool.cache is not None:
            yield encode_cache_point(tool.cache)


def _encode_tool(tool: Tool, known: BedrockFeatures, notes: NoticeMerger) -> Block:
    spec: Block = {"name": tool.name}
    if tool.description:
        spec["description"] = tool.description
    spec["inputSchema"] = {"json": {"type": "object", **tool.schema}}
    if tool.strict and known.json_schema:
        spec["strict"] = True
    path = f"tools.{shorten(tool.name)}"
    if tool.strict and not known.json_schema:
        notes.add("field_left_out", f"{path}.strict", "this model has no strict tools")
    for name in tool.extra:
        notes.add("field_left_out", f"{path}.{name}", f"Bedrock's tools have no {name}")
    return {"toolSpec": spec}


def _encode_choice(choice: ToolChoice, known: BedrockFeatures, notes: NoticeMerger) -> Block:
    word = choice.kind
    if word in known.choices:
        return {"toolChoice": {word: {"name": choice.name or ""} if word == "tool" else {}}}
    if word != "auto":
        notes.add("tool_choice_left_out", "tool_choice", f"this model cannot be told {word!r}")
    return {}


def _own_fields(options: RequestOptions, notes: NoticeMerger) -> Block:
    for name in options.extra:
        said = name not in DEFAULT_VALUES or options.extra[name] != DEFAULT_VALUES[name]
        if said and name not in (*OWN_FIELDS, "betas"):
            notes.add("field_left_out", name, f"Bedrock has no field {name}")
    return {name: options.extra[name] for name in OWN_FIELDS if name in options.extra}


def _model_fields(options: RequestOptions, known: BedrockFeatures, notes: NoticeMerger) -> Block:
    fields: Block = {}
    if options.top_k is not None and known.top_k:
        value: Any = options.top_k
        for name in reversed(known.top_k):
            value = {name: value}
        fields |= value
    elif options.top_k is not None:
        notes.add("parameter_left_out", "top_k", "this model has no top_k")
    betas = options.extra.get("betas")
    return fields | (_encode_betas(betas, known, notes) if isinstance(betas, list) else {})


def _encode_betas(betas: list[Any], known: BedrockFeatures, notes: NoticeMerger) -> Block:
    kept: list[str] = []
    for beta in betas:
        if known.claude and isinstance(beta, str) and beta in BEDROCK_BETAS:
            kept.append(beta)
        else:
            notes.add("beta_left_out", "betas", f"Bedrock does not know the beta flag {beta!r}")
    return {"anthropic_beta": kept} if kept else {}


def _add_output(
    body: Block, output: JsonOutput, known: BedrockFeatures, notes: NoticeMerger
) -> None:
    if output.schema is None or not known.json_schema:
        notes.add("field_left_out", "response_format", "this model cannot be held to JSON this way")
        return
    schema: Block = {"schema": msgspec.json.encode(output.schema).decode()}
    if output.name:
        schema["name"] = output.name
    form = {"type": "json_schema", "structure": {"jsonSchema": schema}}
    body["outputConfig"] = {**body.get("outputConfig", {}), "textFormat": form}


def _note_unsaid(options: RequestOptions, notes: NoticeMerger) -> None:
    if options.parallel_tool_calls is False:
        notes.add("field_left_out", "parallel_tool_calls", "Bedrock cannot forbid parallel calls")
    for name in ("seed", "user"):
        if getattr(options, name) is not None:
            notes.add("field_left_out", name, f"Bedrock has no {name}")

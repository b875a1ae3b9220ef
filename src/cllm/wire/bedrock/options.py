"""Parameters of Converse: between JSON and options.

What a model does not accept becomes a notice; a tool that only another protocol has is an error.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from cllm.core.message import CacheMark
from cllm.core.notice import Notice, NoticeCollector
from cllm.core.options import (
    AnyTool,
    ForeignTool,
    JsonOutput,
    Options,
    Reasoning,
    Tool,
    ToolChoice,
)
from cllm.wire.anthropic.models import DISABLED, SAMPLING, asked_thinking, fit
from cllm.wire.anthropic.options import default_max_tokens
from cllm.wire.bedrock.models import BETAS, Features, features
from cllm.wire.bedrock.parts import Block, encode_mark
from cllm.wire.malformed import MalformedError, NotExpressibleError
from cllm.wire.spoken import Notes, shortened

MATCHED_STOP = "/stop_sequence"
"""Where Claude reports the stop sequence; our encoder requests it."""


class _Inference(msgspec.Struct, rename="camel"):
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    stop_sequences: tuple[str, ...] | None = None


class _InputSchema(msgspec.Struct):
    json: dict[str, Any]


class _ToolSpec(msgspec.Struct, rename="camel"):
    name: str
    input_schema: _InputSchema
    description: str | None = None
    strict: bool | None = None


class _Tool(msgspec.Struct, rename="camel"):
    tool_spec: _ToolSpec | None = None
    system_tool: dict[str, Any] | None = None
    cache_point: CacheMark | None = None


class _ChosenTool(msgspec.Struct):
    name: str


class _Choice(msgspec.Struct):
    auto: dict[str, Any] | None = None
    any: dict[str, Any] | None = None
    tool: _ChosenTool | None = None


class _ToolConfig(msgspec.Struct, rename="camel"):
    tools: list[_Tool] = msgspec.field(default_factory=list)
    tool_choice: _Choice | None = None


class _Request(msgspec.Struct, rename="camel"):
    inference_config: _Inference = msgspec.field(default_factory=_Inference)
    tool_config: _ToolConfig | None = None
    additional_model_request_fields: dict[str, Any] = msgspec.field(default_factory=dict)


def decode_options(parameters: dict[str, Any]) -> Options:
    """Decode the fields of a Converse request beside its messages."""
    try:
        request = msgspec.convert(parameters, _Request)
    except (msgspec.ValidationError, RecursionError) as error:
        raise MalformedError(f"not a request of Converse's: {error}") from error
    said = request.inference_config
    config = request.tool_config
    own = dict(request.additional_model_request_fields)
    return Options(
        max_tokens=said.max_tokens,
        temperature=said.temperature,
        top_p=said.top_p,
        top_k=own.pop("top_k") if isinstance(own.get("top_k"), int) else None,
        stop=said.stop_sequences,
        tools=None if config is None else _decode_tools(config.tools),
        tool_choice=None if config is None else _decode_choice(config.tool_choice),
        reasoning=_decode_reasoning(own),
        extra=_decode_extra(parameters, own),
    )


def _decode_tools(tools: list[_Tool]) -> tuple[AnyTool, ...]:
    decoded: list[AnyTool] = []
    for tool in tools:
        last = decoded[-1] if decoded else None
        if tool.tool_spec is not None:
            decoded.append(_decode_tool(tool.tool_spec))
        elif tool.system_tool is not None:
            name = str(tool.system_tool.get("name", ""))
            raw = {"systemTool": tool.system_tool}
            decoded.append(ForeignTool(dialect="bedrock", name=name, raw=raw))
        elif tool.cache_point is not None and isinstance(last, Tool):
            decoded[-1] = msgspec.structs.replace(last, cache=tool.cache_point)
    return tuple(decoded)


def _decode_tool(spec: _ToolSpec) -> Tool:
    return Tool(
        name=spec.name,
        description=spec.description,
        schema=spec.input_schema.json,
        strict=spec.strict,
    )


def _decode_choice(choice: _Choice | None) -> ToolChoice | None:
    if choice is None:
        return None
    if choice.tool is not None:
        return ToolChoice(kind="tool", name=choice.tool.name)
    return ToolChoice(kind="auto" if choice.any is None else "any")


def _decode_reasoning(own: Block) -> Reasoning | None:
    thinking = own.get("thinking")
    if not isinstance(thinking, dict):
        return None
    budget = thinking.get("budget_tokens")
    return Reasoning(
        enabled=thinking.get("type") != "disabled",
        budget_tokens=budget if isinstance(budget, int) else None,
        dialect="bedrock",
        raw=own.pop("thinking"),
    )


def _decode_extra(parameters: Block, own: Block) -> Block:
    named = ("inferenceConfig", "toolConfig", "additionalModelRequestFields")
    extra = {key: value for key, value in parameters.items() if key not in named}
    if "anthropic_beta" in own:
        extra["betas"] = own.pop("anthropic_beta")
    if extra.get("additionalModelResponseFieldPaths") == [MATCHED_STOP]:
        del extra["additionalModelResponseFieldPaths"]
    return extra | ({"additionalModelRequestFields": own} if own else {})


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
UNSAID = {"service_tier": "auto"}


def encode_options(
    options: Options, *, model: str, history_has_tools: bool = False
) -> tuple[dict[str, Any], tuple[Notice, ...]]:
    """Encode options for a model, with notices for what it does not accept.

    A tool choice of none drops the tools, unless the history has tools: Converse then requires
    them.
    """
    notes = Notes()
    known = features(model)
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
        body["additionalModelRequestFields"] = {
            **body.get("additionalModelRequestFields", {}),
            **more,
        }
    if options.output is not None:
        _add_output(body, options.output, known, notes)
    if options.stop and known.claude:
        body.setdefault("additionalModelResponseFieldPaths", [MATCHED_STOP])
    _note_unsaid(options, notes)
    return body, notes.notices()


def _fitted(options: Options, known: Features, model: str, notes: Notes) -> tuple[Options, Block]:
    """Apply the rules of Claude models; returns the options, and thinking in Claude's fields."""
    if not known.claude:
        if options.reasoning is not None and options.reasoning.enabled:
            why = "this model cannot be asked to think"
            notes.add("thinking_disabled", "thinking", why)
        return options, {}
    asked = _asked(options, model)
    noticed = NoticeCollector()
    fitted = fit(asked, model, noticed)
    notes.extend(noticed)
    choice = options.tool_choice
    if fitted.get("tool_choice") != asked.get("tool_choice"):
        choice = ToolChoice(kind="auto")
    sampling = {name: fitted.get(name) for name in SAMPLING}
    asked_of = ("thinking", "output_config")
    thinking: Block = {name: fitted[name] for name in asked_of if name in fitted}
    if thinking.get("thinking") == DISABLED != asked.get("thinking"):
        del thinking["thinking"]
    limit = fitted["max_tokens"] if _has_budget(thinking) else options.max_tokens
    return (
        msgspec.structs.replace(options, max_tokens=limit, tool_choice=choice, **sampling),
        thinking,
    )


def _has_budget(fields: Block) -> bool:
    """Whether thinking has a budget, which must be below the limit."""
    thinking = fields.get("thinking")
    return isinstance(thinking, dict) and thinking.get("type") == "enabled"


def _asked(options: Options, model: str) -> Block:
    """Return what Claude's rules concern, in the Messages API's fields."""
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
    if reasoning.raw is None or reasoning.dialect not in ("anthropic", "bedrock"):
        return asked | asked_thinking(reasoning, model)
    if reasoning.raw:
        asked["thinking"] = reasoning.raw
    if reasoning.effort is not None:
        asked["output_config"] = {"effort": reasoning.effort}
    return asked


def _inference(options: Options, notes: Notes) -> Iterator[tuple[str, Any]]:
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
    options: Options, known: Features, notes: Notes, *, history_has_tools: bool
) -> Block | None:
    choice = options.tool_choice
    if not options.tools:
        if choice is not None:
            why = "there are no tools to choose from"
            notes.add("tool_choice_left_out", "tool_choice", why)
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


def _encode_tools(tools: tuple[AnyTool, ...], known: Features, notes: Notes) -> Iterator[Block]:
    for tool in tools:
        if isinstance(tool, ForeignTool):
            if tool.dialect != "bedrock":
                raise NotExpressibleError(
                    f"the tool {tool.name!r} exists only in {tool.dialect}'s protocol: "
                    "leave it out, or ask a model there."
                )
            yield tool.raw
            continue
        yield _encode_tool(tool, known, notes)
        if tool.cache is not None:
            yield encode_mark(tool.cache)


def _encode_tool(tool: Tool, known: Features, notes: Notes) -> Block:
    spec: Block = {"name": tool.name}
    if tool.description:
        spec["description"] = tool.description
    spec["inputSchema"] = {"json": {"type": "object", **tool.schema}}
    if tool.strict and known.json_schema:
        spec["strict"] = True
    path = f"tools.{shortened(tool.name)}"
    if tool.strict and not known.json_schema:
        notes.add("field_left_out", f"{path}.strict", "this model has no strict tools")
    for name in tool.extra:
        notes.add("field_left_out", f"{path}.{name}", f"Bedrock's tools have no {name}")
    return {"toolSpec": spec}


def _encode_choice(choice: ToolChoice, known: Features, notes: Notes) -> Block:
    word = choice.kind
    if word in known.choices:
        return {"toolChoice": {word: {"name": choice.name or ""} if word == "tool" else {}}}
    if word != "auto":
        notes.add("tool_choice_left_out", "tool_choice", f"this model cannot be told {word!r}")
    return {}


def _own_fields(options: Options, notes: Notes) -> Block:
    for name in options.extra:
        said = name not in UNSAID or options.extra[name] != UNSAID[name]
        if said and name not in (*OWN_FIELDS, "betas"):
            notes.add("field_left_out", name, f"Bedrock has no field {name}")
    return {name: options.extra[name] for name in OWN_FIELDS if name in options.extra}


def _model_fields(options: Options, known: Features, notes: Notes) -> Block:
    """Return the fields of the model family, which are not Converse's own."""
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


def _encode_betas(betas: list[Any], known: Features, notes: Notes) -> Block:
    kept: list[str] = []
    for beta in betas:
        if known.claude and isinstance(beta, str) and beta in BETAS:
            kept.append(beta)
        else:
            notes.add("beta_left_out", "betas", f"Bedrock does not know the beta flag {beta!r}")
    return {"anthropic_beta": kept} if kept else {}


def _add_output(body: Block, output: JsonOutput, known: Features, notes: Notes) -> None:
    if output.schema is None or not known.json_schema:
        notes.add("field_left_out", "response_format", "this model cannot be held to JSON this way")
        return
    schema: Block = {"schema": msgspec.json.encode(output.schema).decode()}
    if output.name:
        schema["name"] = output.name
    form = {"type": "json_schema", "structure": {"jsonSchema": schema}}
    body["outputConfig"] = {**body.get("outputConfig", {}), "textFormat": form}


def _note_unsaid(options: Options, notes: Notes) -> None:
    if options.parallel_tool_calls is False:
        notes.add("field_left_out", "parallel_tool_calls", "Bedrock cannot forbid parallel calls")
    for name in ("seed", "user"):
        if getattr(options, name) is not None:
            notes.add("field_left_out", name, f"Bedrock has no {name}")

"""Decodes and encodes parameters of Chat Completions, with notices about them."""

import re
from typing import Any

import msgspec

from cllm.core.message import CacheMark
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
from cllm.wire.errors import NotExpressibleError
from cllm.wire.messages import NoticeMerger, convert
from cllm.wire.openai.models import LIMIT, LIMIT_OF_REASONERS, fit_fields, is_default
from cllm.wire.reasoning import EFFORT_ORDER

MAX_STOP = 4

SENTENCES = {
    "blank": (
        "reasoning_filled",
        "The provider refuses a tool call without reasoning in thinking mode; a blank is sent.",
    ),
    "block": ("part_left_out", "OpenAI has no block of this type; it is not sent."),
    "cache_control": (
        "cache_mark_left_out",
        "OpenAI has no `cache_control`; it caches automatically.",
    ),
    "document_name": (
        "document_name_left_out",
        "A plain-text document is sent as text, without its name.",
    ),
    "effort_changed": (
        "effort_changed",
        "This model does not support this effort; the nearest one is sent.",
    ),
    "error_flag": (
        "error_flag_left_out",
        "OpenAI's tool messages have no error flag; only the text is sent.",
    ),
    "field": ("field_left_out", "OpenAI has no such field."),
    "media_moved": (
        "media_moved",
        "OpenAI's tool messages contain text only; other parts are sent in a user message.",
    ),
    "message": ("message_left_out", "No part of this message can be sent to OpenAI."),
    "parallel_without_tools": (
        "parameter_left_out",
        "OpenAI accepts this parameter only with tools.",
    ),
    "parameter_left_out": (
        "parameter_left_out",
        "This model does not accept this parameter while it reasons.",
    ),
    "part": ("part_left_out", "OpenAI accepts no such part in a message of this role."),
    "reasoning": (
        "thinking_left_out",
        "The provider does not accept this past reasoning; it is not sent.",
    ),
    "encrypted": (
        "thinking_left_out",
        "Encrypted thinking can be read only by the provider that wrote it; it is not sent.",
    ),
    "signature": (
        "signature_left_out",
        "A signature is valid only at the provider that wrote it; the thinking is sent as text.",
    ),
    "stop": (
        "parameter_changed",
        f"OpenAI accepts at most {MAX_STOP} stop sequences; the others are not sent.",
    ),
    "thinking": (
        "thinking_left_out",
        "The provider does not accept past thinking; it is not sent.",
    ),
    "thinking_changed": (
        "thinking_changed",
        "OpenAI has efforts instead of token budgets; the nearest effort is sent.",
    ),
    "thinking_disabled": (
        "thinking_disabled",
        "This model does not support this reasoning setting.",
    ),
    "thinking_kept": (
        "thinking_kept",
        "This model always reasons; the lowest effort is sent.",
    ),
    "tool_choice_without_tools": (
        "tool_choice_left_out",
        "OpenAI accepts this parameter only with tools.",
    ),
}


Fields = dict[str, Any]

MAX_CALL_ID = 40

COMPLETION_TOKENS = re.compile(r"(?:.*/)?gpt-\d[\d.]*-chat")
NO_REASONING = re.compile(r"(?:.*/)?(?:gpt-3|gpt-4|chatgpt-|gpt-5[\d.]*-chat)")
DEFAULT_BUDGET = 8_192
EFFORT_OF_BUDGET = ((2_048, "low"), (DEFAULT_BUDGET, "medium"))
CHOICES: dict[str, ToolChoiceKind] = {"auto": "auto", "none": "none", "required": "any"}
CHOICE_NAMES = {kind: name for name, kind in CHOICES.items()}
SERVICE_TIERS = ("auto", "default", "flex", "scale", "priority", "fast")
OWN_FIELDS = frozenset(
    {
        "audio",
        "frequency_penalty",
        "function_call",
        "functions",
        "logit_bias",
        "logprobs",
        "metadata",
        "modalities",
        "moderation",
        "n",
        "prediction",
        "presence_penalty",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "response_format",
        "safety_identifier",
        "service_tier",
        "store",
        "stream_options",
        "tool_choice",
        "top_logprobs",
        "verbosity",
        "web_search_options",
    }
)
NOTICES_WITHOUT_TOOLS = {
    "parallel_tool_calls": "parallel_without_tools",
    "tool_choice": "tool_choice_without_tools",
}


class _ConvertedFields(msgspec.Struct):
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    stop: str | list[str] | None = None
    tools: list[Fields] | None = None
    tool_choice: str | Fields | None = None
    parallel_tool_calls: bool | None = None
    response_format: Fields | None = None
    reasoning_effort: str | None = None
    seed: int | None = None
    user: str | None = None


class _AcceptedTypes(msgspec.Struct):
    """The types that OpenAI accepts; an integer may be written `1e2`."""

    max_tokens: float | None = None
    max_completion_tokens: float | None = None
    temperature: float | None = None
    top_p: float | None = None
    stop: str | list[str] | None = None
    tools: list[Fields] | None = None
    tool_choice: str | Fields | None = None
    response_format: Fields | None = None


class _Function(msgspec.Struct):
    name: str
    description: str | None = None
    parameters: Fields | None = None
    strict: bool | None = None


class _JsonSchema(msgspec.Struct):
    name: str | None = None
    description: str | None = None
    schema: Fields | None = None
    strict: bool | None = None


CONVERTED_FIELDS = frozenset(_ConvertedFields.__struct_fields__)
FUNCTION_FIELDS = frozenset(_Function.__struct_fields__)


def decode_options(parameters: Fields) -> RequestOptions:
    """Decode request parameters; null counts as absent."""
    fields = convert(parameters, _ConvertedFields)
    extra = {
        name: value
        for name, value in parameters.items()
        if name not in CONVERTED_FIELDS and value is not None and not is_default(name, value)
    }
    choice = _decode_choice(fields.tool_choice)
    if choice is None and fields.tool_choice is not None:
        extra["tool_choice"] = fields.tool_choice
    output = _decode_format(fields.response_format)
    if output is None and (fields.response_format or {}).get("type", "text") != "text":
        extra["response_format"] = fields.response_format
    limit, stop, tools = fields.max_completion_tokens, fields.stop, None
    if fields.tools is not None:
        tools = tuple(_decode_tool(tool, f"tools[{n}]") for n, tool in enumerate(fields.tools))
    return RequestOptions(
        max_tokens=fields.max_tokens if limit is None else limit,
        temperature=fields.temperature,
        top_p=fields.top_p,
        top_k=fields.top_k,
        stop=None if stop is None else (stop,) if isinstance(stop, str) else tuple(stop),
        tools=tools,
        tool_choice=choice,
        parallel_tool_calls=fields.parallel_tool_calls,
        output=output,
        reasoning=_decode_effort(fields.reasoning_effort),
        seed=fields.seed,
        user=fields.user,
        extra=extra,
    )


def check_parameters(parameters: Fields) -> None:
    """Raise FieldError for a parameter of a type that OpenAI refuses."""
    accepted = convert(parameters, _AcceptedTypes)
    for index, tool in enumerate(accepted.tools or ()):
        if tool.get("type") == "function":
            convert(tool.get("function"), _Function, f"tools[{index}].function")


def _decode_tool(tool: Fields, path: str) -> AnyTool:
    if tool.get("type", "function") != "function":
        inner = tool.get(str(tool["type"]))
        name = inner.get("name") if isinstance(inner, dict) else None
        return ForeignTool(dialect="openai", name=str(name or tool["type"]), raw=tool)
    function = convert(tool.get("function"), _Function, f"{path}.function")
    extra = {name: value for name, value in tool["function"].items() if name not in FUNCTION_FIELDS}
    extra |= {name: tool[name] for name in tool if name not in ("type", "function")}
    return Tool(
        name=function.name,
        description=function.description,
        schema=function.parameters or {},
        strict=function.strict,
        cache=_pop_cache_control(extra),
        extra=extra,
    )


def _pop_cache_control(extra: Fields) -> CacheMark | None:
    value = extra.get("cache_control")
    if not isinstance(value, dict) or not set(value) <= {"type", "ttl"}:
        return None
    del extra["cache_control"]
    ttl = value.get("ttl")
    return CacheMark(ttl=ttl if isinstance(ttl, str) else None)


def _decode_choice(choice: str | Fields | None) -> ToolChoice | None:
    if isinstance(choice, str):
        return ToolChoice(kind=CHOICES[choice]) if choice in CHOICES else None
    function = (choice or {}).get("function")
    name = function.get("name") if isinstance(function, dict) else None
    return ToolChoice(kind="tool", name=name) if isinstance(name, str) else None


def _decode_format(response_format: Fields | None) -> JsonOutput | None:
    kind = (response_format or {}).get("type")
    if response_format is None or kind not in ("json_object", "json_schema"):
        return None
    if kind == "json_object":
        return JsonOutput()
    json_schema = convert(
        response_format.get("json_schema"), _JsonSchema, "response_format.json_schema"
    )
    schema = json_schema.schema or {}
    if json_schema.description is not None:
        schema = {"description": json_schema.description, **schema}
    return JsonOutput(schema=schema, name=json_schema.name, strict=json_schema.strict)


def _decode_effort(effort: str | None) -> Reasoning | None:
    if effort is None:
        return None
    enabled = effort != "none"
    raw = {"reasoning_effort": effort}
    return Reasoning(enabled=enabled, effort=effort if enabled else None, dialect="openai", raw=raw)


def encode_options(options: RequestOptions, *, model: str) -> tuple[Fields, tuple[Notice, ...]]:
    """Encode options for a model, with notices about options that it does not accept."""
    notes = NoticeMerger(SENTENCES)
    limit = LIMIT_OF_REASONERS if COMPLETION_TOKENS.match(model) else LIMIT
    if len(options.stop or ()) > MAX_STOP:
        notes.report("stop", f"stop[{MAX_STOP}]")
    fields: Fields = {
        limit: options.max_tokens,
        "temperature": options.temperature,
        "top_p": options.top_p,
        "stop": list(options.stop[:MAX_STOP]) if options.stop else None,
        **_encode_tool_use(options, notes),
        "response_format": _encode_format(options.output),
        "reasoning_effort": _encode_effort(options.reasoning, model, notes),
        "seed": options.seed,
        "user": options.user,
        **_encode_extra(options, notes),
    }
    if options.top_k is not None:
        notes.report("field", "top_k", subject="top_k")
    present = {name: value for name, value in fields.items() if value is not None}
    return _fit(present, model, notes), notes.notices()


def fit_parameters(parameters: Fields, *, model: str) -> tuple[Fields, tuple[Notice, ...]]:
    """Fit OpenAI parameters to a model; the same object if nothing changes."""
    notes = NoticeMerger(SENTENCES)
    return _fit(parameters, model, notes), notes.notices()


def _fit(parameters: Fields, model: str, notes: NoticeMerger) -> Fields:
    result, changes = fit_fields(parameters, model)
    for code, name in changes:
        notes.report(code, name, subject=name)
    return result


def _encode_tool_use(options: RequestOptions, notes: NoticeMerger) -> Fields:
    tools = [_encode_tool(tool, n, notes) for n, tool in enumerate(options.tools or ())]
    choice_fields = {
        "tool_choice": _encode_choice(options.tool_choice),
        "parallel_tool_calls": options.parallel_tool_calls,
    }
    if tools:
        return {"tools": tools, **choice_fields}
    for name, value in choice_fields.items():
        if value is not None:
            notes.report(NOTICES_WITHOUT_TOOLS[name], name, subject=name)
    return {}


def _encode_tool(tool: AnyTool, index: int, notes: NoticeMerger) -> Fields:
    path = f"tools[{index}]"
    if isinstance(tool, ForeignTool):
        if tool.dialect != "openai":
            raise NotExpressibleError(
                f"{path}: only {tool.api} has the tool {tool.name}: remove it"
            )
        return tool.raw
    if tool.cache is not None:
        notes.report("cache_control", path)
    for name in tool.extra:
        notes.report("field", f"{path}.{name}", subject=name)
    function = {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.schema or {"type": "object", "properties": {}},
        "strict": tool.strict,
    }
    present = {name: value for name, value in function.items() if value is not None}
    return {"type": "function", "function": present}


def _encode_choice(choice: ToolChoice | None) -> str | Fields | None:
    if choice is None:
        return None
    if choice.kind == "tool":
        return {"type": "function", "function": {"name": choice.name or ""}}
    return CHOICE_NAMES[choice.kind]


def _encode_format(output: JsonOutput | None) -> Fields | None:
    if output is None:
        return None
    if output.schema is None:
        return {"type": "json_object"}
    schema: Fields = {"name": output.name or "answer", "schema": output.schema}
    if output.strict is not None:
        schema["strict"] = output.strict
    return {"type": "json_schema", "json_schema": schema}


def _encode_effort(reasoning: Reasoning | None, model: str, notes: NoticeMerger) -> str | None:
    if reasoning is None:
        return None
    if NO_REASONING.match(model):
        if reasoning.enabled:
            notes.report("thinking_disabled", "reasoning")
        return None
    if not reasoning.enabled:
        return "none"
    if reasoning.effort is None:
        notes.report("thinking_changed", "reasoning")
        budget_tokens = reasoning.budget_tokens
        budget = DEFAULT_BUDGET if budget_tokens is None else budget_tokens
        return next((effort for limit, effort in EFFORT_OF_BUDGET if budget <= limit), "high")
    if reasoning.effort not in EFFORT_ORDER:
        notes.report("thinking_disabled", "reasoning.effort")
        return None
    return reasoning.effort


def _encode_extra(options: RequestOptions, notes: NoticeMerger) -> Fields:
    fields = {}
    for name, value in options.extra.items():
        if name in OWN_FIELDS and (name != "service_tier" or value in SERVICE_TIERS):
            fields[name] = value
        else:
            notes.report("field", name, subject=name)
    return fields

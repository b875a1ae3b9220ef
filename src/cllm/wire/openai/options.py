"""Parameters of Chat Completions: between JSON and options, with the notices about them."""

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
from cllm.wire.openai.models import LIMIT, LIMIT_OF_REASONERS, fit, says_nothing
from cllm.wire.reasoning import EFFORT_ORDER

MAX_STOP = 4

SENTENCES = {
    "blank": (
        "reasoning_filled",
        "In its thinking mode the provider refuses a tool call without reasoning; blank is sent.",
    ),
    "block": ("part_left_out", "A block of a kind that OpenAI does not have was left out."),
    "cache_mark": ("cache_mark_left_out", "OpenAI has no cache marks; it caches by itself."),
    "document": ("part_left_out", "OpenAI takes documents as data or by its own file id only."),
    "document_name": (
        "document_name_left_out",
        "A document of plain text is sent as text, without its name.",
    ),
    "effort_changed": (
        "effort_changed",
        "This model does not take that effort; the nearest is asked for.",
    ),
    "error_flag": (
        "error_flag_left_out",
        "A tool message cannot say that a tool failed; only its text is sent.",
    ),
    "field": ("field_left_out", "OpenAI has no such field."),
    "image": ("part_left_out", "An image needs a URL, or data and a media type."),
    "media_moved": (
        "media_moved",
        "OpenAI's tool messages hold text only; the rest follows in a user message.",
    ),
    "message": ("message_left_out", "Nothing of a message can be said to OpenAI."),
    "parallel_without_tools": (
        "parameter_left_out",
        "OpenAI takes this only together with tools.",
    ),
    "parameter_left_out": (
        "parameter_left_out",
        "This model does not take that parameter while it thinks.",
    ),
    "part": ("part_left_out", "A message of this role cannot hold such a part at OpenAI."),
    "reasoning": (
        "thinking_left_out",
        "The provider does not take this past reasoning back; it is not sent.",
    ),
    "sealed": (
        "thinking_left_out",
        "Sealed thinking can be read only by the provider that wrote it; it is not sent.",
    ),
    "signature": (
        "signature_left_out",
        "A signature is valid only at the provider that wrote it; the thinking is sent as text.",
    ),
    "stop": ("parameter_changed", f"OpenAI takes at most {MAX_STOP} stop sequences, not more."),
    "thinking": (
        "thinking_left_out",
        "The provider takes no past thinking back; it is not sent.",
    ),
    "thinking_changed": (
        "thinking_changed",
        "OpenAI knows efforts, not budgets; the nearest effort is asked for.",
    ),
    "thinking_disabled": ("thinking_disabled", "This model cannot be asked to think so."),
    "thinking_kept": (
        "thinking_kept",
        "This model cannot be kept from thinking; the least effort is asked for.",
    ),
    "tool_choice_without_tools": (
        "tool_choice_left_out",
        "OpenAI takes this only together with tools.",
    ),
    "url_document": (
        "part_changed",
        "OpenAI takes no document by its address; the address is sent as text.",
    ),
}


Fields = dict[str, Any]

MAX_CALL_ID = 40

COMPLETION_TOKENS = re.compile(r"(?:.*/)?gpt-\d[\d.]*-chat")
NO_REASONING = re.compile(r"(?:.*/)?(?:gpt-3|gpt-4|chatgpt-|gpt-5[\d.]*-chat)")
DEFAULT_BUDGET = 8_192
EFFORT_OF_BUDGET = ((2_048, "low"), (DEFAULT_BUDGET, "medium"))
CHOICES: dict[str, ToolChoiceKind] = {"auto": "auto", "none": "none", "required": "any"}
CHOICE_WORDS = {kind: word for word, kind in CHOICES.items()}
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
WITHOUT_TOOLS = {
    "parallel_tool_calls": "parallel_without_tools",
    "tool_choice": "tool_choice_without_tools",
}


class _Known(msgspec.Struct):
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


class _Taken(msgspec.Struct):
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


KNOWN = frozenset(_Known.__struct_fields__)
FUNCTION = frozenset(_Function.__struct_fields__)


def decode_options(parameters: Fields) -> RequestOptions:
    """Decode request parameters; null counts as absent."""
    known = convert(parameters, _Known)
    extra = {
        name: value
        for name, value in parameters.items()
        if name not in KNOWN and value is not None and not says_nothing(name, value)
    }
    choice = _decode_choice(known.tool_choice)
    if choice is None and known.tool_choice is not None:
        extra["tool_choice"] = known.tool_choice
    output = _decode_format(known.response_format)
    if output is None and (known.response_format or {}).get("type", "text") != "text":
        extra["response_format"] = known.response_format
    limit, stop, tools = known.max_completion_tokens, known.stop, None
    if known.tools is not None:
        tools = tuple(_decode_tool(tool, f"tools[{n}]") for n, tool in enumerate(known.tools))
    return RequestOptions(
        max_tokens=known.max_tokens if limit is None else limit,
        temperature=known.temperature,
        top_p=known.top_p,
        top_k=known.top_k,
        stop=None if stop is None else (stop,) if isinstance(stop, str) else tuple(stop),
        tools=tools,
        tool_choice=choice,
        parallel_tool_calls=known.parallel_tool_calls,
        output=output,
        reasoning=_decode_effort(known.reasoning_effort),
        seed=known.seed,
        user=known.user,
        extra=extra,
    )


def check_parameters(parameters: Fields) -> None:
    """Raise FieldError for a parameter of a type that OpenAI refuses."""
    taken = convert(parameters, _Taken)
    for index, tool in enumerate(taken.tools or ()):
        if tool.get("type") == "function":
            convert(tool.get("function"), _Function, f"tools[{index}].function")


def _decode_tool(tool: Fields, path: str) -> AnyTool:
    if tool.get("type", "function") != "function":
        inner = tool.get(str(tool["type"]))
        name = inner.get("name") if isinstance(inner, dict) else None
        return ForeignTool(dialect="openai", name=str(name or tool["type"]), raw=tool)
    function = convert(tool.get("function"), _Function, f"{path}.function")
    extra = {name: value for name, value in tool["function"].items() if name not in FUNCTION}
    extra |= {name: tool[name] for name in tool if name not in ("type", "function")}
    return Tool(
        name=function.name,
        description=function.description,
        schema=function.parameters or {},
        strict=function.strict,
        cache=_take_mark(extra),
        extra=extra,
    )


def _take_mark(extra: Fields) -> CacheMark | None:
    mark = extra.get("cache_control")
    if not isinstance(mark, dict) or not set(mark) <= {"type", "ttl"}:
        return None
    del extra["cache_control"]
    ttl = mark.get("ttl")
    return CacheMark(ttl=ttl if isinstance(ttl, str) else None)


def _decode_choice(choice: str | Fields | None) -> ToolChoice | None:
    if isinstance(choice, str):
        return ToolChoice(kind=CHOICES[choice]) if choice in CHOICES else None
    function = (choice or {}).get("function")
    name = function.get("name") if isinstance(function, dict) else None
    return ToolChoice(kind="tool", name=name) if isinstance(name, str) else None


def _decode_format(form: Fields | None) -> JsonOutput | None:
    kind = (form or {}).get("type")
    if form is None or kind not in ("json_object", "json_schema"):
        return None
    if kind == "json_object":
        return JsonOutput()
    given = convert(form.get("json_schema"), _JsonSchema, "response_format.json_schema")
    schema = given.schema or {}
    if given.description is not None:
        schema = {"description": given.description, **schema}
    return JsonOutput(schema=schema, name=given.name, strict=given.strict)


def _decode_effort(effort: str | None) -> Reasoning | None:
    if effort is None:
        return None
    enabled = effort != "none"
    raw = {"reasoning_effort": effort}
    return Reasoning(enabled=enabled, effort=effort if enabled else None, dialect="openai", raw=raw)


def encode_options(options: RequestOptions, *, model: str) -> tuple[Fields, tuple[Notice, ...]]:
    """Encode options for a model, with notices for what it does not accept."""
    notes = NoticeMerger(SENTENCES)
    limit = LIMIT_OF_REASONERS if COMPLETION_TOKENS.match(model) else LIMIT
    if len(options.stop or ()) > MAX_STOP:
        notes.report("stop", f"stop[{MAX_STOP}]")
    said: Fields = {
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
    given = {name: value for name, value in said.items() if value is not None}
    return _fit(given, model, notes), notes.notices()


def fit_parameters(parameters: Fields, *, model: str) -> tuple[Fields, tuple[Notice, ...]]:
    """Fit OpenAI parameters to a model; the same object if nothing changes."""
    notes = NoticeMerger(SENTENCES)
    return _fit(parameters, model, notes), notes.notices()


def _fit(parameters: Fields, model: str, notes: NoticeMerger) -> Fields:
    fitted, changes = fit(parameters, model)
    for code, name in changes:
        notes.report(code, name, subject=name)
    return fitted


def _encode_tool_use(options: RequestOptions, notes: NoticeMerger) -> Fields:
    tools = [_encode_tool(tool, n, notes) for n, tool in enumerate(options.tools or ())]
    about = {
        "tool_choice": _encode_choice(options.tool_choice),
        "parallel_tool_calls": options.parallel_tool_calls,
    }
    if tools:
        return {"tools": tools, **about}
    for name, value in about.items():
        if value is not None:
            notes.report(WITHOUT_TOOLS[name], name, subject=name)
    return {}


def _encode_tool(tool: AnyTool, index: int, notes: NoticeMerger) -> Fields:
    path = f"tools[{index}]"
    if isinstance(tool, ForeignTool):
        if tool.dialect != "openai":
            raise NotExpressibleError(f"{path}: OpenAI has no tool like '{tool.name}'")
        return tool.raw
    if tool.cache is not None:
        notes.report("cache_mark", path)
    for name in tool.extra:
        notes.report("field", f"{path}.{name}", subject=name)
    function = {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.schema or {"type": "object", "properties": {}},
        "strict": tool.strict,
    }
    said = {name: value for name, value in function.items() if value is not None}
    return {"type": "function", "function": said}


def _encode_choice(choice: ToolChoice | None) -> str | Fields | None:
    if choice is None:
        return None
    if choice.kind == "tool":
        return {"type": "function", "function": {"name": choice.name or ""}}
    return CHOICE_WORDS[choice.kind]


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
        given = reasoning.budget_tokens
        budget = DEFAULT_BUDGET if given is None else given
        return next((effort for limit, effort in EFFORT_OF_BUDGET if budget <= limit), "high")
    if reasoning.effort not in EFFORT_ORDER:
        notes.report("thinking_disabled", "reasoning.effort")
        return None
    return reasoning.effort


def _encode_extra(options: RequestOptions, notes: NoticeMerger) -> Fields:
    said = {}
    for name, value in options.extra.items():
        if name in OWN_FIELDS and (name != "service_tier" or value in SERVICE_TIERS):
            said[name] = value
        else:
            notes.report("field", name, subject=name)
    return said

"""Converts parameters of the Responses API to and from those of Chat Completions.

This API is flat where Chat Completions nests, and some names differ.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from cllm.core.message import Dialect
from cllm.core.notice import Notice
from cllm.core.options import AnyTool, ForeignTool, RequestOptions
from cllm.wire.errors import FieldError
from cllm.wire.messages import NoticeMerger
from cllm.wire.openai import options as openai_options
from cllm.wire.openai.options import Fields
from cllm.wire.responses.custom_tools import CUSTOM, to_function
from cllm.wire.responses.parts import DIALECT

MIN_OUTPUT_TOKENS = 16
LOGPROBS = "message.output_text.logprobs"
SENTENCES = {
    **openai_options.SENTENCES,
    "field": ("field_left_out", "OpenAI's Responses API has no such field."),
    "limit": (
        "parameter_changed",
        f"The Responses API requires a limit of at least {MIN_OUTPUT_TOKENS} tokens.",
    ),
    "thinking": (
        "thinking_left_out",
        "This model does not accept this past thinking; it is not sent.",
    ),
}

# Types that Chat Completions nests and this API does not.
NESTED_TYPES = ("allowed_tools", "custom", "function", "grammar", "json_schema")
SHARED_FIELDS = frozenset(
    {
        "metadata",
        "moderation",
        "parallel_tool_calls",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "safety_identifier",
        "service_tier",
        "store",
        "temperature",
        "top_logprobs",
        "top_p",
        "user",
    }
)
# Fields that only this API has.
RESPONSES_FIELDS = frozenset(
    {
        "access_programs",
        "background",
        "context_management",
        "conversation",
        "image",
        "include",
        "max_tool_calls",
        "previous_response_id",
        "prompt",
        "reasoning",
        "text",
        "truncation",
    }
)
LIMITS = ("max_completion_tokens", "max_tokens")
# Fields of Chat Completions that have another form here.
CONVERTED_FIELDS = frozenset(
    {
        *LIMITS,
        "logprobs",
        "reasoning_effort",
        "response_format",
        "stream_options",
        "tool_choice",
        "tools",
        "verbosity",
    }
)
PATHS = (
    (".function", ""),
    ("response_format.json_schema", "text.format"),
    ("reasoning_effort", "reasoning.effort"),
    ("response_format", "text.format"),
    ("max_completion_tokens", "max_output_tokens"),
)


def decode_options(parameters: Fields) -> RequestOptions:
    """Decode request parameters; null counts as absent."""
    try:
        options = openai_options.decode_options(_to_chat(parameters))
    except FieldError as error:
        raise _rename_path(error) from error
    tools = _replace_dialect(options.tools, "openai", DIALECT)
    return msgspec.structs.replace(
        options, tools=None if tools is None else tuple(map(to_function, tools))
    )


def encode_options(options: RequestOptions, *, model: str) -> tuple[Fields, tuple[Notice, ...]]:
    """Encode options for a model, with notices about options that it does not accept."""
    responses_fields = {
        name: value for name, value in options.extra.items() if name in RESPONSES_FIELDS
    }
    shared = {name: value for name, value in options.extra.items() if name not in RESPONSES_FIELDS}
    chat, chat_notices = openai_options.encode_options(
        msgspec.structs.replace(
            options,
            extra=shared,
            tools=_replace_dialect(options.tools, DIALECT, "openai"),
        ),
        model=model,
    )
    notes = NoticeMerger(SENTENCES)
    return _from_chat(chat, responses_fields, notes), (*chat_notices, *notes.notices())


def _rename_path(error: FieldError) -> FieldError:
    path = error.path
    problem = str(error).removeprefix(f"{path}: ")
    for chat_name, name in PATHS:
        path = path.replace(chat_name, name)
    return FieldError(path, problem)


def _replace_dialect(
    tools: Iterable[AnyTool] | None, before: str, after: Dialect
) -> tuple[AnyTool, ...] | None:
    if tools is None:
        return None
    return tuple(
        msgspec.structs.replace(tool, dialect=after)
        if isinstance(tool, ForeignTool)
        and tool.dialect == before
        and tool.raw.get("type") not in NESTED_TYPES
        else tool
        for tool in tools
    )


def _to_chat(parameters: Fields) -> Fields:
    fields = {name: value for name, value in parameters.items() if value is not None}
    text, reasoning = _get_object(fields, "text"), _get_object(fields, "reasoning")
    chat = {name: value for name, value in fields.items() if name not in ("text", "reasoning")}
    moved = {
        "max_completion_tokens": chat.pop("max_output_tokens", None),
        "reasoning_effort": reasoning.pop("effort", None),
        "response_format": _nest(text.pop("format", None)),
        "verbosity": text.pop("verbosity", None),
        "tool_choice": _nest_choice(chat.pop("tool_choice", None)),
        "reasoning": reasoning or None,
        "text": text or None,
    }
    if isinstance(chat.get("tools"), list):
        chat["tools"] = [_nest(tool) for tool in chat["tools"]]
    return chat | {name: value for name, value in moved.items() if value is not None}


def _get_object(fields: Fields, name: str) -> Fields:
    value = fields.get(name, {})
    if not isinstance(value, dict):
        raise FieldError(name, "must be an object")
    return {inner: value[inner] for inner in value if value[inner] is not None}


def _nest(value: Any) -> Any:
    kind = value.get("type") if isinstance(value, dict) else None
    if kind not in NESTED_TYPES:
        return value
    fields = {name: inner for name, inner in value.items() if name != "type" and inner is not None}
    if kind == "custom" and "format" in fields:
        fields["format"] = _nest(fields["format"])
    return {"type": kind, kind: fields}


def _nest_choice(choice: Any) -> Any:
    if isinstance(choice, dict) and choice.get("type") == CUSTOM:
        choice = {**choice, "type": "function"}
    nested = _nest(choice)
    allowed = nested.get("allowed_tools") if isinstance(nested, dict) else None
    if isinstance(allowed, dict) and isinstance(allowed.get("tools"), list):
        allowed["tools"] = [_nest(tool) for tool in allowed["tools"]]
    return nested


def _from_chat(chat: Fields, responses_fields: Fields, notes: NoticeMerger) -> Fields:
    result = {name: value for name, value in chat.items() if name in SHARED_FIELDS}
    if chat.get("logprobs"):
        result["include"] = [*responses_fields.get("include", ()), LOGPROBS]
    for limit in (chat[name] for name in LIMITS if name in chat):
        if limit < MIN_OUTPUT_TOKENS:
            notes.report("limit", "max_output_tokens")
        result["max_output_tokens"] = max(limit, MIN_OUTPUT_TOKENS)
    if "reasoning_effort" in chat:
        result["reasoning"] = {
            "effort": chat["reasoning_effort"],
            **responses_fields.get("reasoning", {}),
        }
    if "response_format" in chat:
        result["text"] = {
            **responses_fields.get("text", {}),
            "format": _flatten(chat["response_format"]),
        }
    result |= _stream_options(chat.get("stream_options")) | _tool_use(chat)
    if "verbosity" in chat:
        text: Fields = result.get("text") or responses_fields.get("text") or {}
        result["text"] = {**text, "verbosity": chat["verbosity"]}
    for name in chat:
        if name not in SHARED_FIELDS and name not in CONVERTED_FIELDS:
            notes.report("field", name, subject=name)
    return {**responses_fields, **result}


def _stream_options(value: Any) -> Fields:
    """Drop include_usage: this API always sends the usage."""
    options = value if isinstance(value, dict) else {}
    rest = {name: value for name, value in options.items() if name != "include_usage"}
    return {"stream_options": rest} if rest else {}


def _tool_use(chat: Fields) -> Fields:
    result: Fields = {}
    if "tool_choice" in chat:
        choice = result["tool_choice"] = _flatten(chat["tool_choice"])
        if isinstance(choice, dict) and isinstance(choice.get("tools"), list):
            choice["tools"] = [_flatten(tool) for tool in choice["tools"]]
    if "tools" in chat:
        result["tools"] = tools = [_flatten(tool) for tool in chat["tools"]]
        for index, tool in enumerate(tools):
            if tool["type"] == "function" and "strict" not in tool:
                # Without it a tool is strict in this API, but not in others.
                tools[index] = {**tool, "strict": False}
    return result


def _flatten(value: Any) -> Any:
    kind = value.get("type") if isinstance(value, dict) else None
    inner = value.get(kind) if kind in NESTED_TYPES else None
    if not isinstance(inner, dict):
        return value
    flat = {"type": kind, **inner}
    return {**flat, "format": _flatten(flat["format"])} if "format" in flat else flat

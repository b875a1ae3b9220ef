"""Parameters of the Responses API, converted to and from those of Chat Completions.

This API is flat where Chat Completions nests, with some other names.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from cllm.core.notice import Notice
from cllm.core.options import AnyTool, ForeignTool, RequestOptions
from cllm.wire.errors import FieldError
from cllm.wire.messages import NoticeMerger
from cllm.wire.openai import options as openai_options
from cllm.wire.openai.options import Fields
from cllm.wire.responses.parts import DIALECT

MIN_OUTPUT_TOKENS = 16
LOGPROBS = "message.output_text.logprobs"
SENTENCES = {
    **openai_options.SENTENCES,
    "document": ("part_left_out", "A document needs data, a URL or a file id at OpenAI."),
    "field": ("field_left_out", "OpenAI's Responses API has no such field."),
    "image": ("part_left_out", "An image needs a URL, a file id, or data and a media type."),
    "limit": (
        "parameter_changed",
        f"The Responses API takes no limit below {MIN_OUTPUT_TOKENS} tokens.",
    ),
    "thinking": ("thinking_left_out", "Thinking that this model cannot take back was left out."),
}

# Types that Chat Completions nests and this API does not.
NESTED = ("allowed_tools", "custom", "function", "grammar", "json_schema")
SAME = frozenset(
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
OWN = frozenset(
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
CONVERTED = frozenset(
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
        options = openai_options.decode_options(_as_chat(parameters))
    except FieldError as error:
        raise _renamed(error) from error
    return msgspec.structs.replace(options, tools=_relabelled(options.tools, "openai", DIALECT))


def encode_options(options: RequestOptions, *, model: str) -> tuple[Fields, tuple[Notice, ...]]:
    """Encode options for a model, with notices for what it does not accept."""
    own = {name: value for name, value in options.extra.items() if name in OWN}
    shared = {name: value for name, value in options.extra.items() if name not in OWN}
    chat, noticed = openai_options.encode_options(
        msgspec.structs.replace(
            options, extra=shared, tools=_relabelled(options.tools, DIALECT, "openai")
        ),
        model=model,
    )
    notes = NoticeMerger(SENTENCES)
    return _from_chat(chat, own, notes), (*noticed, *notes.notices())


def _renamed(error: FieldError) -> FieldError:
    path = error.path
    problem = str(error).removeprefix(f"{path}: ")
    for there, here in PATHS:
        path = path.replace(there, here)
    return FieldError(path, problem)


def _relabelled(
    tools: Iterable[AnyTool] | None, before: str, after: str
) -> tuple[AnyTool, ...] | None:
    if tools is None:
        return None
    return tuple(
        msgspec.structs.replace(tool, dialect=after)
        if isinstance(tool, ForeignTool)
        and tool.dialect == before
        and tool.raw.get("type") not in NESTED
        else tool
        for tool in tools
    )


def _as_chat(parameters: Fields) -> Fields:
    said = {name: value for name, value in parameters.items() if value is not None}
    text, reasoning = _checked(said, "text"), _checked(said, "reasoning")
    chat = {name: value for name, value in said.items() if name not in ("text", "reasoning")}
    moved = {
        "max_completion_tokens": chat.pop("max_output_tokens", None),
        "reasoning_effort": reasoning.pop("effort", None),
        "response_format": _nested(text.pop("format", None)),
        "verbosity": text.pop("verbosity", None),
        "tool_choice": _nested_choice(chat.pop("tool_choice", None)),
        "reasoning": reasoning or None,
        "text": text or None,
    }
    if isinstance(chat.get("tools"), list):
        chat["tools"] = [_nested(tool) for tool in chat["tools"]]
    return chat | {name: value for name, value in moved.items() if value is not None}


def _checked(said: Fields, name: str) -> Fields:
    value = said.get(name, {})
    if not isinstance(value, dict):
        raise FieldError(name, "an object is needed")
    return {inner: value[inner] for inner in value if value[inner] is not None}


def _nested(value: Any) -> Any:
    kind = value.get("type") if isinstance(value, dict) else None
    if kind not in NESTED:
        return value
    fields = {name: inner for name, inner in value.items() if name != "type" and inner is not None}
    if kind == "custom" and "format" in fields:
        fields["format"] = _nested(fields["format"])
    return {"type": kind, kind: fields}


def _nested_choice(choice: Any) -> Any:
    nested = _nested(choice)
    allowed = nested.get("allowed_tools") if isinstance(nested, dict) else None
    if isinstance(allowed, dict) and isinstance(allowed.get("tools"), list):
        allowed["tools"] = [_nested(tool) for tool in allowed["tools"]]
    return nested


def _from_chat(chat: Fields, own: Fields, notes: NoticeMerger) -> Fields:
    said = {name: value for name, value in chat.items() if name in SAME}
    if chat.get("logprobs"):
        said["include"] = [*own.get("include", ()), LOGPROBS]
    for limit in (chat[name] for name in LIMITS if name in chat):
        if limit < MIN_OUTPUT_TOKENS:
            notes.report("limit", "max_output_tokens")
        said["max_output_tokens"] = max(limit, MIN_OUTPUT_TOKENS)
    if "reasoning_effort" in chat:
        said["reasoning"] = {"effort": chat["reasoning_effort"], **own.get("reasoning", {})}
    if "response_format" in chat:
        said["text"] = {**own.get("text", {}), "format": _flat(chat["response_format"])}
    said |= _stream_options(chat.get("stream_options")) | _tool_use(chat)
    if "verbosity" in chat:
        text: Fields = said.get("text") or own.get("text") or {}
        said["text"] = {**text, "verbosity": chat["verbosity"]}
    for name in chat:
        if name not in SAME and name not in CONVERTED:
            notes.report("field", name, subject=name)
    return {**own, **said}


def _stream_options(given: Any) -> Fields:
    """Drop include_usage: this API always sends the usage."""
    options = given if isinstance(given, dict) else {}
    rest = {name: value for name, value in options.items() if name != "include_usage"}
    return {"stream_options": rest} if rest else {}


def _tool_use(chat: Fields) -> Fields:
    said: Fields = {}
    if "tool_choice" in chat:
        choice = said["tool_choice"] = _flat(chat["tool_choice"])
        if isinstance(choice, dict) and isinstance(choice.get("tools"), list):
            choice["tools"] = [_flat(tool) for tool in choice["tools"]]
    if "tools" in chat:
        said["tools"] = tools = [_flat(tool) for tool in chat["tools"]]
        for index, tool in enumerate(tools):
            if tool["type"] == "function" and "strict" not in tool:
                # Without it a tool is strict here, and is not elsewhere.
                tools[index] = {**tool, "strict": False}
    return said


def _flat(value: Any) -> Any:
    kind = value.get("type") if isinstance(value, dict) else None
    inner = value.get(kind) if kind in NESTED else None
    if not isinstance(inner, dict):
        return value
    flat = {"type": kind, **inner}
    return {**flat, "format": _flat(flat["format"])} if "format" in flat else flat

"""Parameters of the Responses API, converted to and from those of Chat Completions.

The two APIs have the same options; this one is flat where Chat Completions nests, with some other
names. `strict` is always written: its absence means something else here.
"""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from cllm.core.notice import Notice
from cllm.core.options import AnyTool, ForeignTool, Options
from cllm.wire.malformed import FieldError
from cllm.wire.openai import options as openai_options
from cllm.wire.openai.options import Fields
from cllm.wire.responses.parts import DIALECT
from cllm.wire.spoken import Notes

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
PATHS = (
    (".function", ""),
    ("response_format.json_schema", "text.format"),
    ("reasoning_effort", "reasoning.effort"),
    ("response_format", "text.format"),
    ("max_completion_tokens", "max_output_tokens"),
)


def decode_options(parameters: Fields) -> Options:
    """Decode request parameters; null counts as absent."""
    try:
        options = openai_options.decode_options(_as_chat(parameters))
    except FieldError as error:
        raise _renamed(error) from error
    return msgspec.structs.replace(options, tools=_relabelled(options.tools, "openai", DIALECT))


def encode_options(options: Options, *, model: str) -> tuple[Fields, tuple[Notice, ...]]:
    """Encode options for a model, with notices for what it does not accept."""
    own = {name: value for name, value in options.extra.items() if name in OWN}
    shared = {name: value for name, value in options.extra.items() if name not in OWN}
    chat, noticed = openai_options.encode_options(
        msgspec.structs.replace(
            options, extra=shared, tools=_relabelled(options.tools, DIALECT, "openai")
        ),
        model=model,
    )
    notes = Notes(SENTENCES)
    return _from_chat(chat, own, notes), (*noticed, *notes.notices())


def _renamed(error: FieldError) -> FieldError:
    """Return the error with the path that the field has in this API."""
    path = error.path
    problem = str(error).removeprefix(f"{path}: ")
    for there, here in PATHS:
        path = path.replace(there, here)
    return FieldError(path, problem)


def _relabelled(
    tools: Iterable[AnyTool] | None, before: str, after: str
) -> tuple[AnyTool, ...] | None:
    """Change the dialect of tools that Chat Completions does not have."""
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
    """Return the parameters in the form of Chat Completions."""
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
    """Nest the fields of a typed object under its type, as Chat Completions does."""
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


def _from_chat(chat: Fields, own: Fields, notes: Notes) -> Fields:
    """Return parameters of Chat Completions in this API's form."""
    said = {name: value for name, value in chat.items() if name in SAME}
    for name, write in WRITERS.items():
        if name in chat:
            write(said, own, chat[name], notes)
    for name in chat:
        if name not in SAME and name not in WRITERS:
            notes.tell("field", name, subject=name)
    return {**own, **said}


def _write_limit(said: Fields, _own: Fields, value: int, notes: Notes) -> None:
    if value < MIN_OUTPUT_TOKENS:
        notes.tell("limit", "max_output_tokens")
    said["max_output_tokens"] = max(value, MIN_OUTPUT_TOKENS)


def _write_effort(said: Fields, own: Fields, value: str, _notes: Notes) -> None:
    said["reasoning"] = {"effort": value, **own.get("reasoning", {})}


def _write_format(said: Fields, own: Fields, value: Fields, _notes: Notes) -> None:
    said["text"] = {**own.get("text", {}), **said.get("text", {}), "format": _flat(value)}


def _write_verbosity(said: Fields, own: Fields, value: str, _notes: Notes) -> None:
    said["text"] = {**own.get("text", {}), **said.get("text", {}), "verbosity": value}


def _write_tools(said: Fields, _own: Fields, value: list[Fields], _notes: Notes) -> None:
    said["tools"] = [_strict_said(_flat(tool)) for tool in value]


def _write_choice(said: Fields, _own: Fields, value: Any, _notes: Notes) -> None:
    choice = _flat(value)
    if isinstance(choice, dict) and isinstance(choice.get("tools"), list):
        choice["tools"] = [_flat(tool) for tool in choice["tools"]]
    said["tool_choice"] = choice


def _write_logprobs(said: Fields, own: Fields, value: Any, _notes: Notes) -> None:
    if value:
        said["include"] = [*own.get("include", ()), LOGPROBS]


def _write_stream_options(said: Fields, _own: Fields, value: Any, _notes: Notes) -> None:
    """Drop include_usage: this API always sends the usage."""
    given = value if isinstance(value, dict) else {}
    rest = {name: inner for name, inner in given.items() if name != "include_usage"}
    if rest:
        said["stream_options"] = rest


WRITERS: dict[str, Callable[[Fields, Fields, Any, Notes], None]] = {
    "logprobs": _write_logprobs,
    "max_completion_tokens": _write_limit,
    "max_tokens": _write_limit,
    "reasoning_effort": _write_effort,
    "response_format": _write_format,
    "stream_options": _write_stream_options,
    "tool_choice": _write_choice,
    "tools": _write_tools,
    "verbosity": _write_verbosity,
}


def _flat(value: Any) -> Any:
    kind = value.get("type") if isinstance(value, dict) else None
    inner = value.get(kind) if kind in NESTED else None
    if not isinstance(inner, dict):
        return value
    flat = {"type": kind, **inner}
    return {**flat, "format": _flat(flat["format"])} if "format" in flat else flat


def _strict_said(tool: Fields) -> Fields:
    """Write `strict`: its absence means False elsewhere, and True here."""
    return (
        {**tool, "strict": False} if tool["type"] == "function" and "strict" not in tool else tool
    )

"""Anthropic's Messages requests: options, history and whole bodies, between JSON and values.

What the API refuses is arranged so that it accepts it, on the wire only, and said in a notice; what
cannot be said at all is an error that names it. A message that needs no change goes as the bytes it
came as. Carries nothing, keeps nothing, and never makes up a parameter that nobody gave.
"""

import base64
import binascii
import hashlib
import itertools
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, TypeVar

import msgspec

from cllm.core.message import (
    AnyPart,
    CacheMark,
    Document,
    Image,
    Message,
    RedactedThinking,
    Refusal,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Unknown,
)
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
from cllm.core.prompt import Prompt
from cllm.wire.anthropic_parts import DIALECT, UNREADABLE, encode_block
from cllm.wire.malformed import MalformedError, NotExpressibleError
from cllm.wire.spoken import Encoded, Spoken

__all__ = [
    "EncodedRequest",
    "FieldError",
    "NotExpressibleError",
    "decode_options",
    "decode_request",
    "encode_options",
    "encode_request",
]

Fields = dict[str, Any]
Notices = list[Notice]

MAX_MARKS = 4
EMPTY_CONTENT = re.compile(rb'"content"\s*:\s*(""|\[\s*\])')
MARK = re.compile(rb'"cache_control"\s*:\s*\{')
VALID_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
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
LOOP = ("assistant", "user")
NO_RESULT = "The call was interrupted; there is no result."
INVALID_JSON = "INVALID_JSON"
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
SYSTEM_TURNS_SINCE = (4, 8)
TOOL_NAMES = frozenset(("name", "input_schema", "description", "strict"))
Shape = TypeVar("Shape")


class FieldError(MalformedError):
    """A field of a request that is not what the API takes; `path` says which."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}" if path else problem)
        self.path = path


class EncodedRequest(Encoded, frozen=True, kw_only=True):
    """A body, and the ids that stand in it for ids the API refuses: alias → the client's own."""

    aliases: dict[str, str] = msgspec.field(default_factory=dict)


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
        raise _field_error(error, path) from error


def _field_error(error: Exception, path: str = "") -> FieldError:
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
    return _fit(fields, model, notices), tuple(notices)


def _fit(fields: Fields, model: str, notices: Notices) -> Fields:
    """The parameters without those that exclude one another, on this model."""
    both = fields.get("temperature") is not None and fields.get("top_p") is not None
    if both and _version(model) >= ONE_SAMPLER_SINCE:
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
    if _version(model) >= ADAPTIVE_SINCE:
        adaptive: Fields = {"thinking": {"type": "adaptive"}}
        return adaptive if effort is None else {**adaptive, "effort": effort}
    budget = reasoning.budget_tokens or BUDGETS.get(reasoning.effort or "medium", SMALLEST_BUDGET)
    if options.max_tokens is not None:
        budget = min(budget, options.max_tokens - 1)
    if budget < SMALLEST_BUDGET or UNKNOWN_VERSION < _version(model) < THINKING_SINCE:
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


def _version(model: str) -> tuple[int, int]:
    """The version in the name of a Claude model: 4.6 of claude-opus-4-6-20260205.

    A Claude model without a number counts as the newest, a name of another kind as none.
    """
    _, claude, name = model.lower().partition("claude")
    if not claude:
        return UNKNOWN_VERSION
    numbers = [int(word) for word in re.split(r"[^0-9a-z]", name) if re.fullmatch(r"\d{1,2}", word)]
    return (numbers[0], numbers[1] if len(numbers) > 1 else 0) if numbers else NEWEST_VERSION


class _Turn(msgspec.Struct):
    """A message on its way out: its own bytes for as long as nothing of it had to change."""

    role: Role
    parts: Sequence[AnyPart]
    raw: bytes | None = None

    def change(self, parts: Sequence[AnyPart]) -> None:
        """Other parts, if they are others; the bytes it came as no longer stand then."""
        same = len(parts) == len(self.parts) and all(map(operator.is_, parts, self.parts))
        if not same:
            self.parts, self.raw = parts, None


class _Log:
    """Notices of one request: each kind once, with its first place and how often it was."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], tuple[str, int]] = {}

    def add(self, code: str, path: str, message: str) -> None:
        first, count = self._seen.get((code, message), (path, 0))
        self._seen[code, message] = first, count + 1

    def notices(self) -> tuple[Notice, ...]:
        return tuple(
            Notice(code=code, path=path, message=message if n == 1 else f"{message} ({n} times)")
            for (code, message), (path, n) in self._seen.items()
        )


def encode_request(
    *,
    model: str,
    system: Sequence[AnyPart] | None,
    messages: Sequence[Spoken],
    parameters: Fields,
    stream: bool,
) -> EncodedRequest:
    """The request body; `parameters` are in Anthropic's words. The same input, the same bytes."""
    log = _Log()
    turns, moved = _arrange(messages, model, log)
    aliases: dict[str, str] = {}
    _pair(turns, aliases, log)
    head = _Turn(role="system", parts=[*_system_parts(system or (), log), *moved])
    fitted: Notices = []
    fields = _with_tools(_fit(parameters, model, fitted), turns, log)
    fields = _fit_thinking(fields, turns, log)
    if _count_marks(fields, head, turns) > MAX_MARKS:
        fields = _limit_marks(fields, head, turns, log)
    asked = {name: value for name, value in fields.items() if name not in BODY}
    body: Fields = {"model": model, **asked}
    if head.parts:
        body["system"] = _encode_content(head.parts)
    body["messages"] = [_encode_turn(turn) for turn in turns]
    if stream:
        body["stream"] = True
    notices = (*fitted, *log.notices())
    return EncodedRequest(body=msgspec.json.encode(body), notices=notices, aliases=aliases)


def _encode_turn(turn: _Turn) -> Fields | msgspec.Raw:
    if turn.raw is not None:
        return msgspec.Raw(turn.raw)
    return {"role": turn.role, "content": _encode_content(turn.parts)}


def _encode_content(parts: Sequence[AnyPart]) -> str | list[Fields | msgspec.Raw]:
    only = parts[0]
    if len(parts) == 1 and isinstance(only, Text) and not only.extra and only.cache is None:
        return only.text
    return [encode_block(part) for part in parts]


def _system_parts(parts: Sequence[AnyPart], log: _Log) -> Iterator[AnyPart]:
    for part in parts:
        if not isinstance(part, Text):
            log.add("dropped_part", "system", f"a system prompt has no {type(part).__name__}")
        elif part.text.strip():
            yield part


def _arrange(
    messages: Sequence[Spoken], model: str, log: _Log
) -> tuple[list[_Turn], list[AnyPart]]:
    """Alternating turns of what can be said, and the system messages that stood among them."""
    turns: list[_Turn] = []
    moved: list[AnyPart] = []
    for index, spoken in enumerate(messages):
        path = f"messages[{index}]"
        turn = _clean_turn(spoken, path, log)
        if not turn.parts:
            continue
        after_user = bool(turns) and turns[-1].role == "user"
        if turn.role != "system" or (after_user and _may_stay(messages, index, model)):
            turns.append(turn)
        else:
            moved += _system_parts(turn.parts, log)
            log.add("moved_message", path, "a system message in the history, put with the system")
    merged = _merge(turns)
    speaking = [turn for turn in merged if not _is_thinking_alone(turn)]
    if len(speaking) < len(merged):
        log.add("dropped_thinking", "messages", "an assistant message of thinking alone")
        merged = _merge(speaking)
    return merged, moved


def _may_stay(messages: Sequence[Spoken], index: int, model: str) -> bool:
    """Whether a system message may stand where it is: in Anthropic's words, on a model for it."""
    following = messages[index + 1].role if index + 1 < len(messages) else "assistant"
    own = messages[index].raw is not None
    return own and following == "assistant" and _version(model) >= SYSTEM_TURNS_SINCE


def _merge(turns: Iterable[_Turn]) -> list[_Turn]:
    merged: list[_Turn] = []
    for turn in turns:
        if merged and merged[-1].role == turn.role:
            merged[-1] = _Turn(role=turn.role, parts=[*merged[-1].parts, *turn.parts])
        else:
            merged.append(turn)
    return merged


def _is_thinking_alone(turn: _Turn) -> bool:
    thought = (Thinking, RedactedThinking)
    return turn.role == "assistant" and all(isinstance(part, thought) for part in turn.parts)


def _clean_turn(spoken: Spoken, path: str, log: _Log) -> _Turn:
    role: Role = "user" if spoken.role == "tool" else spoken.role
    turn = _Turn(role=role, parts=spoken.parts, raw=spoken.raw)
    turn.change(_clean_parts(spoken.parts, path, log, foreign=spoken.raw is None))
    if turn.raw is not None and _has_empty_result(turn):
        turn.raw = None
    return turn


def _has_empty_result(turn: _Turn) -> bool:
    """Whether a result has a content that is there and empty, which the API refuses."""
    empty = any(isinstance(part, ToolResult) and not part.content for part in turn.parts)
    return empty and EMPTY_CONTENT.search(turn.raw or b"") is not None


def _clean_parts(
    parts: Sequence[AnyPart], path: str, log: _Log, *, foreign: bool
) -> Sequence[AnyPart]:
    """The parts that can be said, as they can be said; a part that needs no change is the same."""
    said: list[AnyPart] = []
    for part in parts:
        clean = CLEANERS.get(type(part))
        cleaned = part if clean is None else clean(part, path, log)
        if cleaned is not None and foreign:
            cleaned = _naturalise(cleaned, path, log)
        if cleaned is not None:
            said.append(cleaned)
    return said


def _clean_text(part: Text | Refusal, _path: str, _log: _Log) -> AnyPart | None:
    return part if part.text.strip() else None


def _clean_thinking(part: Thinking, path: str, log: _Log) -> AnyPart | None:
    if part.signature:
        return part
    log.add("dropped_thinking", path, "thinking without a signature of Anthropic's")
    return None


def _clean_unknown(part: Unknown, path: str, log: _Log) -> AnyPart | None:
    if part.dialect == DIALECT:
        return part
    log.add("dropped_part", path, f"a block that only {part.dialect} has")
    return None


def _clean_result(part: ToolResult, path: str, log: _Log) -> AnyPart | None:
    content: Any = tuple(_clean_parts(part.content, path, log, foreign=False))
    if len(content) == len(part.content):
        return part
    return msgspec.structs.replace(part, content=content)


CLEANERS: dict[type, Callable[[Any, str, _Log], AnyPart | None]] = {
    Text: _clean_text,
    Refusal: _clean_text,
    Thinking: _clean_thinking,
    ToolResult: _clean_result,
    Unknown: _clean_unknown,
}


# A call says its tool's name and has its place: nothing is lost with these.
REDUNDANT: dict[type, tuple[str, ...]] = {ToolCall: ("index",), ToolResult: ("name",)}


def _naturalise(part: AnyPart, path: str, log: _Log) -> AnyPart | None:
    """A part from another protocol, without the fields that only that one knows."""
    if part.extra:
        names = ", ".join(sorted(part.extra.keys() - REDUNDANT.get(type(part), ())))
        if names:
            log.add("dropped_field", path, f"Anthropic has no {names} on a {type(part).__name__}")
        part = msgspec.structs.replace(part, extra={})
    change = NATURALISERS.get(type(part))
    return part if change is None else change(part, path, log)


def _naturalise_image(part: Image, path: str, log: _Log) -> AnyPart | None:
    if part.data is None and part.url is None:
        log.add("dropped_part", path, "an image without data and without a URL")
        return None
    if part.media_type == "image/jpg":
        return msgspec.structs.replace(part, media_type="image/jpeg")
    return part


def _naturalise_document(part: Document, path: str, log: _Log) -> AnyPart | None:
    if part.data is None:
        if part.text is None and part.url is None and part.file_id is None:
            log.add("dropped_part", path, "a document without content")
            return None
        return part
    if not (part.media_type or "").startswith("text/"):
        return part
    try:
        text = base64.b64decode(part.data, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return part
    return msgspec.structs.replace(part, data=None, text=text, media_type="text/plain")


def _naturalise_call(part: ToolCall, path: str, log: _Log) -> AnyPart | None:
    try:
        _objects.decode(part.arguments or "{}")
    except UNREADABLE:
        log.add("changed_arguments", path, f"arguments that are no JSON object, as {INVALID_JSON}")
        wrapped = msgspec.json.encode({INVALID_JSON: part.arguments}).decode()
        return msgspec.structs.replace(part, arguments=wrapped)
    return part


def _naturalise_thought(
    part: Thinking | RedactedThinking, _path: str, _log: _Log
) -> AnyPart | None:
    return part if part.cache is None else msgspec.structs.replace(part, cache=None)


def _naturalise_result(part: ToolResult, path: str, log: _Log) -> AnyPart | None:
    content = [_naturalise(inner, path, log) for inner in part.content]
    kept: Any = tuple(inner for inner in content if inner is not None)
    return msgspec.structs.replace(part, content=kept)


NATURALISERS: dict[type, Callable[[Any, str, _Log], AnyPart | None]] = {
    Image: _naturalise_image,
    Document: _naturalise_document,
    ToolCall: _naturalise_call,
    ToolResult: _naturalise_result,
    Thinking: _naturalise_thought,
    RedactedThinking: _naturalise_thought,
}


def _pair(turns: Sequence[_Turn], aliases: dict[str, str], log: _Log) -> None:
    """Every call gets its result, first thing in the next message, in the order of the calls."""
    calls: list[ToolCall] = []
    sent: list[str] = []
    for turn in turns:
        if turn.role == "assistant":
            calls = [part for part in turn.parts if isinstance(part, ToolCall)]
            sent = _sent_ids(calls, aliases)
            if [call.id for call in calls] != sent:
                _rename(turn, sent)
        elif turn.role == "user":
            _answer(turn, calls, sent, aliases, log)
            calls, sent = [], []


def _sent_ids(calls: Sequence[ToolCall], aliases: dict[str, str]) -> list[str]:
    seen: dict[str, int] = {}
    sent = []
    for call in calls:
        seen[call.id] = seen.get(call.id, 0) + 1
        sent.append(_sent_id(call.id, seen[call.id], aliases))
    return sent


def _sent_id(own: str, occurrence: int, aliases: dict[str, str]) -> str:
    """The id itself where the API takes it; else an alias that is always the same for it."""
    if occurrence == 1 and VALID_ID.fullmatch(own):
        return own
    digest = hashlib.sha256(f"{occurrence}:{own}".encode("utf-8", "surrogatepass"))
    alias = f"toolu_{digest.hexdigest()[:24]}"
    aliases[alias] = own
    return alias


def _rename(turn: _Turn, sent: Sequence[str]) -> None:
    ids = iter(sent)
    turn.change(
        [
            msgspec.structs.replace(part, id=next(ids)) if isinstance(part, ToolCall) else part
            for part in turn.parts
        ]
    )


def _answer(
    turn: _Turn,
    calls: Sequence[ToolCall],
    sent: Sequence[str],
    aliases: dict[str, str],
    log: _Log,
) -> None:
    results = [part for part in turn.parts if isinstance(part, ToolResult)]
    if not results and not calls:
        return
    waiting: dict[str, list[ToolResult]] = {}
    for result in results:
        waiting.setdefault(result.call_id, []).append(result)
    placed = [_take(waiting, call, to, log) for call, to in zip(calls, sent, strict=True)]
    left = [
        _addressed(result, _sent_id(result.call_id, 1, aliases))
        for queue in waiting.values()
        for result in queue
    ]
    turn.change(
        [*placed, *left, *(part for part in turn.parts if not isinstance(part, ToolResult))]
    )


def _take(waiting: dict[str, list[ToolResult]], call: ToolCall, sent: str, log: _Log) -> ToolResult:
    """The result of a call, or one that says that there is none."""
    queue = waiting.get(call.id)
    if queue:
        return _addressed(queue.pop(0), sent)
    log.add("added_result", "messages", "a call without a result was answered with an error")
    return ToolResult(call_id=sent, content=(Text(text=NO_RESULT),), is_error=True)


def _addressed(result: ToolResult, call_id: str) -> ToolResult:
    if result.call_id == call_id:
        return result
    return msgspec.structs.replace(result, call_id=call_id)


def _with_tools(parameters: Fields, turns: Sequence[_Turn], log: _Log) -> Fields:
    """The parameters; with the tools that the history names, if it has calls and they have none."""
    if parameters.get("tools"):
        return parameters
    called = {part.name for turn in turns for part in turn.parts if isinstance(part, ToolCall)}
    if not called:
        return parameters
    log.add("added_tools", "tools", "the tools called in the history, not to be called again")
    tools = [{"name": name, "input_schema": {"type": "object"}} for name in sorted(called)]
    return {**parameters, "tools": tools, "tool_choice": {"type": "none"}}


def _fit_thinking(fields: Fields, turns: Sequence[_Turn], log: _Log) -> Fields:
    """Without thinking, if an open tool loop began without: the API wants its thinking back."""
    thinking = fields.get("thinking")
    if (
        not isinstance(thinking, dict)
        or thinking.get("type") != "enabled"
        or len(turns) < len(LOOP)
    ):
        return fields
    asked, answered = turns[-2:]
    is_loop = any(isinstance(part, ToolResult) for part in answered.parts)
    thought = isinstance(asked.parts[0], Thinking | RedactedThinking)
    if (asked.role, answered.role) != LOOP or not is_loop or thought:
        return fields
    log.add("thinking_disabled", "thinking", "the open tool call was made without thinking")
    return {**fields, "thinking": DISABLED}


def _marks_of(part: AnyPart) -> int:
    inner = sum(map(_marks_of, part.content)) if isinstance(part, ToolResult) else 0
    if isinstance(part, Unknown):
        return int(MARK.search(part.raw) is not None)
    return inner + (part.cache is not None)


def _tools_of(fields: Fields) -> list[Any]:
    tools = fields.get("tools")
    return tools if isinstance(tools, list) else []


def _is_marked(tool: Any) -> bool:
    return isinstance(tool, dict) and bool(tool.get("cache_control"))


def _count_marks(fields: Fields, head: _Turn, turns: Sequence[_Turn]) -> int:
    tools = sum(map(_is_marked, _tools_of(fields)))
    whole = 1 if fields.get("cache_control") else 0
    return whole + tools + sum(_marks_of(part) for turn in (head, *turns) for part in turn.parts)


def _limit_marks(fields: Fields, head: _Turn, turns: Sequence[_Turn], log: _Log) -> Fields:
    """Without the marks above the limit: the oldest of the messages go, then system, then tools."""
    surplus = _count_marks(fields, head, turns) - MAX_MARKS
    log.add(
        "dropped_cache_mark", "cache_control", f"{surplus} of more than {MAX_MARKS} cache marks"
    )
    for turn in (*turns, head):
        if surplus > 0:
            before = sum(map(_marks_of, turn.parts))
            turn.change(_unmark(turn.parts, surplus))
            surplus -= before - sum(map(_marks_of, turn.parts))
    tools = []
    for tool in _tools_of(fields):
        marked = surplus > 0 and _is_marked(tool)
        tools.append({k: tool[k] for k in tool if k != "cache_control"} if marked else tool)
        surplus -= marked
    return {**fields, "tools": tools} if tools else fields


def _unmark(parts: Sequence[AnyPart], surplus: int) -> list[AnyPart]:
    """The parts with their first so many marks gone."""
    unmarked: list[AnyPart] = []
    for part in parts:
        had = _marks_of(part) if surplus > 0 else 0
        kept = _without_marks(part, surplus) if had else part
        surplus -= had - _marks_of(kept) if had else 0
        unmarked.append(kept)
    return unmarked


def _without_marks(part: AnyPart, surplus: int) -> AnyPart:
    if isinstance(part, Unknown):
        fields = msgspec.json.decode(part.raw, type=dict[str, msgspec.Raw])
        fields.pop("cache_control", None)
        return msgspec.structs.replace(part, raw=msgspec.json.encode(fields))
    if isinstance(part, ToolResult):
        inner = sum(map(_marks_of, part.content))
        content: Any = tuple(_unmark(part.content, surplus))
        cache = None if surplus > inner else part.cache
        return msgspec.structs.replace(part, content=content, cache=cache)
    return msgspec.structs.replace(part, cache=None)


class _Typed(msgspec.Struct):
    type: str


class _WireMessage(msgspec.Struct):
    role: Literal["user", "assistant", "system"]
    content: str | list[_Typed]


class _Body(msgspec.Struct):
    model: str
    messages: list[msgspec.Raw]
    system: str | list[_Typed] | None = None
    stream: bool | None = None


def decode_request(body: bytes) -> Prompt:
    """A client's request: its messages as the bytes they were, all that is not one a parameter."""
    try:
        said = _bodies.decode(body)
        fields = _raw_fields.decode(body)
        parameters = {k: msgspec.json.decode(v) for k, v in fields.items() if k not in BODY}
    except UNREADABLE as error:
        raise _field_error(error) from error
    return Prompt(
        model=said.model,
        system=_decode_system(fields["system"]) if said.system else None,
        messages=tuple(map(_decode_message, said.messages, itertools.count())),
        parameters=parameters,
        dialect=DIALECT,
        stream=bool(said.stream),
    )


def _decode_system(system: msgspec.Raw) -> Message:
    raw = b'{"role":"system","content":' + bytes(system).strip() + b"}"
    return Message(role="system", raw=raw, dialect=DIALECT)


def _decode_message(raw: msgspec.Raw, index: int) -> Message:
    try:
        role: Role = _wire_messages.decode(raw).role
    except UNREADABLE as error:
        raise _field_error(error, f"messages[{index}]") from error
    return Message(role=role, raw=bytes(raw), dialect=DIALECT)


PARAMETERS = frozenset(_Parameters.__struct_fields__)
BODY = frozenset(_Body.__struct_fields__)
_bodies = msgspec.json.Decoder(_Body)
_raw_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_wire_messages = msgspec.json.Decoder(_WireMessage)
_objects = msgspec.json.Decoder(dict[str, msgspec.Raw])

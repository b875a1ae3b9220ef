"""Requests in OpenAI's words: read at our own door, written for conversations of other protocols.

Reading keeps every message's bytes. Writing sends a message that is already OpenAI's as it is and
translates the others part by part; what OpenAI cannot be told is named in a notice, one for each
kind of thing. It sends nothing, makes up no text, and never chooses a system prompt.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

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
from cllm.wire.malformed import MalformedError, NotExpressibleError
from cllm.wire.openai_chat import without_reasoning
from cllm.wire.openai_parts import encode_parts
from cllm.wire.spoken import Encoded, Spoken

Fields = dict[str, Any]
T = TypeVar("T")

MAX_STOP = 4
MAX_CALL_ID = 40
KEPT_OF_ID = 23

COMPLETION_TOKENS = re.compile(r"(?:.*/)?(?:o\d|gpt-(?:[5-9]|\d\d))")
NO_REASONING = re.compile(r"(?:.*/)?(?:gpt-3|gpt-4|chatgpt-|gpt-5[\d.]*-chat)")
FIELD_PATH = re.compile(r" - at `\$\.?(.*)`$")
EFFORTS = frozenset({"none", "minimal", "low", "medium", "high", "xhigh", "max"})
EFFORT_OF_BUDGET = ((2_048, "low"), (8_192, "medium"))
CHOICES: dict[str, ToolChoiceKind] = {"auto": "auto", "none": "none", "required": "any"}
CHOICE_WORDS = {kind: word for word, kind in CHOICES.items()}
MEDIA = (Image, Document)
WORDS = (Text, Unknown)
ROLES: dict[str, Role] = {
    "assistant": "assistant",
    "developer": "system",
    "function": "tool",
    "system": "system",
    "tool": "tool",
    "user": "user",
}
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
MESSAGES = {
    "block_left_out": "A block of a kind that OpenAI does not have was left out.",
    "cache_mark_left_out": "OpenAI has no cache marks; it caches by itself.",
    "document_left_out": "OpenAI takes documents as data or by its own file id only.",
    "document_name_left_out": "A document of plain text is sent as text, without its name.",
    "error_flag_left_out": "A tool message cannot say that a tool failed; only its text is sent.",
    "field_left_out": "OpenAI has no such field.",
    "image_left_out": "An image needs a URL, or data and a media type.",
    "media_moved": "OpenAI's tool messages hold text only; the rest follows in a user message.",
    "needs_tools": "OpenAI takes this only together with tools.",
    "part_left_out": "A message of this role cannot hold such a part at OpenAI.",
    "reasoning_changed": "OpenAI knows efforts, not budgets; the nearest effort is asked for.",
    "reasoning_left_out": "This model cannot be asked to think so.",
    "stop_sequences_cut": f"OpenAI takes at most {MAX_STOP} stop sequences; more are ignored.",
    "thinking_left_out": "Thinking belongs to the model that wrote it; OpenAI is not sent any.",
    "tool_call_id_changed": f"OpenAI takes call ids of at most {MAX_CALL_ID} characters.",
}


class FieldError(MalformedError):
    """A field of a request is not what the protocol promises; `path` says which."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path or 'body'}: {reason}")
        self.path = path


class _Notes:
    """What could not be said, gathered: one notice for a code, at the first place it stood."""

    def __init__(self) -> None:
        self._places: dict[tuple[str, str], list[str]] = {}

    def add(self, code: str, path: str, *, subject: str = "") -> None:
        self._places.setdefault((code, subject), []).append(path)

    def notices(self) -> tuple[Notice, ...]:
        return tuple(
            Notice(code=code, path=paths[0], message=MESSAGES[code] + _times(len(paths)))
            for (code, _), paths in self._places.items()
        )


def _times(count: int) -> str:
    return "" if count == 1 else f" ({count} times)"


class _Known(msgspec.Struct):
    """The fields that options have a name for, as OpenAI spells them."""

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


def decode_options(parameters: Fields) -> Options:
    """What the parameters of a request ask for; null is not said."""
    known = _convert(parameters, _Known, "")
    extra = {
        name: value for name, value in parameters.items() if name not in KNOWN and value is not None
    }
    choice = _decode_choice(known.tool_choice)
    if choice is None and known.tool_choice is not None:
        extra["tool_choice"] = known.tool_choice
    output = _decode_format(known.response_format)
    if output is None and (known.response_format or {}).get("type", "text") != "text":
        extra["response_format"] = known.response_format
    limit = known.max_completion_tokens
    return Options(
        max_tokens=known.max_tokens if limit is None else limit,
        temperature=known.temperature,
        top_p=known.top_p,
        top_k=known.top_k,
        stop=_decode_stop(known.stop),
        tools=None if known.tools is None else tuple(_decode_tools(known.tools)),
        tool_choice=choice,
        parallel_tool_calls=known.parallel_tool_calls,
        output=output,
        reasoning=_decode_effort(known.reasoning_effort),
        seed=known.seed,
        user=known.user,
        extra=extra,
    )


def _convert(value: Any, kind: type[T], path: str) -> T:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        text = str(error)
        found = FIELD_PATH.search(text)
        inner = found[1] if found else ""
        raise FieldError(".".join(filter(None, (path, inner))), FIELD_PATH.sub("", text)) from error


def _decode_stop(stop: str | list[str] | None) -> tuple[str, ...] | None:
    if stop is None:
        return None
    return (stop,) if isinstance(stop, str) else tuple(stop)


def _decode_tools(tools: list[Fields]) -> Iterator[AnyTool]:
    for index, tool in enumerate(tools):
        yield _decode_tool(tool, f"tools[{index}]")


def _decode_tool(tool: Fields, path: str) -> AnyTool:
    if tool.get("type", "function") != "function":
        return ForeignTool(dialect="openai", name=_tool_name(tool), raw=tool)
    function = _convert(tool.get("function"), _Function, f"{path}.function")
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


def _tool_name(tool: Fields) -> str:
    inner = tool.get(str(tool["type"]))
    name = inner.get("name") if isinstance(inner, dict) else None
    return str(name or tool["type"])


def _take_mark(extra: Fields) -> CacheMark | None:
    mark = extra.get("cache_control")
    if not isinstance(mark, dict) or not set(mark) <= {"type", "ttl"}:
        return None
    del extra["cache_control"]
    ttl = mark.get("ttl")
    return CacheMark(ttl=ttl if isinstance(ttl, str) else None)


def _decode_choice(choice: str | Fields | None) -> ToolChoice | None:
    """A choice of one of the kinds we have; None for the others, which stay in `extra`."""
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
    given = _convert(form.get("json_schema"), _JsonSchema, "response_format.json_schema")
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


def encode_options(options: Options, *, model: str) -> tuple[Fields, tuple[Notice, ...]]:
    """The parameters that ask a model for this, and what it cannot be asked for."""
    notes = _Notes()
    limit = "max_completion_tokens" if COMPLETION_TOKENS.match(model) else "max_tokens"
    said: Fields = {
        limit: options.max_tokens,
        "temperature": options.temperature,
        "top_p": options.top_p,
        "stop": _encode_stop(options.stop, notes),
        **_encode_tool_use(options, notes),
        "response_format": _encode_format(options.output),
        "reasoning_effort": _encode_effort(options.reasoning, model, notes),
        "seed": options.seed,
        "user": options.user,
        **_encode_extra(options, notes),
    }
    if options.top_k is not None:
        notes.add("field_left_out", "top_k", subject="top_k")
    return {name: value for name, value in said.items() if value is not None}, notes.notices()


def _encode_stop(stop: tuple[str, ...] | None, notes: _Notes) -> list[str] | None:
    if stop is not None and len(stop) > MAX_STOP:
        notes.add("stop_sequences_cut", f"stop[{MAX_STOP}]")
    return list(stop[:MAX_STOP]) if stop else None


def _encode_tool_use(options: Options, notes: _Notes) -> Fields:
    """Tools and what is said about them, which OpenAI refuses without any."""
    tools = [_encode_tool(tool, n, notes) for n, tool in enumerate(options.tools or ())]
    about = {
        "tool_choice": _encode_choice(options.tool_choice),
        "parallel_tool_calls": options.parallel_tool_calls,
    }
    if tools:
        return {"tools": tools, **about}
    for name, value in about.items():
        if value is not None:
            notes.add("needs_tools", name, subject=name)
    return {}


def _encode_tool(tool: AnyTool, index: int, notes: _Notes) -> Fields:
    path = f"tools[{index}]"
    if isinstance(tool, ForeignTool):
        if tool.dialect != "openai":
            raise NotExpressibleError(f"{path}: OpenAI has no tool like '{tool.name}'")
        return tool.raw
    if tool.cache is not None:
        notes.add("cache_mark_left_out", path)
    for name in tool.extra:
        notes.add("field_left_out", f"{path}.{name}", subject=name)
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


def _encode_effort(reasoning: Reasoning | None, model: str, notes: _Notes) -> str | None:
    """The effort to ask for. A model that never thinks is not told not to."""
    if reasoning is None:
        return None
    if NO_REASONING.match(model):
        if reasoning.enabled:
            notes.add("reasoning_left_out", "reasoning")
        return None
    if not reasoning.enabled:
        return "none"
    if reasoning.effort is None:
        notes.add("reasoning_changed", "reasoning")
        return _effort_of_budget(reasoning.budget_tokens)
    if reasoning.effort not in EFFORTS:
        notes.add("reasoning_left_out", "reasoning.effort")
        return None
    return reasoning.effort


def _effort_of_budget(budget: int | None) -> str:
    if budget is None:
        return "medium"
    return next((effort for limit, effort in EFFORT_OF_BUDGET if budget <= limit), "high")


def _encode_extra(options: Options, notes: _Notes) -> Fields:
    said = {}
    for name, value in options.extra.items():
        if name in OWN_FIELDS and (name != "service_tier" or value in SERVICE_TIERS):
            said[name] = value
        else:
            notes.add("field_left_out", name, subject=name)
    return said


def encode_request(
    *,
    model: str,
    system: Sequence[AnyPart] | None,
    messages: Sequence[Spoken],
    parameters: Fields,
    stream: bool,
) -> Encoded:
    """The body that asks for the answer to these messages; the same in gives the same bytes."""
    notes = _Notes()
    encoded: list[Writable] = []
    if system is not None:
        said = _translated(enumerate(system), _Place("system", "system", notes))
        encoded.extend([_written("system", said)] if said else [])
    for caller, followers in _exchanges(messages):
        encoded.extend(_encode_exchange(caller, followers, notes))
    own: Fields = {"model": model, "messages": encoded}
    body = own | parameters | own
    body.pop("stream", None)
    if stream:
        chosen = parameters.get("stream_options")
        usage = {"include_usage": True, **(chosen if isinstance(chosen, dict) else {})}
        body |= {"stream": True, "stream_options": usage}
    else:
        body.pop("stream_options", None)
    return Encoded(body=msgspec.json.encode(body), notices=notes.notices())


class _Plain(msgspec.Struct):
    """A message of one text, which most are."""

    role: str
    content: str


Writable = msgspec.Raw | _Plain


class _Place(NamedTuple):
    """Where a part stands: whose words they are, the path to them, and the notes about them."""

    role: Role
    path: str
    notes: _Notes

    def left_out(self, code: str, index: int, *, subject: str = "") -> None:
        self.notes.add(code, f"{self.path}[{index}]", subject=subject)


Numbered = tuple[int, Spoken]


def _exchanges(messages: Sequence[Spoken]) -> Iterator[tuple[Numbered | None, list[Numbered]]]:
    """The messages, cut before each of the assistant's: who may have called, what came after."""
    caller: Numbered | None = None
    followers: list[Numbered] = []
    for numbered in enumerate(messages):
        if numbered[1].role != "assistant":
            followers.append(numbered)
            continue
        if caller is not None or followers:
            yield caller, followers
        caller, followers = numbered, []
    yield caller, followers


def _encode_exchange(
    caller: Numbered | None, followers: list[Numbered], notes: _Notes
) -> Iterator[Writable]:
    """An assistant's message, the results of its calls in their order, and what else was said."""
    calls: list[str] = []
    aliases: dict[str, str] = {}
    if caller is not None:
        calls = [part.id for part in caller[1].parts if isinstance(part, ToolCall)]
        if caller[1].raw is None:
            aliases = {call: alias for call in calls if (alias := _call_id(call)) != call}
        yield _encode_message(caller, notes)
    if not any(_has_result(message) for _, message in followers):
        yield from (_encode_message(numbered, notes) for numbered in followers)
        return
    order = {call: place for place, call in reversed(list(enumerate(calls)))}
    results: list[tuple[int, Writable]] = []
    rest: list[Writable] = []
    for numbered in followers:
        if not _has_result(numbered[1]):
            rest.append(_encode_message(numbered, notes))
            continue
        for call_id, encoded in _encode_answering(numbered, aliases, notes):
            if call_id is None or caller is None:
                rest.append(encoded)
            else:
                results.append((order.get(call_id, len(order)), encoded))
    results.sort(key=lambda result: result[0])
    yield from (encoded for _, encoded in results)
    yield from rest


def _has_result(message: Spoken) -> bool:
    return ToolResult in map(type, message.parts)


def _encode_answering(
    numbered: Numbered, aliases: dict[str, str], notes: _Notes
) -> Iterator[tuple[str | None, Writable]]:
    """A message with results: each with the call it answers, then the rest as the user's."""
    index, message = numbered
    place = _Place("user", f"messages[{index}].content", notes)
    results = [part for part in message.parts if isinstance(part, ToolResult)]
    if message.raw is not None and not any(part.call_id in aliases for part in results):
        yield results[0].call_id, msgspec.Raw(message.raw)
        return
    rest: list[AnyPart] = []
    for number, part in enumerate(message.parts):
        if isinstance(part, ToolResult):
            result, media = _translate_result(part, number, place)
            rest.extend(media)
            alias = aliases.get(part.call_id, part.call_id)
            yield part.call_id, _written("tool", [msgspec.structs.replace(result, call_id=alias)])
    others = (pair for pair in enumerate(message.parts) if not isinstance(pair[1], ToolResult))
    rest.extend(_translated(others, place))
    if rest:
        yield None, _written("user", rest)


def _translate_result(
    result: ToolResult, index: int, place: _Place
) -> tuple[ToolResult, list[AnyPart]]:
    """The result as a tool message can hold it, and what it held beside text."""
    if result.is_error:
        place.left_out("error_flag_left_out", index)
    _note_tail(result, index, place)
    inner = _Place("user", f"{place.path}[{index}].content", place.notes)
    content: list[Text | Image | Document | Unknown] = []
    media: list[AnyPart] = []
    for number, part in enumerate(result.content):
        said = TRANSLATORS[type(part)](part, number, inner)
        if isinstance(said, MEDIA):
            inner.left_out("media_moved", number)
            media.append(said)
        elif isinstance(said, WORDS):
            content.append(said)
    return ToolResult(call_id=result.call_id, content=tuple(content)), media


def _encode_message(numbered: Numbered, notes: _Notes) -> Writable:
    index, message = numbered
    if message.raw is not None:
        return msgspec.Raw(without_reasoning(message.raw))
    place = _Place(message.role, f"messages[{index}].content", notes)
    return _written(message.role, _translated(enumerate(message.parts), place))


def _written(role: Role, parts: Sequence[AnyPart]) -> Writable:
    only = parts[0] if len(parts) == 1 else None
    if isinstance(only, Text):
        return _Plain(role, only.text)
    return msgspec.Raw(encode_parts(role, parts).raw)


def _translated(parts: Iterable[tuple[int, AnyPart]], place: _Place) -> list[AnyPart]:
    """The parts as OpenAI takes them from this role."""
    said: list[AnyPart] = []
    allowed = ALLOWED[place.role]
    for index, part in parts:
        translated = TRANSLATORS[type(part)](part, index, place)
        if translated is None:
            continue
        if isinstance(translated, allowed):
            said.append(translated)
        else:
            place.left_out("part_left_out", index, subject=type(part).__name__)
    return _without_blanks(said, place.role)


def _without_blanks(said: list[AnyPart], role: Role) -> list[AnyPart]:
    """Empty text gives way to anything else, white space beside a call or as a prompt too."""
    substance = role == "system" or any(isinstance(part, ToolCall) for part in said)
    kept = [
        part
        for part in said
        if not isinstance(part, Text) or (part.text.strip() if substance else part.text)
    ]
    return kept or ([] if role == "system" else said[:1])


def _note_tail(
    part: AnyPart, index: int, place: _Place, *, known: frozenset[str] = frozenset()
) -> None:
    if part.cache is not None:
        place.left_out("cache_mark_left_out", index)
    for name in part.extra:
        if name not in known:
            place.notes.add("field_left_out", f"{place.path}[{index}].{name}", subject=name)


def _translate_text(part: Text, index: int, place: _Place) -> Text:
    if part.cache is None and not part.extra:
        return part
    _note_tail(part, index, place)
    return Text(text=part.text)


def _translate_refusal(part: Refusal, index: int, place: _Place) -> Refusal:
    _note_tail(part, index, place)
    return Refusal(text=part.text)


def _translate_image(part: Image, index: int, place: _Place) -> Image | None:
    if part.url is None and (part.data is None or part.media_type is None):
        return place.left_out("image_left_out", index)
    _note_tail(part, index, place, known=frozenset({"image_url"}))
    detail = part.extra.get("image_url")
    extra = {"image_url": detail} if isinstance(detail, dict) else {}
    return msgspec.structs.replace(part, cache=None, extra=extra)


def _translate_document(part: Document, index: int, place: _Place) -> Text | Document | None:
    """Plain text as text; data under a name, which OpenAI asks for."""
    if part.text is None and part.data is None and part.file_id is None:
        return place.left_out("document_left_out", index)
    _note_tail(part, index, place)
    if part.text is not None:
        if part.name is not None:
            place.left_out("document_name_left_out", index)
        return Text(text=part.text)
    if part.data is None:
        return Document(file_id=part.file_id, name=part.name)
    media_type = part.media_type or "application/octet-stream"
    name = part.name or f"document.{media_type.rpartition('/')[2]}"
    return Document(media_type=media_type, data=part.data, name=name)


def _translate_call(part: ToolCall, index: int, place: _Place) -> ToolCall:
    _note_tail(part, index, place)
    call_id = _call_id(part.id)
    if call_id != part.id:
        place.left_out("tool_call_id_changed", index)
    return ToolCall(id=call_id, name=part.name, arguments=part.arguments or "{}")


def _call_id(given: str) -> str:
    """The id itself, or for one too long a shorter one that is always the same."""
    if len(given) <= MAX_CALL_ID:
        return given
    return f"{given[:KEPT_OF_ID]}_{hashlib.sha256(given.encode()).hexdigest()[:16]}"


def _leave_thinking(_: Thinking | RedactedThinking, index: int, place: _Place) -> None:
    place.left_out("thinking_left_out", index)


def _translate_unknown(part: Unknown, index: int, place: _Place) -> Unknown | None:
    if part.dialect == "openai":
        return part
    return place.left_out("block_left_out", index)


def _same(part: ToolResult, _index: int, _place: _Place) -> ToolResult:
    return part


TRANSLATORS: dict[type, Callable[[Any, int, _Place], AnyPart | None]] = {
    Document: _translate_document,
    Image: _translate_image,
    RedactedThinking: _leave_thinking,
    Refusal: _translate_refusal,
    Text: _translate_text,
    Thinking: _leave_thinking,
    ToolCall: _translate_call,
    ToolResult: _same,
    Unknown: _translate_unknown,
}
ALLOWED: dict[Role, tuple[type, ...]] = {
    "assistant": (Text, Refusal, ToolCall, Unknown),
    "system": (Text, Unknown),
    "tool": (Text, Unknown),
    "user": (Text, Image, Document, Unknown),
}


def decode_request(body: bytes) -> Prompt:
    """What a client of OpenAI's asks for, in its own words: every message as it came, in order."""
    fields, raws = _decode_body(body)
    model, stream = fields.get("model"), fields.get("stream")
    if not isinstance(model, str) or not model.strip():
        raise FieldError("model", "the name of a model is needed")
    if not isinstance(stream, bool | None):
        raise FieldError("stream", "true or false is needed")
    said = fields["messages"]
    return Prompt(
        model=model,
        messages=tuple(
            Message(role=_checked_role(message, f"messages[{index}]"), raw=bytes(raw))
            for index, (message, raw) in enumerate(zip(said, raws, strict=True))
        ),
        parameters={k: fields[k] for k in fields if k not in ("model", "messages", "stream")},
        dialect="openai",
        stream=bool(stream),
    )


_fields_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
_list_decoder = msgspec.json.Decoder(list[msgspec.Raw])


def _decode_body(body: bytes) -> tuple[Fields, list[msgspec.Raw]]:
    """The fields, all of them read once so that nothing in them fails later, and the messages."""
    try:
        fields = msgspec.json.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise FieldError("", f"not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise FieldError("", "a JSON object is needed")
    if not isinstance(fields.get("messages"), list):
        raise FieldError("messages", "a list of messages is needed")
    return fields, _list_decoder.decode(_fields_decoder.decode(body)["messages"])


def _checked_role(message: Any, path: str) -> Role:
    """The role of a message whose fields have the types that its parts are read from."""
    if not isinstance(message, dict):
        raise FieldError(path, "an object is needed")
    role = message.get("role")
    if not isinstance(role, str) or role not in ROLES:
        raise FieldError(f"{path}.role", f"one of {', '.join(ROLES)} is needed")
    _check_content(message.get("content"), f"{path}.content")
    _check_calls(message.get("tool_calls"), f"{path}.tool_calls")
    if role == "tool" and not isinstance(message.get("tool_call_id"), str):
        raise FieldError(f"{path}.tool_call_id", "the id of the call it answers is needed")
    return ROLES[role]


def _check_content(content: Any, path: str) -> None:
    if not isinstance(content, str | list | None):
        raise FieldError(path, "a text or a list of parts is needed")
    for index, block in enumerate(content if isinstance(content, list) else ()):
        if not isinstance(block, dict) or not isinstance(block.get("type"), str):
            raise FieldError(f"{path}[{index}]", "an object with a type is needed")
        if block["type"] == "text" and not isinstance(block.get("text"), str):
            raise FieldError(f"{path}[{index}].text", "a text is needed")


def _check_calls(calls: Any, path: str) -> None:
    if not isinstance(calls, list | None):
        raise FieldError(path, "a list of calls is needed")
    for index, call in enumerate(calls or ()):
        if not isinstance(call, dict):
            raise FieldError(f"{path}[{index}]", "an object is needed")
        if not isinstance(call.get("id"), str):
            raise FieldError(f"{path}[{index}].id", "the id of the call is needed")

"""A prompt as a request body: unchanged where possible, otherwise converted through parts.

What a target cannot express comes back as notices. The `repair` callback repairs histories.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from operator import is_
from typing import Any, Protocol

import msgspec

from cllm.core.message import (
    AnyPart,
    Dialect,
    Message,
    RedactedThinking,
    Thinking,
    ToolCall,
    ToolResult,
)
from cllm.core.notice import Notice
from cllm.core.options import RequestOptions
from cllm.core.prompt import Prompt
from cllm.wire.errors import FieldError
from cllm.wire.messages import (
    EMPTY,
    EncodedRequest,
    NoticeMerger,
    OutgoingMessage,
    Repair,
    count_suffix,
    no_repair,
    omitted_field_notices,
    replace_parts,
)
from cllm.wire.openai.functions import (
    is_legacy,
    restricted_to_allowed,
    with_calls_for_functions,
    with_ids_of_calls,
    with_tools_for_functions,
)
from cllm.wire.openai.models import needs_responses_api_for_tools, supports_developer_role
from cllm.wire.openai.options import SENTENCES, check_parameters, fit_parameters
from cllm.wire.reasoning import AS_SENT, ReasoningRule, fit_reasoning

OPENAI_DIALECTS = ("openai", "responses")
TOOL_PARTS = (ToolCall, ToolResult)
CALLS = b'"tool_calls"'
CONTENT = b'"content"'
DEVELOPER = b'"developer"'
FUNCTION = b'"function"'
NULL = b"null"


class RequestCodec(Protocol):
    """The interface of a dialect's request module."""

    # Bedrock has none: no client sends requests in Converse's format.
    def decode_options(self, parameters: dict[str, Any]) -> RequestOptions: ...

    def encode_options(
        self, options: RequestOptions, *, model: str, **known: Any
    ) -> tuple[dict[str, Any], tuple[Notice, ...]]: ...

    def encode_request(self, **pieces: Any) -> EncodedRequest: ...


@cache
def _module(dialect: Dialect, name: str) -> Any:
    """Import a module of a protocol's package on first use: most programs use one."""
    return import_module(f"cllm.wire.{dialect}.{name}")


def request_codec(dialect: Dialect) -> RequestCodec:
    codec: RequestCodec = _module(dialect, "request")
    return codec


def is_plain_user(message: Message) -> bool:
    """Whether it is a user message without tool results, which some protocols give that role."""
    if message.role != "user" or message.dialect == "openai":
        return message.role == "user"
    return not any(isinstance(part, ToolResult) for part in parts_of(message))


def parts_of(message: Message) -> tuple[AnyPart, ...]:
    parts: tuple[AnyPart, ...] = _module(message.dialect, "parts").decode_parts(message)
    return parts


def build_outgoing_message(
    message: Message, target: Dialect, *, prompt_index: int = 0
) -> OutgoingMessage:
    """Return a message for a dialect, with its own bytes if it is in that dialect already."""
    dialect = message.dialect
    parts, beside = _module(dialect, "parts").decode_message(message)
    return OutgoingMessage(
        role=message.role,
        parts=parts,
        raw=message.raw if dialect == target else None,
        prompt_index=prompt_index,
        dialect=dialect,
        extra=beside,
    )


class ConvertedPrompt(msgspec.Struct, frozen=True, kw_only=True):
    """The pieces of a request for one dialect.

    `cache_control_added`: it has cache breakpoints of ours.
    """

    system: tuple[AnyPart, ...] | None
    system_raw: bytes | None
    messages: tuple[OutgoingMessage, ...]
    parameters: dict[str, Any]
    notices: tuple[Notice, ...] = ()
    cache_control_added: bool = False


AddCacheControl = Callable[[ConvertedPrompt], ConvertedPrompt]
"""Adds cache marks to parts."""


def no_cache_control(said: ConvertedPrompt) -> ConvertedPrompt:
    return said


def convert_prompt(prompt: Prompt, target: Dialect) -> ConvertedPrompt:
    """Convert the pieces of a prompt for a dialect; its codec makes the body."""
    kept: Sequence[Message] = prompt.messages
    if any(message.dialect == "openai" for message in kept):
        kept = with_ids_of_calls(kept, call_ids)
        kept = kept if target == "openai" else with_calls_for_functions(kept)
    messages = tuple(
        build_outgoing_message(message, target, prompt_index=prompt_index)
        for prompt_index, message in enumerate(kept)
    )
    messages, notices = _without_foreign_fields(messages)
    foreign = prompt.foreign | _sealed_by_openai(prompt, messages, target)
    if foreign and target != "openai":
        messages, thoughts = _without_foreign_thinking(messages, foreign)
        notices = (*notices, *thoughts)
    parameters = prompt.parameters
    if prompt.dialect != target:
        options = _options_for(target, prompt)
        # Only Bedrock requires descriptions of tools that the history calls.
        parts = (part for message in messages for part in message.parts)
        has_tools = target == "bedrock" and any(type(p) in TOOL_PARTS for p in parts)
        known = {"history_has_tools": True} if has_tools else {}
        codec = request_codec(target)
        parameters, unsaid = codec.encode_options(options, model=prompt.model, **known)
        notices = (*notices, *unsaid)
    system = prompt.system
    return ConvertedPrompt(
        system=None if system is None else parts_of(system),
        system_raw=None if system is None or system.dialect != target else system.raw,
        messages=messages,
        parameters=parameters,
        notices=notices,
    )


def call_ids(message: Message) -> list[str]:
    return [part.id for part in parts_of(message) if isinstance(part, ToolCall)]


def _options_for(target: Dialect, prompt: Prompt) -> RequestOptions:
    parameters = prompt.parameters
    if prompt.dialect == "openai":
        parameters = with_tools_for_functions(parameters)
    options = request_codec(prompt.dialect).decode_options(parameters)
    # Only OpenAI's protocols can restrict the choice to some tools.
    keeps_choice = target in OPENAI_DIALECTS or prompt.dialect not in OPENAI_DIALECTS
    return options if keeps_choice else restricted_to_allowed(options)


def _without_foreign_fields(
    messages: tuple[OutgoingMessage, ...],
) -> tuple[tuple[OutgoingMessage, ...], tuple[Notice, ...]]:
    lost = [spoken for spoken in messages if spoken.extra and spoken.raw is None]
    if not lost:
        return messages, ()
    kept = (
        msgspec.structs.replace(spoken, extra=EMPTY) if spoken.raw is None else spoken
        for spoken in messages
    )
    return tuple(kept), omitted_field_notices(lost)


def _sealed_by_openai(
    prompt: Prompt, messages: tuple[OutgoingMessage, ...], target: Dialect
) -> frozenset[int]:
    """Return the indexes of messages with thinking that only OpenAI can read: it has an id."""
    if target == "responses" or all(m.dialect != "responses" for m in prompt.messages):
        return frozenset()
    thoughts = (Thinking, RedactedThinking)
    return frozenset(
        spoken.prompt_index
        for spoken in messages
        if any(isinstance(part, thoughts) and "id" in part.extra for part in spoken.parts)
    )


def _without_foreign_thinking(
    messages: tuple[OutgoingMessage, ...], foreign: frozenset[int]
) -> tuple[tuple[OutgoingMessage, ...], tuple[Notice, ...]]:
    """Drop thinking of other models: its signature is valid for its own model only."""
    kept: list[OutgoingMessage] = []
    places: list[int] = []
    for spoken in messages:
        thoughts = (Thinking, RedactedThinking) if spoken.prompt_index in foreign else ()
        parts = [part for part in spoken.parts if not isinstance(part, thoughts)]
        same = len(parts) == len(spoken.parts)
        kept.append(spoken if same else replace_parts(spoken, parts))
        places += [] if same else [spoken.prompt_index]
    if not places:
        return messages, ()
    sentence = "Thinking belongs to the model that wrote it; another is not sent it."
    notice = Notice(
        code="thinking_left_out",
        path=f"messages[{places[0]}]",
        message=sentence + count_suffix(len(places)),
    )
    return tuple(kept), (notice,)


def needs_responses_api(prompt: Prompt) -> bool:
    """Whether OpenAI accepts the prompt only by its Responses API: tools for a reasoning model."""
    tools = prompt.parameters.get("tools") or prompt.parameters.get("functions")
    if not tools or not needs_responses_api_for_tools(prompt.model, thinks=True):
        return False
    reasoning = _options_for("responses", prompt).reasoning
    return needs_responses_api_for_tools(
        prompt.model, thinks=None if reasoning is None else reasoning.enabled
    )


def encode_openai(
    prompt: Prompt,
    *,
    repair: Repair = no_repair,
    can_skip_repair: bool = True,
    reasoning: ReasoningRule = AS_SENT,
) -> EncodedRequest:
    """Encode a chat completion, spliced from the messages' own bytes if all are OpenAI's.

    `can_skip_repair`: do not inspect a history whose calls are answered in order, which
    all but the strictest servers accept. `reasoning` says which past reasoning the server
    accepts.
    """
    if prompt.strict:
        reasoning = msgspec.structs.replace(reasoning, blank=None)
    check_has_content(prompt.messages)
    if prompt.dialect == "openai":
        check_parameters(prompt.parameters)
    prompt = _for_model(prompt)
    own = prompt.dialect == "openai" and {m.dialect for m in prompt.all_messages} <= {"openai"}
    plain = can_skip_repair and own and has_ordered_tool_results(prompt.messages)
    parameters, unfit = _fitted(prompt)
    prompt, unsent = _with_fitted_reasoning(prompt, reasoning)
    notices = (*unsent, *unfit)
    if plain or (own and is_legacy(prompt.messages)):
        body = _original_for_openai(prompt) or splice_request(prompt, parameters)
        return EncodedRequest(body=body, notices=notices)
    said = convert_prompt(prompt, "openai")
    encoded = request_codec("openai").encode_request(
        model=prompt.model,
        system=said.system,
        system_raw=said.system_raw,
        messages=said.messages,
        parameters=parameters if prompt.dialect == "openai" else said.parameters,
        stream=prompt.stream,
        repair=repair,
        own_names=prompt.dialect == "openai",
        reasoning=reasoning,
    )
    return _untouched(with_notices(encoded, (*said.notices, *notices)), prompt, "openai")


def _with_fitted_reasoning(
    prompt: Prompt, rule: ReasoningRule
) -> tuple[Prompt, tuple[Notice, ...]]:
    notes = NoticeMerger(SENTENCES)
    messages = list(prompt.messages)
    for prompt_index, message in enumerate(messages):
        if message.role != "assistant" or message.dialect != "openai":
            continue
        fitted = fit_reasoning(message.raw, rule, is_foreign=prompt_index in prompt.foreign)
        if fitted.lost is not None:
            notes.report("reasoning", f"messages[{prompt_index}].{fitted.lost}")
        if fitted.filled:
            notes.report("blank", f"messages[{prompt_index}]")
        if fitted.raw is not message.raw:
            messages[prompt_index] = Message(role=message.role, raw=fitted.raw)
    if all(map(is_, messages, prompt.messages)):
        return prompt, ()
    return msgspec.structs.replace(prompt, messages=tuple(messages)), notes.notices()


def _for_model(prompt: Prompt) -> Prompt:
    messages = tuple(with_ids_of_calls(prompt.messages, call_ids))
    system = prompt.system
    if not supports_developer_role(prompt.model):
        messages = tuple(map(without_developer, messages))
        system = system and without_developer(system)
    same = system is prompt.system and all(map(is_, messages, prompt.messages))
    return prompt if same else msgspec.structs.replace(prompt, messages=messages, system=system)


def _fitted(prompt: Prompt) -> tuple[dict[str, Any], tuple[Notice, ...]]:
    parameters = prompt.parameters
    if prompt.dialect != "openai":
        return parameters, ()
    if prompt.original is not None and prompt.original.says(prompt):
        return parameters, ()
    if not prompt.stream and "stream_options" in parameters:
        parameters = {k: v for k, v in parameters.items() if k != "stream_options"}
    return fit_parameters(parameters, model=prompt.model)


def _original_for_openai(prompt: Prompt) -> bytes | None:
    original = prompt.original
    if original is None or original.dialect != "openai" or not original.says(prompt):
        return None
    options = original.parameters.get("stream_options")
    if original.stream and not (isinstance(options, dict) and "include_usage" in options):
        return None
    return original.body


def encode_responses(prompt: Prompt, *, repair: Repair = no_repair) -> EncodedRequest:
    """Encode a Responses API body with the whole history."""
    said = convert_prompt(prompt, "responses")
    encoded = request_codec("responses").encode_request(
        model=prompt.model,
        system=said.system,
        messages=said.messages,
        parameters=said.parameters,
        stream=prompt.stream,
        repair=repair,
        own_names=prompt.dialect == "responses",
    )
    return _untouched(with_notices(encoded, said.notices), prompt, "responses")


def encode_anthropic(
    prompt: Prompt,
    *,
    default_max_tokens: int,
    repair: Repair = no_repair,
    cache_control: AddCacheControl = no_cache_control,
) -> EncodedRequest:
    """Encode a Messages API body, which requires a limit on the answer."""
    said = cache_control(convert_prompt(prompt, "anthropic"))
    given = said.parameters
    if "max_tokens" in given and given["max_tokens"] is None:
        given = {name: value for name, value in given.items() if name != "max_tokens"}
    encoded = request_codec("anthropic").encode_request(
        model=prompt.model,
        system=said.system,
        system_raw=said.system_raw,
        messages=said.messages,
        parameters={"max_tokens": default_max_tokens, **given},
        stream=prompt.stream,
        repair=repair,
    )
    if "max_tokens" not in given or said.cache_control_added:
        encoded = msgspec.structs.replace(encoded, unconverted=False)
    return _untouched(with_notices(encoded, said.notices), prompt, "anthropic")


def encode_bedrock(
    prompt: Prompt, *, repair: Repair = no_repair, cache_control: AddCacheControl = no_cache_control
) -> EncodedRequest:
    """Encode a Converse body; the model is named in the URL."""
    said = cache_control(convert_prompt(prompt, "bedrock"))
    encoded = request_codec("bedrock").encode_request(
        model=prompt.model,
        system=said.system,
        messages=said.messages,
        parameters=said.parameters,
        repair=repair,
    )
    return with_notices(encoded, said.notices)


def with_notices(encoded: EncodedRequest, more: tuple[Notice, ...]) -> EncodedRequest:
    """Put these notices before those of the request."""
    return msgspec.structs.replace(encoded, notices=(*more, *encoded.notices)) if more else encoded


def _untouched(encoded: EncodedRequest, prompt: Prompt, target: Dialect) -> EncodedRequest:
    original = prompt.original
    if original is None or original.dialect != target or not original.says(prompt):
        return encoded
    if encoded.notices or encoded.names or encoded.ids:
        return encoded
    if not encoded.unconverted and _meaning(original.body) != _meaning(encoded.body):
        return encoded
    return msgspec.structs.replace(encoded, body=original.body)


def _meaning(body: bytes) -> dict[str, Any]:
    """Decode a body without the fields whose absence means the same."""
    fields: dict[str, Any] = msgspec.json.decode(body)
    return {k: v for k, v in fields.items() if v or k not in ("stream", "system")}


class _Call(msgspec.Struct):
    id: str


class _Caller(msgspec.Struct):
    tool_calls: list[_Call] | None = None


class _Answer(msgspec.Struct):
    tool_call_id: str


_callers = msgspec.json.Decoder(_Caller)
_answers = msgspec.json.Decoder(_Answer)
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])


def check_has_content(messages: Sequence[Message]) -> None:
    """Raise FieldError for an OpenAI message without content, which only an assistant may send."""
    for prompt_index, message in enumerate(messages):
        if message.dialect != "openai" or message.role == "assistant":
            continue
        if CONTENT in message.raw and NULL not in message.raw:
            continue
        if _is_without_content(message):
            path = f"messages[{prompt_index}].content"
            raise FieldError(path, "a text or a list of parts is needed")


def _is_without_content(message: Message) -> bool:
    try:
        fields = _fields.decode(message.raw)
    except msgspec.MsgspecError:
        return False
    content, role = fields.get("content"), bytes(fields.get("role", b""))
    return role != FUNCTION and (content is None or bytes(content) == NULL)


def has_ordered_tool_results(messages: Sequence[Message]) -> bool:
    """Whether every call is answered immediately, in order and once."""
    waiting: list[str] = []
    try:
        for message in messages:
            if message.role == "tool":
                if not waiting or _answers.decode(message.raw).tool_call_id != waiting.pop():
                    return False
            elif waiting:
                return False
            elif CALLS in message.raw:
                waiting = [call.id for call in _callers.decode(message.raw).tool_calls or ()]
                if message.role != "assistant" or len(set(waiting)) < len(waiting):
                    return False
                waiting.reverse()
    except msgspec.MsgspecError:
        return False
    return bool(messages) and not waiting


def without_developer(message: Message) -> Message:
    """Return a developer message as a system message; others unchanged."""
    if message.role != "system" or message.dialect != "openai" or DEVELOPER not in message.raw:
        return message
    fields = _fields.decode(message.raw)
    if msgspec.json.decode(fields["role"]) != "developer":
        return message
    raw = msgspec.json.encode({**fields, "role": "system"})
    return Message(role="system", raw=raw)


def splice_request(prompt: Prompt, parameters: Mapping[str, Any]) -> bytes:
    """Build the request body around the bytes of OpenAI's own messages."""
    raws = b",".join([message.raw for message in prompt.all_messages])
    own: dict[str, Any] = {"model": prompt.model, "messages": msgspec.Raw(b"[%b]" % raws)}
    body = {**own, **parameters, **own}
    if prompt.stream:
        options = parameters.get("stream_options")
        chosen = options if isinstance(options, dict) else {}
        body |= {"stream": True, "stream_options": {"include_usage": True, **chosen}}
    return msgspec.json.encode(body)

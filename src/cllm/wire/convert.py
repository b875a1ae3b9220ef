"""Encodes a prompt as a request body: unchanged where possible, else converted through parts.

Content that the target cannot express is reported as notices.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from importlib import import_module
from operator import is_
from typing import Any, Protocol

import msgspec

from cllm.core.message import (
    AnyPart,
    Dialect,
    Document,
    Image,
    Message,
    RedactedThinking,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Unknown,
)
from cllm.core.notice import Notice
from cllm.core.options import RequestOptions
from cllm.core.prompt import Prompt
from cllm.wire import media
from cllm.wire.errors import MalformedError
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
    add_call_ids,
    function_calls_to_tool_calls,
    functions_to_tools,
    has_function_results,
    restrict_to_allowed_tools,
)
from cllm.wire.openai.models import (
    fit_media_rule,
    needs_responses_api_for_tools,
    supports_developer_role,
)
from cllm.wire.openai.options import SENTENCES, check_parameters, fit_parameters
from cllm.wire.openai.request import (
    check_has_content,
    developer_to_system,
    fill_empty_reply,
    has_ordered_tool_results,
    splice_request,
)
from cllm.wire.reasoning import AS_SENT, ReasoningRule, fit_reasoning

OPENAI_DIALECTS = ("openai", "responses")
TOOL_PARTS = (ToolCall, ToolResult)
ATTACHMENTS = (Image, Document, Unknown)
MEDIA_RULES: dict[Dialect, media.MediaRule] = {
    "anthropic": media.ANTHROPIC,
    "bedrock": media.BEDROCK,
    "openai": media.COMPATIBLE,
    "responses": media.RESPONSES,
}
# A content block other than text.
BLOCKS = re.compile(rb'"type"\s*:\s*"(?!text"|function")')


class RequestCodec(Protocol):
    """The interface of a dialect's request module."""

    # Bedrock has none: no client sends requests in Converse's format.
    def decode_options(self, parameters: dict[str, Any]) -> RequestOptions: ...

    def encode_options(
        self, options: RequestOptions, *, model: str, **context: Any
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
    """Whether a user message has no tool results, which some protocols put under that role."""
    if message.role != "user" or message.dialect == "openai":
        return message.role == "user"
    return not any(isinstance(part, ToolResult) for part in parts_of(message))


def has_user_input(messages: Iterable[Message]) -> bool:
    """Whether a user wrote one of the messages; an unreadable one counts."""
    try:
        return any(map(is_plain_user, messages))
    except MalformedError:
        return True


def parts_of(message: Message) -> tuple[AnyPart, ...]:
    parts: tuple[AnyPart, ...] = _module(message.dialect, "parts").decode_parts(message)
    return parts


def build_outgoing_message(
    message: Message, target: Dialect, *, prompt_index: int = 0
) -> OutgoingMessage:
    """Return a message for a dialect, with its own bytes if it is in that dialect already."""
    dialect = message.dialect
    parts, extra = _module(dialect, "parts").decode_message(message)
    return OutgoingMessage(
        role=message.role,
        parts=parts,
        raw=message.raw if dialect == target else None,
        prompt_index=prompt_index,
        dialect=dialect,
        extra=extra,
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
"""Adds `cache_control` breakpoints to parts."""


def no_cache_control(prompt: ConvertedPrompt) -> ConvertedPrompt:
    return prompt


def convert_prompt(
    prompt: Prompt, target: Dialect, *, media_rule: media.MediaRule | None = None
) -> ConvertedPrompt:
    """Convert the pieces of a prompt for a dialect; its codec encodes the body.

    `media_rule`: the attachments that the provider accepts, by default those of the protocol.
    """
    source: Sequence[Message] = prompt.messages
    if any(message.dialect == "openai" for message in source):
        source = add_call_ids(source, call_ids)
        source = source if target == "openai" else function_calls_to_tool_calls(source)
    messages = tuple(
        build_outgoing_message(message, target, prompt_index=prompt_index)
        for prompt_index, message in enumerate(source)
    )
    messages, notices = _drop_foreign_fields(messages)
    if has_media(messages):
        messages, more = media.fit_media(messages, media_rule or MEDIA_RULES[target])
        notices = (*notices, *more)
    foreign = prompt.foreign | _encrypted_by_openai(prompt, messages, target)
    if foreign and target != "openai":
        messages, dropped = _drop_foreign_thinking(messages, foreign)
        notices = (*notices, *dropped)
    parameters = prompt.parameters
    if prompt.dialect != target:
        options = _options_for(target, prompt)
        # Only Bedrock requires descriptions of tools that the history calls.
        parts = (part for message in messages for part in message.parts)
        has_tools = target == "bedrock" and any(type(p) in TOOL_PARTS for p in parts)
        context = {"history_has_tools": True} if has_tools else {}
        codec = request_codec(target)
        parameters, more = codec.encode_options(options, model=prompt.model, **context)
        notices = (*notices, *more)
    system = prompt.system
    return ConvertedPrompt(
        system=None if system is None else parts_of(system),
        system_raw=None if system is None or system.dialect != target else system.raw,
        messages=messages,
        parameters=parameters,
        notices=notices,
    )


def has_media(messages: Iterable[OutgoingMessage]) -> bool:
    return any(
        type(part) in ATTACHMENTS
        or (type(part) is ToolResult and any(type(inner) is not Text for inner in part.content))
        for message in messages
        for part in message.parts
    )


def find_media(message: Message) -> Iterator[Image | Document]:
    """Yield the images and files of a message, including those in tool results."""
    for part in parts_of(message):
        for inner in part.content if isinstance(part, ToolResult) else (part,):
            if isinstance(inner, Image) or (isinstance(inner, Document) and inner.text is None):
                yield inner


def find_calls(message: Message) -> Iterator[ToolCall]:
    return (part for part in parts_of(message) if isinstance(part, ToolCall))


def call_ids(message: Message) -> list[str]:
    return [call.id for call in find_calls(message)]


def _options_for(target: Dialect, prompt: Prompt) -> RequestOptions:
    parameters = prompt.parameters
    if prompt.dialect == "openai":
        parameters = functions_to_tools(parameters)
    options = request_codec(prompt.dialect).decode_options(parameters)
    # Only OpenAI's protocols can restrict the choice to some tools.
    keeps_choice = target in OPENAI_DIALECTS or prompt.dialect not in OPENAI_DIALECTS
    return options if keeps_choice else restrict_to_allowed_tools(options)


def _drop_foreign_fields(
    messages: tuple[OutgoingMessage, ...],
) -> tuple[tuple[OutgoingMessage, ...], tuple[Notice, ...]]:
    with_fields = [message for message in messages if message.extra and message.raw is None]
    if not with_fields:
        return messages, ()
    rest = (
        msgspec.structs.replace(message, extra=EMPTY) if message.raw is None else message
        for message in messages
    )
    return tuple(rest), omitted_field_notices(with_fields)


def _encrypted_by_openai(
    prompt: Prompt, messages: tuple[OutgoingMessage, ...], target: Dialect
) -> frozenset[int]:
    """Return the indexes of messages with thinking that only OpenAI can read: it has an id."""
    if target == "responses" or all(m.dialect != "responses" for m in prompt.messages):
        return frozenset()
    thinking_types = (Thinking, RedactedThinking)
    return frozenset(
        message.prompt_index
        for message in messages
        if any(isinstance(part, thinking_types) and "id" in part.extra for part in message.parts)
    )


def _drop_foreign_thinking(
    messages: tuple[OutgoingMessage, ...], foreign: frozenset[int]
) -> tuple[tuple[OutgoingMessage, ...], tuple[Notice, ...]]:
    """Drop thinking of other models: its signature is valid for its own model only."""
    result: list[OutgoingMessage] = []
    indexes: list[int] = []
    for message in messages:
        dropped_types = (Thinking, RedactedThinking) if message.prompt_index in foreign else ()
        parts = [part for part in message.parts if not isinstance(part, dropped_types)]
        same = len(parts) == len(message.parts)
        result.append(message if same else replace_parts(message, parts))
        indexes += [] if same else [message.prompt_index]
    if not indexes:
        return messages, ()
    sentence = "Thinking of another model is not sent: only the model that wrote it can read it."
    notice = Notice(
        code="thinking_left_out",
        path=f"messages[{indexes[0]}]",
        message=sentence + count_suffix(len(indexes)),
    )
    return tuple(result), (notice,)


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
    media_rule: media.MediaRule = media.COMPATIBLE,
) -> EncodedRequest:
    """Encode a chat completion, spliced from the messages' own bytes if all are OpenAI's.

    `can_skip_repair`: do not repair a history whose calls are answered in order, which all but
    the strictest servers accept. `reasoning` defines which past reasoning the server accepts,
    `media_rule` which attachments.
    """
    if prompt.strict:
        reasoning = msgspec.structs.replace(reasoning, blank=None)
    check_has_content(prompt.messages)
    if prompt.dialect == "openai":
        check_parameters(prompt.parameters)
    prompt = _fit_to_model(prompt)
    dialects = {m.dialect for m in prompt.all_messages}
    is_openai = prompt.dialect == "openai" and dialects <= {"openai"}
    media_rule = fit_media_rule(media_rule, prompt.model)
    is_spliced = is_openai and not _has_refused_media(prompt.messages, media_rule)
    skip_repair = can_skip_repair and is_spliced and has_ordered_tool_results(prompt.messages)
    parameters, parameter_notices = _fit_parameters(prompt)
    prompt, reasoning_notices = _fit_reasoning(prompt, reasoning)
    prompt = _fill_empty_replies(prompt)
    notices = (*reasoning_notices, *parameter_notices)
    if skip_repair or (is_spliced and has_function_results(prompt.messages)):
        body = _original_for_openai(prompt) or splice_request(prompt, parameters)
        return EncodedRequest(body=body, notices=notices)
    converted = convert_prompt(prompt, "openai", media_rule=media_rule)
    encoded = request_codec("openai").encode_request(
        model=prompt.model,
        system=converted.system,
        system_raw=converted.system_raw,
        messages=converted.messages,
        parameters=parameters if prompt.dialect == "openai" else converted.parameters,
        stream=prompt.stream,
        repair=repair,
        keep_names=prompt.dialect == "openai",
        reasoning=reasoning,
    )
    return _pass_through(with_notices(encoded, (*converted.notices, *notices)), prompt, "openai")


def _has_refused_media(messages: Sequence[Message], rule: media.MediaRule) -> bool:
    """Whether the rule changes one of these OpenAI messages."""
    if all(BLOCKS.search(message.raw) is None for message in messages):
        return False
    outgoing = [build_outgoing_message(message, "openai") for message in messages]
    fitted, _ = media.fit_media(outgoing, rule)
    return not all(map(is_, outgoing, fitted))


def _fit_reasoning(prompt: Prompt, rule: ReasoningRule) -> tuple[Prompt, tuple[Notice, ...]]:
    notes = NoticeMerger(SENTENCES)
    messages = list(prompt.messages)
    for prompt_index, message in enumerate(messages):
        if message.role != "assistant" or message.dialect != "openai":
            continue
        adapted = fit_reasoning(message.raw, rule, is_foreign=prompt_index in prompt.foreign)
        if adapted.lost is not None:
            notes.report("reasoning", f"messages[{prompt_index}].{adapted.lost}")
        if adapted.filled:
            notes.report("blank", f"messages[{prompt_index}]")
        if adapted.raw is not message.raw:
            messages[prompt_index] = Message(role=message.role, raw=adapted.raw)
    if all(map(is_, messages, prompt.messages)):
        return prompt, ()
    return msgspec.structs.replace(prompt, messages=tuple(messages)), notes.notices()


def _fill_empty_replies(prompt: Prompt) -> Prompt:
    """Send an assistant message without anything in it as an empty text: OpenAI refuses null."""
    messages = tuple(map(fill_empty_reply, prompt.messages))
    if all(map(is_, messages, prompt.messages)):
        return prompt
    return msgspec.structs.replace(prompt, messages=messages)


def _fit_to_model(prompt: Prompt) -> Prompt:
    messages = tuple(add_call_ids(prompt.messages, call_ids))
    system = prompt.system
    if not supports_developer_role(prompt.model):
        messages = tuple(map(developer_to_system, messages))
        system = system and developer_to_system(system)
    same = system is prompt.system and all(map(is_, messages, prompt.messages))
    return prompt if same else msgspec.structs.replace(prompt, messages=messages, system=system)


def _fit_parameters(prompt: Prompt) -> tuple[dict[str, Any], tuple[Notice, ...]]:
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
    converted = convert_prompt(prompt, "responses")
    encoded = request_codec("responses").encode_request(
        model=prompt.model,
        system=converted.system,
        messages=converted.messages,
        parameters=converted.parameters,
        stream=prompt.stream,
        repair=repair,
        keep_names=prompt.dialect == "responses",
    )
    return _pass_through(with_notices(encoded, converted.notices), prompt, "responses")


def encode_anthropic(
    prompt: Prompt,
    *,
    default_max_tokens: int,
    repair: Repair = no_repair,
    cache_control: AddCacheControl = no_cache_control,
) -> EncodedRequest:
    """Encode a Messages API body, which requires a limit on the reply."""
    converted = cache_control(convert_prompt(prompt, "anthropic"))
    parameters = converted.parameters
    if "max_tokens" in parameters and parameters["max_tokens"] is None:
        parameters = {name: value for name, value in parameters.items() if name != "max_tokens"}
    encoded = request_codec("anthropic").encode_request(
        model=prompt.model,
        system=converted.system,
        system_raw=converted.system_raw,
        messages=converted.messages,
        parameters={"max_tokens": default_max_tokens, **parameters},
        stream=prompt.stream,
        repair=repair,
    )
    if "max_tokens" not in parameters or converted.cache_control_added:
        encoded = msgspec.structs.replace(encoded, is_unconverted=False)
    return _pass_through(with_notices(encoded, converted.notices), prompt, "anthropic")


def encode_bedrock(
    prompt: Prompt, *, repair: Repair = no_repair, cache_control: AddCacheControl = no_cache_control
) -> EncodedRequest:
    """Encode a Converse body; the model is named in the URL."""
    rule = _module("bedrock", "models").find_media_rule(prompt.model)
    converted = cache_control(convert_prompt(prompt, "bedrock", media_rule=rule))
    encoded = request_codec("bedrock").encode_request(
        model=prompt.model,
        system=converted.system,
        messages=converted.messages,
        parameters=converted.parameters,
        repair=repair,
    )
    return with_notices(encoded, converted.notices)


def with_notices(encoded: EncodedRequest, more: tuple[Notice, ...]) -> EncodedRequest:
    """Put these notices before those of the request."""
    return msgspec.structs.replace(encoded, notices=(*more, *encoded.notices)) if more else encoded


def _pass_through(encoded: EncodedRequest, prompt: Prompt, target: Dialect) -> EncodedRequest:
    original = prompt.original
    if original is None or original.dialect != target or not original.says(prompt):
        return encoded
    if encoded.notices or encoded.names or encoded.ids:
        return encoded
    if not encoded.is_unconverted and not _are_equivalent(original.body, encoded.body, target):
        return encoded
    return msgspec.structs.replace(encoded, body=original.body)


def _are_equivalent(before: bytes, after: bytes, target: Dialect) -> bool:
    """Whether two bodies for the same prompt differ at most in their form."""
    fields, others = _significant_fields(before), _significant_fields(after)
    if fields == others:
        return True
    if target != "responses":
        return False
    simplify = _module("responses", "request").simplify_body
    return bool(simplify(fields) == simplify(others))


def _significant_fields(body: bytes) -> dict[str, Any]:
    """Decode a body without empty fields that mean the same as absent ones."""
    fields: dict[str, Any] = msgspec.json.decode(body)
    return {k: v for k, v in fields.items() if v or k not in ("stream", "system")}

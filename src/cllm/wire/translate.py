"""A prompt in the words of one protocol: as it is where nothing has to change, else translated.

A table of the dialects and the one way through parts between any two of them. What a target
cannot say comes back as notices. Decides nothing about what is sent.
"""

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any, Protocol

import msgspec

from cllm.core.message import AnyPart, Dialect, Message, ToolCall, ToolResult
from cllm.core.notice import Notice
from cllm.core.options import Options
from cllm.core.prompt import Prompt
from cllm.wire import openai_chat
from cllm.wire.spoken import Encoded, Spoken

DecodeParts = Callable[[Message], tuple[AnyPart, ...]]


class RequestCodec(Protocol):
    """What a dialect's request module offers."""

    def decode_options(self, parameters: dict[str, Any]) -> Options: ...

    def encode_options(
        self, options: Options, *, model: str, **known: Any
    ) -> tuple[dict[str, Any], tuple[Notice, ...]]: ...

    def encode_request(self, **pieces: Any) -> Encoded: ...


# A row is imported when it is used: most programs speak one protocol.
PARTS: dict[Dialect, str] = {
    "anthropic": "cllm.wire.anthropic_parts",
    "bedrock": "cllm.wire.bedrock_parts",
    "openai": "cllm.wire.openai_parts",
}
REQUESTS: dict[Dialect, str] = {
    "anthropic": "cllm.wire.anthropic_request",
    "bedrock": "cllm.wire.bedrock_request",
    "openai": "cllm.wire.openai_request",
}


@cache
def decoder_of(dialect: Dialect) -> DecodeParts:
    decode: DecodeParts = import_module(PARTS[dialect]).decode_parts
    return decode


@cache
def request_codec(dialect: Dialect) -> RequestCodec:
    codec: RequestCodec = import_module(REQUESTS[dialect])
    return codec


def parts_of(message: Message) -> tuple[AnyPart, ...]:
    """The parts of a message, whatever its dialect."""
    return decoder_of(message.dialect)(message)


def spoken_for(message: Message, target: Dialect) -> Spoken:
    """A message on its way into a dialect, with its own bytes if it is in that dialect already."""
    raw = message.raw if message.dialect == target else None
    return Spoken(role=message.role, parts=parts_of(message), raw=raw)


class Translated(msgspec.Struct, frozen=True, kw_only=True):
    """The pieces of a request in the words of one dialect."""

    system: tuple[AnyPart, ...] | None
    messages: tuple[Spoken, ...]
    parameters: dict[str, Any]
    notices: tuple[Notice, ...] = ()


def translate(prompt: Prompt, target: Dialect) -> Translated:
    """The prompt's pieces for that dialect; the codec makes a body of them."""
    messages = tuple(spoken_for(message, target) for message in prompt.messages)
    parameters = prompt.parameters
    notices: tuple[Notice, ...] = ()
    if prompt.dialect != target:
        options = request_codec(prompt.dialect).decode_options(prompt.parameters)
        # Only Bedrock wants tools described that were called before and are not offered now.
        known = {"history_has_tools": _has_tools(messages)} if target == "bedrock" else {}
        codec = request_codec(target)
        parameters, notices = codec.encode_options(options, model=prompt.model, **known)
    return Translated(
        system=None if prompt.system is None else parts_of(prompt.system),
        messages=messages,
        parameters=parameters,
        notices=notices,
    )


def _has_tools(messages: tuple[Spoken, ...]) -> bool:
    tools = (ToolCall, ToolResult)
    return any(isinstance(part, tools) for message in messages for part in message.parts)


def encode_openai(prompt: Prompt) -> Encoded:
    """A chat completion's body, spliced from the messages' own bytes where all are OpenAI's."""
    if prompt.dialect == "openai" and all(m.dialect == "openai" for m in prompt.all_messages):
        return Encoded(body=openai_chat.encode_request(prompt))
    said = translate(prompt, "openai")
    encoded = request_codec("openai").encode_request(
        model=prompt.model,
        system=said.system,
        messages=said.messages,
        parameters=said.parameters,
        stream=prompt.stream,
    )
    return with_notices(encoded, said.notices)


def encode_anthropic(prompt: Prompt, *, default_max_tokens: int) -> Encoded:
    """A body for the Messages API, which wants a limit on the answer."""
    said = translate(prompt, "anthropic")
    encoded = request_codec("anthropic").encode_request(
        model=prompt.model,
        system=said.system,
        messages=said.messages,
        parameters={"max_tokens": default_max_tokens, **said.parameters},
        stream=prompt.stream,
    )
    return with_notices(encoded, said.notices)


def encode_bedrock(prompt: Prompt) -> Encoded:
    """A body for Converse; the model is named in the address."""
    said = translate(prompt, "bedrock")
    encoded = request_codec("bedrock").encode_request(
        model=prompt.model,
        system=said.system,
        messages=said.messages,
        parameters=said.parameters,
    )
    return with_notices(encoded, said.notices)


def with_notices(encoded: Encoded, more: tuple[Notice, ...]) -> Encoded:
    """The same request, with what was noticed before it was encoded."""
    return msgspec.structs.replace(encoded, notices=(*more, *encoded.notices)) if more else encoded

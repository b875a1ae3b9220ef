"""A prompt's pieces in the words of one protocol.

A table of the dialects and the one way through parts between any two of them. What a target
cannot say comes back as notices. Decides nothing about what is sent, and writes no body.
"""

from collections.abc import Callable
from functools import cache
from importlib import import_module
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
from cllm.core.options import Options
from cllm.core.prompt import Prompt
from cllm.wire.openai.functions import (
    restricted_to_allowed,
    with_calls_for_functions,
    with_ids_of_calls,
    with_tools_for_functions,
)
from cllm.wire.openai.models import calls_elsewhere
from cllm.wire.spoken import (
    NOTHING,
    Encoded,
    Spoken,
    left_out_fields,
    rewritten,
)


class RequestCodec(Protocol):
    """What a dialect's request module offers."""

    def decode_options(self, parameters: dict[str, Any]) -> Options: ...

    def encode_options(
        self, options: Options, *, model: str, **known: Any
    ) -> tuple[dict[str, Any], tuple[Notice, ...]]: ...

    def encode_request(self, **pieces: Any) -> Encoded: ...


@cache
def _module(dialect: Dialect, name: str) -> Any:
    """A module of a protocol's package, imported when it is used: most programs speak one."""
    return import_module(f"cllm.wire.{dialect}.{name}")


def request_codec(dialect: Dialect) -> RequestCodec:
    codec: RequestCodec = _module(dialect, "request")
    return codec


def is_plain_user(message: Message) -> bool:
    """Whether a person said it: in some protocols tool results have the user's role too."""
    if message.role != "user" or message.dialect == "openai":
        return message.role == "user"
    return not any(isinstance(part, ToolResult) for part in parts_of(message))


def parts_of(message: Message) -> tuple[AnyPart, ...]:
    """The parts of a message, whatever its dialect."""
    parts: tuple[AnyPart, ...] = _module(message.dialect, "parts").decode_parts(message)
    return parts


def spoken_for(message: Message, target: Dialect, *, place: int = 0) -> Spoken:
    """A message on its way into a dialect, with its own bytes if it is in that dialect already."""
    dialect = message.dialect
    parts, beside = _module(dialect, "parts").decode_message(message)
    return Spoken(
        role=message.role,
        parts=parts,
        raw=message.raw if dialect == target else None,
        place=place,
        dialect=dialect,
        extra=beside,
    )


class Translated(msgspec.Struct, frozen=True, kw_only=True):
    """The pieces of a request in the words of one dialect; `marked` with cache marks of ours."""

    system: tuple[AnyPart, ...] | None
    system_raw: bytes | None
    messages: tuple[Spoken, ...]
    parameters: dict[str, Any]
    notices: tuple[Notice, ...] = ()
    marked: bool = False


Mark = Callable[[Translated], Translated]
"""Puts cache marks on parts, for a target that keeps what it is told to."""


def unmarked(said: Translated) -> Translated:
    """The pieces as they are."""
    return said


def translate(prompt: Prompt, target: Dialect) -> Translated:
    """The prompt's pieces for that dialect; the codec makes a body of them."""
    kept = with_ids_of_calls(prompt.messages, call_ids)
    kept = kept if target == "openai" else with_calls_for_functions(kept)
    messages = tuple(spoken_for(message, target, place=place) for place, message in enumerate(kept))
    messages, notices = _without_foreign_fields(messages)
    foreign = prompt.foreign | _sealed_by_openai(prompt, messages, target)
    if foreign and target != "openai":
        messages, thoughts = _without_foreign_thinking(messages, foreign)
        notices = (*notices, *thoughts)
    parameters = prompt.parameters
    if prompt.dialect != target:
        options = _options_for(target, prompt)
        # Only Bedrock wants tools described that were called before and are not offered now.
        known = {"history_has_tools": _has_tools(messages)} if target == "bedrock" else {}
        codec = request_codec(target)
        parameters, unsaid = codec.encode_options(options, model=prompt.model, **known)
        notices = (*notices, *unsaid)
    system = prompt.system
    return Translated(
        system=None if system is None else parts_of(system),
        system_raw=None if system is None or system.dialect != target else system.raw,
        messages=messages,
        parameters=parameters,
        notices=notices,
    )


def call_ids(message: Message) -> list[str]:
    return [part.id for part in parts_of(message) if isinstance(part, ToolCall)]


def _options_for(target: Dialect, prompt: Prompt) -> Options:
    """What the prompt asks for, without forms that only its own protocol has."""
    parameters = prompt.parameters
    if prompt.dialect == "openai":
        parameters = with_tools_for_functions(parameters)
    options = request_codec(prompt.dialect).decode_options(parameters)
    # Both of OpenAI's protocols can say that only some of the tools are allowed.
    return options if target in ("openai", "responses") else restricted_to_allowed(options)


def _without_foreign_fields(
    messages: tuple[Spoken, ...],
) -> tuple[tuple[Spoken, ...], tuple[Notice, ...]]:
    """The messages without the fields beside their parts that another protocol gave them."""
    lost = [spoken for spoken in messages if spoken.extra and spoken.raw is None]
    if not lost:
        return messages, ()
    kept = (
        msgspec.structs.replace(spoken, extra=NOTHING) if spoken.raw is None else spoken
        for spoken in messages
    )
    return tuple(kept), left_out_fields(lost)


def _has_tools(messages: tuple[Spoken, ...]) -> bool:
    tools = (ToolCall, ToolResult)
    return any(isinstance(part, tools) for message in messages for part in message.parts)


def _sealed_by_openai(
    prompt: Prompt, messages: tuple[Spoken, ...], target: Dialect
) -> frozenset[int]:
    """Where there is thinking that only OpenAI can read, which is known by the id it has."""
    if target == "responses" or all(m.dialect != "responses" for m in prompt.messages):
        return frozenset()
    thoughts = (Thinking, RedactedThinking)
    return frozenset(
        spoken.place
        for spoken in messages
        if any(isinstance(part, thoughts) and "id" in part.extra for part in spoken.parts)
    )


def _without_foreign_thinking(
    messages: tuple[Spoken, ...], foreign: frozenset[int]
) -> tuple[tuple[Spoken, ...], tuple[Notice, ...]]:
    """The messages without what another model thought: a signature is good for its own only."""
    kept: list[Spoken] = []
    places: list[int] = []
    for spoken in messages:
        thoughts = (Thinking, RedactedThinking) if spoken.place in foreign else ()
        parts = [part for part in spoken.parts if not isinstance(part, thoughts)]
        same = len(parts) == len(spoken.parts)
        kept.append(spoken if same else rewritten(spoken, parts))
        places += [] if same else [spoken.place]
    if not places:
        return messages, ()
    times = f" ({len(places)} times)" if places[1:] else ""
    notice = Notice(
        code="thinking_left_out",
        path=f"messages[{places[0]}]",
        message=f"Thinking belongs to the model that wrote it; another is not sent it.{times}",
    )
    return tuple(kept), (notice,)


def is_refused_by_chat(prompt: Prompt) -> bool:
    """Whether OpenAI takes the prompt by its Responses API only: tools for a model that thinks."""
    tools = prompt.parameters.get("tools") or prompt.parameters.get("functions")
    if not tools or not calls_elsewhere(prompt.model, thinks=True):
        return False
    reasoning = _options_for("responses", prompt).reasoning
    return calls_elsewhere(prompt.model, thinks=None if reasoning is None else reasoning.enabled)

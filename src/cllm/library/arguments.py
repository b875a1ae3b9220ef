"""Validation: each function returns its argument or raises an error that names it."""

import operator
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict, TypeVar

import msgspec

from cllm.app import new_conversation_id, new_id, now
from cllm.core.conversation import check_ref as check_conversation_ref
from cllm.core.errors import InvalidTextError, UsageError
from cllm.core.message import Message, plain_message
from cllm.window.strategies import Strategy

T = TypeVar("T", bound=str)
AnyMessage = Message | Mapping[str, Any]
"""A dictionary has the fields of the OpenAI API: role, content, tool_calls, tool_call_id."""
MessageInput = str | AnyMessage | Sequence[AnyMessage]
SYSTEM_PATH = "messages[0]"


def check_text(name: str, value: str) -> str:
    """Return a text without lone surrogates; it may be empty."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a string, not {value!r}.")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise _surrogate_error(name, error) from None
    return value


def check_optional_text(name: str, value: str | None) -> str | None:
    return None if value is None else check_text(name, value)


def check_message_text(message: str) -> str:
    if not isinstance(message, str):
        # A ValueError, as for a blank message: programs of earlier versions catch it.
        raise InvalidTextError(
            f"A message must be a string and must not be empty or blank, not {message!r}."
        )
    if not message.strip():
        raise InvalidTextError("A message must not be empty or blank.")
    return check_text("A message", message)


def to_messages(value: MessageInput) -> tuple[Message, ...]:
    if isinstance(value, str):
        return (plain_message("user", check_message_text(value)),)
    values: Sequence[object] = value if isinstance(value, Sequence) else (value,)
    if not values:
        raise InvalidTextError("The list of messages is empty; add at least one message.")
    return tuple(_to_message(one, f"messages[{index}]") for index, one in enumerate(values))


def split_system(
    value: MessageInput, *, system: str | None
) -> tuple[Message | None, tuple[Message, ...]]:
    """Return the system prompt, if it is the first message, and the other messages.

    Raises UsageError if the call has the option `system` too.
    """
    messages = to_messages(value)
    if messages[0].role != "system":
        return None, messages
    if system is not None:
        raise UsageError(
            "The call has two system prompts: system= and the first message; use one of them."
        )
    return messages[0], messages[1:]


def _to_message(value: object, path: str) -> Message:
    if isinstance(value, Message):
        return value
    if not isinstance(value, Mapping):
        raise TypeError(
            "A message must be a string, a Message, a dictionary or a sequence of Messages or "
            f"dictionaries, not {value!r}."
        )
    from cllm.wire.openai.request import check_message  # noqa: PLC0415 - only for dictionaries

    fields = dict(value)
    role = check_message(fields, path)
    return Message(role=role, raw=encode_argument(path, fields))


def check_number(name: str, value: int, *, least: int | None = None) -> int:
    """Return a whole number; a bool is not accepted."""
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool):
        raise TypeError(f"{name} must be a whole number, not {value!r}.")
    if least is not None and number < least:
        raise ValueError(f"{name} must be at least {least}.")
    return number


def check_ref(ref: str | None) -> str:
    """Return the ID of a conversation; a new one for None."""
    if ref is None:
        return new_conversation_id(now(), new_id())
    if not isinstance(ref, str):
        raise TypeError(f"The ID of a conversation must be a string, not {ref!r}.")
    return check_conversation_ref(ref)


def check_choice(name: str, value: T, choices: tuple[T, ...]) -> T:
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(str, choices))}, not {value!r}.")
    return value


def check_window(window: Strategy | None) -> Strategy | None:
    if window is not None and not isinstance(window, Strategy):
        raise TypeError(
            "window must be ByTurns(max_turns=...), ByTokens(max_tokens=...) or Summarise(...), "
            f"not {window!r}."
        )
    return window


def encode_argument(name: str, value: object) -> bytes:
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError as error:
        raise _surrogate_error(name, error) from None
    except (TypeError, OverflowError) as error:
        raise TypeError(f"{name} cannot be encoded as JSON: {error}.") from None


def _surrogate_error(name: str, error: UnicodeEncodeError) -> InvalidTextError:
    return InvalidTextError(
        f"{name} has a lone surrogate at position {error.start}, which cannot "
        "be encoded; read the text with errors='replace', or remove it."
    )


class Parameters(TypedDict, total=False):
    """Fields of the request body. `parameters` is for all others that a provider accepts."""

    temperature: float
    top_p: float
    max_tokens: int
    stop: str | list[str]
    seed: int
    frequency_penalty: float
    presence_penalty: float
    reasoning_effort: str
    response_format: dict[str, Any]
    tools: list[dict[str, Any]]
    tool_choice: str | dict[str, Any]
    parameters: Mapping[str, Any]


NAMED_PARAMETERS = Parameters.__optional_keys__ - {"parameters"}


class Options(Parameters, total=False):
    """`conversation`: an ID to start or continue; True starts one; without it nothing is saved."""

    model: str | None
    system: str | None
    conversation: str | bool | None


def check_option_names(
    caller: str, options: Parameters, *, allowed: frozenset[str] = Options.__optional_keys__
) -> None:
    unknown = next((name for name in options if name not in allowed), None)
    if unknown is not None:
        raise TypeError(
            f"{caller}() got an unexpected keyword argument {unknown!r}; put other parameters "
            "of a provider into parameters={...}."
        )


def check_parameters(caller: str, options: Parameters) -> dict[str, Any]:
    check_option_names(caller, options, allowed=Parameters.__optional_keys__)
    return merge_parameters(options)


def check_parameter_fields(parameters: Mapping[str, Any]) -> Mapping[str, Any]:
    if not isinstance(parameters, Mapping):
        raise TypeError(f"parameters must be a dictionary, not {parameters!r}.")
    return parameters


def merge_parameters(options: Parameters) -> dict[str, Any]:
    others = check_parameter_fields(options.get("parameters") or {})
    parameters = {
        **others,
        **{name: value for name, value in options.items() if name in NAMED_PARAMETERS},
    }
    for name, value in parameters.items():
        encode_argument(f"The parameter {name!a}", value)
    return parameters

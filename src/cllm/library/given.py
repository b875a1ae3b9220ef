"""The arguments of a program, checked before anything is done with them.

Each function returns its argument, or raises an error that names it and says what it must be. A
keyword that has no name in `Options` is refused, since it can be misspelt; what else a provider
accepts goes into `parameters`. Nothing here changes a value or looks anything up.
"""

import operator
from collections.abc import Mapping
from typing import Any, TypedDict, TypeVar

import msgspec

from cllm.assembly.window import Strategy
from cllm.core.conversation import check_id
from cllm.core.errors import InvalidTextError

T = TypeVar("T", bound=str)


def check_text(name: str, value: str) -> str:
    """A text of whole characters; it may be empty."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a text, not {value!r}.")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise _half_a_character(name, error) from None
    return value


def check_optional_text(name: str, value: str | None) -> str | None:
    return None if value is None else check_text(name, value)


def check_said(message: str) -> str:
    """A message that says something."""
    if not isinstance(message, str) or not message.strip():
        raise InvalidTextError("A message must have some text.")
    return check_text("A message", message)


def check_number(name: str, value: int, *, least: int | None = None) -> int:
    """A whole number; True and False are none."""
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool):
        raise TypeError(f"{name} must be a whole number, not {value!r}.")
    if least is not None and number < least:
        raise ValueError(f"{name} must be at least {least}.")
    return number


def check_ref(ref: str) -> str:
    """The id of a conversation."""
    if not isinstance(ref, str):
        raise TypeError(f"The id of a conversation must be a text, not {ref!r}.")
    return check_id(ref)


def check_choice(name: str, value: T, choices: tuple[T, ...]) -> T:
    """One of the words that there are for it."""
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


def check_mapping(name: str, value: Mapping[str, Any]) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise TypeError(f"{name} must be a dictionary, not {value!r}.")
    return value


def encode_given(name: str, value: object) -> bytes:
    """A value as JSON."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError as error:
        raise _half_a_character(name, error) from None
    except (TypeError, OverflowError) as error:
        raise TypeError(f"{name} must be something that JSON has words for: {error}.") from None


def _half_a_character(name: str, error: UnicodeEncodeError) -> InvalidTextError:
    return InvalidTextError(
        f"{name} has half a character (a lone surrogate) at position {error.start}, which nobody "
        "can be sent; read the text with errors='replace', or take it out."
    )


class Parameters(TypedDict, total=False):
    """What goes into the request; providers that have no word for one of them say so."""

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


NAMED = Parameters.__optional_keys__ - {"parameters"}


class Options(Parameters, total=False):
    """The same, and who is asked in which conversation.

    `conversation` is the id of one to begin or go on with; True begins a new one, whose id is in
    the answer. Without it nothing is kept.
    """

    model: str | None
    system: str | None
    conversation: str | bool | None


def check_names(caller: str, options: Options) -> None:
    """TypeError if one of the keywords of a question has no name in `Options`."""
    _check_names(caller, options, known=Options.__optional_keys__)


def parameters_of(caller: str, given: Parameters) -> dict[str, Any]:
    """The keywords as one dictionary; TypeError if one has no name in `Parameters`."""
    _check_names(caller, given, known=Parameters.__optional_keys__)
    return flat(given)


def flat(given: Parameters) -> dict[str, Any]:
    """The parameters among the keywords as one dictionary."""
    named = {name: value for name, value in given.items() if name in NAMED}
    parameters = {**check_mapping("parameters", given.get("parameters") or {}), **named}
    for name, value in parameters.items():
        encode_given(f"The parameter {name!a}", value)
    return parameters


def _check_names(caller: str, given: Parameters, *, known: frozenset[str]) -> None:
    unknown = next((name for name in given if name not in known), None)
    if unknown is not None:
        raise TypeError(
            f"{caller}() got an unexpected keyword argument {unknown!r}; what else a provider "
            "takes goes into parameters={...}."
        )

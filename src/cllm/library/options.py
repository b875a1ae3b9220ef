"""What can be said beside a question, as keywords.

A keyword that has no name here is refused: it could be a misspelt one. What else a provider takes
goes into `parameters`.
"""

from collections.abc import Mapping
from typing import Any, TypedDict

from cllm.library.given import check_mapping, encode_given


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

"""What can be said beside a question, as keywords.

A keyword that has no name here goes into the request as well; a type checker wants it in
`parameters`.
"""

from collections.abc import Mapping
from typing import Any, TypedDict


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


class Options(Parameters, total=False):
    """The same, and who is asked in which conversation.

    `conversation` is the id of one to begin or go on with; True begins a new one, whose id is in
    the answer. Without it nothing is kept.
    """

    model: str | None
    system: str | None
    conversation: str | bool | None


def flat(given: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters as one dictionary."""
    named = {name: value for name, value in given.items() if name != "parameters"}
    return {**(given.get("parameters") or {}), **named}

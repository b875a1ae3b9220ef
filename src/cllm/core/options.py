"""What a request asks for beside its messages, in no protocol's words.

A codec reads its protocol's fields into these and writes them out of these. A field that no name
here fits stays in `extra`, under the name it had, for the codec of the same protocol; another one
says in a notice that it was left out.
"""

from typing import Any, Literal

import msgspec

from cllm.core.message import CacheMark, Dialect

ToolChoiceKind = Literal["auto", "any", "none", "tool"]


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """A function that the model may call. `schema` is the JSON schema of its arguments."""

    name: str
    description: str | None = None
    schema: dict[str, Any] = msgspec.field(default_factory=dict)
    strict: bool | None = None
    cache: CacheMark | None = None
    extra: dict[str, Any] = msgspec.field(default_factory=dict)


class ForeignTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool of a kind that only one protocol has, as it came; no other can be asked for it."""

    dialect: Dialect
    name: str
    raw: dict[str, Any]


AnyTool = Tool | ForeignTool


class ToolChoice(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the model must call a tool, may, or may not; `name` with the kind `tool`."""

    kind: ToolChoiceKind
    name: str | None = None


class JsonOutput(msgspec.Struct, frozen=True, kw_only=True):
    """The answer is to be JSON, of this schema if one is given."""

    schema: dict[str, Any] | None = None
    name: str | None = None
    strict: bool | None = None


class Reasoning(msgspec.Struct, frozen=True, kw_only=True):
    """How much the model is to think: not at all, by effort, or up to so many tokens.

    `raw` is the setting as it came, in the words of `dialect`.
    """

    enabled: bool
    effort: str | None = None
    budget_tokens: int | None = None
    dialect: Dialect | None = None
    raw: dict[str, Any] | None = None


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """All of it. None is not said; 0, False and empty lists are."""

    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    stop: tuple[str, ...] | None = None
    tools: tuple[AnyTool, ...] | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    output: JsonOutput | None = None
    reasoning: Reasoning | None = None
    seed: int | None = None
    user: str | None = None
    extra: dict[str, Any] = msgspec.field(default_factory=dict)

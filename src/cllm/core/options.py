"""The options of a request, independent of the protocol.

Other fields stay in `extra` for the codec of the same protocol; another codec leaves them out, with
a notice.
"""

from typing import Any, Literal

import msgspec

from cllm.core.message import CacheMark, Dialect

ToolChoiceKind = Literal["auto", "any", "none", "tool"]


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    description: str | None = None
    schema: dict[str, Any] = msgspec.field(default_factory=dict)
    strict: bool | None = None
    cache: CacheMark | None = None
    extra: dict[str, Any] = msgspec.field(default_factory=dict)


class ForeignTool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool of a type that only one protocol has."""

    dialect: Dialect
    name: str
    raw: dict[str, Any]

    @property
    def api(self) -> str:
        """The name of the API that has the tool, for error messages."""
        return "OpenAI's Responses API" if self.dialect == "responses" else self.dialect


AnyTool = Tool | ForeignTool


class ToolChoice(msgspec.Struct, frozen=True, kw_only=True):
    kind: ToolChoiceKind
    name: str | None = None


class JsonOutput(msgspec.Struct, frozen=True, kw_only=True):
    schema: dict[str, Any] | None = None
    name: str | None = None
    strict: bool | None = None


class Reasoning(msgspec.Struct, frozen=True, kw_only=True):
    """`raw` is the setting in the format of `dialect`."""

    enabled: bool
    effort: str | None = None
    budget_tokens: int | None = None
    dialect: Dialect | None = None
    raw: dict[str, Any] | None = None


class RequestOptions(msgspec.Struct, frozen=True, kw_only=True):
    """None is an absent field."""

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

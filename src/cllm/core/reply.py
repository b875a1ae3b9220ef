"""The reply of a provider, as events; a reply that is not streamed has the same events."""

from collections.abc import Iterable
from typing import Literal

import msgspec

from cllm.core.message import AnyPart, Dialect, Message
from cllm.core.notice import Notice

StopReason = Literal[
    "end",
    "length",
    "context_window",
    "tool_calls",
    "stop_sequence",
    "content_filter",
    "refusal",
    "pause",
    "unknown",
]
"""`length`: the reply reached its own limit. `context_window`: it filled the context window."""


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of one call; the first five numbers do not overlap.

    `cache_write_hour` is the part of `cache_write` with a lifetime of one hour, which costs more.
    """

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0
    cache_write_hour: int = 0
    estimated: bool = False

    @property
    def total(self) -> int:
        return self.input + self.output + self.cache_read + self.cache_write + self.reasoning

    @property
    def prompt(self) -> int:
        return self.input + self.cache_read + self.cache_write

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            input=self.input + other.input,
            output=self.output + other.output,
            cache_read=self.cache_read + other.cache_read,
            cache_write=self.cache_write + other.cache_write,
            reasoning=self.reasoning + other.reasoning,
            cache_write_hour=self.cache_write_hour + other.cache_write_hour,
            estimated=self.estimated or other.estimated,
        )


def sum_costs(costs: Iterable[float | None]) -> float | None:
    """Return the sum of the known costs; None if there are costs and none is known."""
    listed = list(costs)
    known = [cost for cost in listed if cost is not None]
    return sum(known, 0.0) if known or not listed else None


class TextDelta(msgspec.Struct, frozen=True, kw_only=True, tag="text"):
    """In every delta, `index` is the index of its part in the reply."""

    text: str
    index: int = 0


class RefusalDelta(msgspec.Struct, frozen=True, kw_only=True, tag="refusal"):
    text: str
    index: int = 0


class ThinkingDelta(msgspec.Struct, frozen=True, kw_only=True, tag="thinking"):
    """`field`: the provider's name for reasoning in OpenAI's protocol, if it is not the usual."""

    text: str = ""
    signature: str | None = None
    index: int = 0
    field: str | None = None


class ToolCallDelta(msgspec.Struct, frozen=True, kw_only=True, tag="tool_call"):
    """The first delta of a call has `id` and `name`."""

    index: int
    id: str | None = None
    name: str | None = None
    arguments: str = ""


class PartAdded(msgspec.Struct, frozen=True, kw_only=True, tag="part"):
    """A part that is not streamed: redacted thinking, or a part of an unknown type."""

    part: AnyPart
    index: int = 0


class Verbatim(msgspec.Struct, frozen=True, kw_only=True, tag="verbatim"):
    """Unchanged events of a provider's stream, in addition, for clients of its protocol.

    `closes`: from the event on that announces the end.
    """

    dialect: Dialect
    data: bytes
    closes: bool = False


class Noticed(msgspec.Struct, frozen=True, kw_only=True, tag="notice"):
    """A notice about the prompt, before any part of the reply."""

    notice: Notice


class UsageReported(msgspec.Struct, frozen=True, kw_only=True, tag="usage"):
    """Token counts before the reply is complete; a later event replaces an earlier one."""

    usage: Usage


class ReplyFinished(msgspec.Struct, frozen=True, kw_only=True, tag="finished"):
    """The reply is complete; `raw` is its JSON in the provider's protocol, if it has one."""

    message: Message
    stop_reason: StopReason
    stop_sequence: str | None = None
    usage: Usage | None = None
    model: str | None = None
    raw: bytes | None = None


class ModelReported(msgspec.Struct, frozen=True, kw_only=True, tag="model"):
    """The provider's name for the model, before any part of a streamed reply."""

    model: str


ReplyDelta = TextDelta | RefusalDelta | ThinkingDelta | ToolCallDelta | PartAdded
ReplyEvent = Noticed | UsageReported | ModelReported | ReplyDelta | Verbatim | ReplyFinished

"""What a provider answers: events as they come, and the reply they add up to.

A whole answer is the same events in a burst, so nothing above a provider asks how the answer
travelled.
"""

from typing import Literal

import msgspec

from cllm.core.message import AnyPart, Dialect, Message
from cllm.core.notice import Notice

StopReason = Literal[
    "end", "length", "tool_calls", "stop_sequence", "content_filter", "refusal", "pause", "unknown"
]


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of one call, as the provider counted them.

    The five numbers are disjoint and add up: `input` is what was neither read from nor written
    to a cache, `output` is what was not reasoning. `cache_write_hour` is how much of `cache_write`
    is to be kept for an hour, which costs more.
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
        """What the prompt came to."""
        return self.input + self.cache_read + self.cache_write

    def __add__(self, other: "Usage") -> "Usage":
        """What two calls used; estimated if one of them is."""
        return Usage(
            input=self.input + other.input,
            output=self.output + other.output,
            cache_read=self.cache_read + other.cache_read,
            cache_write=self.cache_write + other.cache_write,
            reasoning=self.reasoning + other.reasoning,
            cache_write_hour=self.cache_write_hour + other.cache_write_hour,
            estimated=self.estimated or other.estimated,
        )


class TextDelta(msgspec.Struct, frozen=True, kw_only=True, tag="text"):
    """A piece of the text. `index` is the place of its part in the reply, in every delta."""

    text: str
    index: int = 0


class RefusalDelta(msgspec.Struct, frozen=True, kw_only=True, tag="refusal"):
    """A piece of what the model says instead of an answer, where its protocol tells them apart."""

    text: str
    index: int = 0


class ThinkingDelta(msgspec.Struct, frozen=True, kw_only=True, tag="thinking"):
    """A piece of the thinking; its signature comes when the part is whole."""

    text: str = ""
    signature: str | None = None
    index: int = 0


class ToolCallDelta(msgspec.Struct, frozen=True, kw_only=True, tag="tool_call"):
    """A piece of a tool call. `id` and `name` come with its first piece."""

    index: int
    id: str | None = None
    name: str | None = None
    arguments: str = ""


class PartAdded(msgspec.Struct, frozen=True, kw_only=True, tag="part"):
    """A part that came whole: redacted thinking, or one of a kind we have no name for."""

    part: AnyPart
    index: int = 0


class Verbatim(msgspec.Struct, frozen=True, kw_only=True, tag="verbatim"):
    """Events of a provider's stream as it sent them, for a client that speaks its protocol.

    What they say is told by the other events as well. `closes` from the one on that announces the
    end of the answer.
    """

    dialect: Dialect
    data: bytes
    closes: bool = False


class Noticed(msgspec.Struct, frozen=True, kw_only=True, tag="notice"):
    """Something of the prompt could not be sent as it was; comes before anything of the answer."""

    notice: Notice


class ReplyFinished(msgspec.Struct, frozen=True, kw_only=True, tag="finished"):
    """The provider said that its answer is over. Without this event there was no whole answer.

    `raw` is the answer in the provider's own JSON, where its protocol has one for it in one piece.
    """

    message: Message
    stop_reason: StopReason
    stop_sequence: str | None = None
    usage: Usage | None = None
    model: str | None = None
    raw: bytes | None = None


ReplyDelta = TextDelta | RefusalDelta | ThinkingDelta | ToolCallDelta | PartAdded
ReplyEvent = Noticed | ReplyDelta | Verbatim | ReplyFinished

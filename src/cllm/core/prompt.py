"""A prompt for one model, independent of the protocol."""

from collections.abc import Sequence
from typing import Any

import msgspec

from cllm.core.conversation import WindowRecord
from cllm.core.message import Dialect, Message
from cllm.core.notice import Notice


class Continuity(msgspec.Struct, frozen=True, kw_only=True):
    """What a prompt shares with the previous and the next one.

    The last `fresh` messages are not in the previous prompt, the last `passing` not in the next.
    """

    fresh: int
    passing: int = 0

    def after(self, more: int) -> "Continuity":
        """Return the continuity of the next prompt of the same turn, with `more` messages."""
        if self.passing:
            return Continuity(fresh=self.fresh + more, passing=self.passing + more)
        return Continuity(fresh=more)


class Prompt(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a provider needs to call its model once.

    `parameters` are in the format of `dialect`. `cache_key` identifies the conversation. `foreign`
    are the positions of messages from another model, whose thinking this model refuses. `strict`
    turns a notice about a change into an error. `is_variant`: the reply should differ from
    an earlier one to the same messages. Without `continuity`, no other prompt will start like this
    one.
    """

    model: str
    messages: tuple[Message, ...]
    system: Message | None = None
    parameters: dict[str, Any] = msgspec.field(default_factory=dict)
    dialect: Dialect = "openai"
    stream: bool = True
    cache_key: str | None = None
    foreign: frozenset[int] = frozenset()
    strict: bool = False
    is_variant: bool = False
    original: "Original | None" = None
    window: WindowRecord | None = None
    continuity: Continuity | None = None
    notices: tuple[Notice, ...] = ()

    @property
    def all_messages(self) -> tuple[Message, ...]:
        return self.messages if self.system is None else (self.system, *self.messages)

    def going_on(self, messages: Sequence[Message]) -> "Prompt":
        """Return the next prompt of the same turn."""
        continuity = self.continuity
        return msgspec.structs.replace(
            self,
            messages=(*self.messages, *messages),
            original=None,
            continuity=None if continuity is None else continuity.after(len(messages)),
        )


class Original(msgspec.Struct, frozen=True, kw_only=True):
    """A client's request."""

    body: bytes
    dialect: Dialect
    model: str
    system: Message | None
    messages: tuple[Message, ...]
    parameters: dict[str, Any]
    stream: bool

    def says(self, prompt: Prompt) -> bool:
        """Whether the body can be sent for the prompt."""
        return (
            self.dialect == prompt.dialect
            and self.model == prompt.model
            and self.stream == prompt.stream
            and self.system == prompt.system
            and self.messages == prompt.messages
            and self.parameters == prompt.parameters
        )


def prompt_from_original(original: Original) -> Prompt:
    return Prompt(
        model=original.model,
        system=original.system,
        messages=original.messages,
        parameters=original.parameters,
        dialect=original.dialect,
        stream=original.stream,
        original=original,
    )

"""What is sent: one prompt, assembled for one model, in no protocol's words yet."""

from collections.abc import Sequence
from typing import Any

import msgspec

from cllm.core.conversation import WindowRecord
from cllm.core.message import Dialect, Message
from cllm.core.notice import Notice


class Continuity(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt's place among those of its conversation, in messages counted from its end.

    The last `fresh` were not in the prompt before, or stood behind what was for that turn only;
    the last `passing` are not what the next prompt will go on with.
    """

    fresh: int
    passing: int = 0

    def after(self, more: int) -> "Continuity":
        """That of the next prompt of the same turn, which has so many messages more."""
        if self.passing:
            return Continuity(fresh=self.fresh + more, passing=self.passing + more)
        return Continuity(fresh=more)


class Prompt(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a provider needs to ask its model once.

    `parameters` are the fields of the request beside messages and model (sampling, tools), in the
    words of `dialect`. The `cache_key` names the conversation to providers that keep something of
    their own for it. `foreign` are the positions of messages that another model wrote, whose
    thinking this one does not take back. With `strict`, what cannot be sent as it is is an error
    where it would be a notice. `original` is the client's own body, for a provider that speaks
    its protocol. Without `continuity` no other prompt will begin like this one.
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
    original: "Original | None" = None
    window: WindowRecord | None = None
    continuity: Continuity | None = None
    notices: tuple[Notice, ...] = ()

    @property
    def all_messages(self) -> tuple[Message, ...]:
        """The system prompt, if there is one, and the messages, in the order they are sent."""
        return self.messages if self.system is None else (self.system, *self.messages)

    def going_on(self, messages: Sequence[Message]) -> "Prompt":
        """The next prompt of the same turn: this one, and what was said since."""
        continuity = self.continuity
        return msgspec.structs.replace(
            self,
            messages=(*self.messages, *messages),
            original=None,
            continuity=None if continuity is None else continuity.after(len(messages)),
        )


class Original(msgspec.Struct, frozen=True, kw_only=True):
    """A request as the bytes in which a client sent it, and what they say.

    The bytes stand for a prompt only as long as that says the same; whatever changed it, a
    stored history or a system prompt of ours, they are not what is to be sent any more.
    """

    body: bytes
    dialect: Dialect
    model: str
    system: Message | None
    messages: tuple[Message, ...]
    parameters: dict[str, Any]
    stream: bool

    def says(self, prompt: Prompt) -> bool:
        """Whether the body is exactly this prompt."""
        return (
            self.dialect == prompt.dialect
            and self.model == prompt.model
            and self.stream == prompt.stream
            and self.system == prompt.system
            and self.messages == prompt.messages
            and self.parameters == prompt.parameters
        )


def prompt_of(original: Original) -> Prompt:
    """The prompt that a client's body asks for."""
    return Prompt(
        model=original.model,
        system=original.system,
        messages=original.messages,
        parameters=original.parameters,
        dialect=original.dialect,
        stream=original.stream,
        original=original,
    )

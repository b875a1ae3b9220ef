"""What is sent: one prompt, assembled for one model, in no protocol's words yet."""

from typing import Any

import msgspec

from cllm.core.conversation import WindowRecord
from cllm.core.message import Dialect, Message
from cllm.core.notice import Notice


class Prompt(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a provider needs to ask its model once.

    `parameters` are the fields of the request beside messages and model (sampling, tools), in the
    words of `dialect`. The `cache_key` names the conversation to providers that keep something of
    their own for it.
    """

    model: str
    messages: tuple[Message, ...]
    system: Message | None = None
    parameters: dict[str, Any] = msgspec.field(default_factory=dict)
    dialect: Dialect = "openai"
    stream: bool = True
    cache_key: str | None = None
    window: WindowRecord | None = None
    notices: tuple[Notice, ...] = ()

    @property
    def all_messages(self) -> tuple[Message, ...]:
        """The system prompt, if there is one, and the messages, in the order they are sent."""
        return self.messages if self.system is None else (self.system, *self.messages)

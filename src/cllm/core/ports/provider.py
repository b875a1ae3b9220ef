"""The port of a provider, and the types of clocks and ID generators."""

from collections.abc import AsyncGenerator, Callable
from datetime import datetime
from typing import Protocol, runtime_checkable

import msgspec

from cllm.core.notice import Notice
from cllm.core.prompt import Prompt
from cllm.core.reply import ReplyEvent

Clock = Callable[[], datetime]
NewId = Callable[[], str]


class TokenCount(msgspec.Struct, frozen=True, kw_only=True):
    """The provider's token count of a prompt; `raw` is the body of its response."""

    tokens: int
    notices: tuple[Notice, ...] = ()
    raw: bytes | None = None


@runtime_checkable
class TokenCounter(Protocol):
    """A provider that counts the tokens of a prompt without calling the model."""

    async def count_tokens(self, prompt: Prompt) -> TokenCount | None:
        """Return the count; None if this model has no token count."""
        ...


class Provider(Protocol):
    """Calls one service. Transports requests and replies; codecs translate them.

    An optional attribute `can_use_tools` is False if the model cannot call tools.
    """

    name: str

    async def prepare(self) -> None:
        """Do slow work that can fail before a turn starts, such as downloading a model."""
        ...

    def ask(self, prompt: Prompt) -> AsyncGenerator[ReplyEvent, None]:
        """Call the model once, without retry. The last event is ReplyFinished, or it raises."""
        ...

    async def close(self) -> None: ...

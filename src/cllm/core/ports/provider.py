"""The port of a provider; the clock and the new ids that are passed in as parameters."""

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
    """How many tokens a prompt is, by whoever would read it; `raw` is all that they said."""

    tokens: int
    notices: tuple[Notice, ...] = ()
    raw: bytes | None = None


@runtime_checkable
class TokenCounter(Protocol):
    """A provider that counts the tokens of a prompt without answering it."""

    async def count_tokens(self, prompt: Prompt) -> TokenCount | None:
        """The count; None if there is none to be had for this model."""
        ...


class Provider(Protocol):
    """Asks one service. Carries requests and answers; what they mean is the codecs' work."""

    name: str

    async def prepare(self) -> None:
        """Do what takes long and can fail before a turn begins, such as fetching a model."""
        ...

    def ask(self, prompt: Prompt) -> AsyncGenerator[ReplyEvent, None]:
        """Ask once, without retrying. The last event is ReplyFinished, or an error is raised."""
        ...

    async def close(self) -> None: ...

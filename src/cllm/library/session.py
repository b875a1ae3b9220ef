"""What the functions of the library run on: the settings of this place, an app, and a loop.

One session serves the whole program. It is made when it is first needed and closed at the end.
"""

import asyncio
import atexit
import os
from collections.abc import AsyncGenerator, Coroutine
from contextlib import aclosing, suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from cllm.app import App
from cllm.core.errors import CllmError
from cllm.core.notice import Notice
from cllm.core.reply import Noticed, TextDelta
from cllm.engine.turn import TurnBegan, TurnEnded, TurnEvent, TurnRequest
from cllm.library.answer import Answer
from cllm.library.loop import BackgroundLoop, closed, following
from cllm.settings.load import CommandLine, Place, load_settings

T = TypeVar("T")


class Session:
    """An app and the event loop that its connections live on."""

    def __init__(self) -> None:
        place = Place(home=Path.home(), directory=Path.cwd(), environment=dict(os.environ))
        self.app = App(load_settings(place, CommandLine()))
        self.loop = BackgroundLoop()

    async def answer(self, request: TurnRequest) -> Answer:
        """Take a turn; its whole answer."""
        async with aclosing(self.events(request)) as events:
            async for event in events:
                if isinstance(event, Answer):
                    return event
        raise AssertionError("a turn ends with an answer or an error")

    async def events(self, request: TurnRequest) -> AsyncGenerator[TurnEvent | Answer, None]:
        """The events of a turn, the last of them as an answer."""
        notices: list[Notice] = []
        conversation: str | None = None
        async with aclosing(self.app.engine().take_turn(request)) as events:
            async for event in events:
                match event:
                    case TurnBegan():
                        conversation = event.conversation
                        notices += event.prompt.notices
                    case Noticed():
                        notices.append(event.notice)
                    case TurnEnded():
                        yield Answer.of(event, conversation=conversation, notices=tuple(notices))
                        return
                    case _:
                        pass
                yield event

    async def pieces(self, request: TurnRequest) -> AsyncGenerator[str | Answer, None]:
        """The text of an answer as it comes, and at last the answer."""
        async with aclosing(self.events(request)) as events:
            async for event in events:
                if isinstance(event, TextDelta):
                    yield event.text
                elif isinstance(event, Answer):
                    yield event

    async def elsewhere(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait on the caller's own loop for work on the session's."""
        return await asyncio.wrap_future(self.loop.submit(work))

    async def iterate_elsewhere(self, events: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
        """The items of a generator that runs on the session's loop; leaving early closes it."""
        try:
            while True:
                try:
                    yield await self.elsewhere(following(events))
                except StopAsyncIteration:
                    return
        finally:
            await self.elsewhere(closed(events))

    def close(self) -> None:
        with suppress(CllmError, OSError, RuntimeError):
            self.loop.run(self.app.close())
        self.loop.stop()


@cache
def session() -> Session:
    """The session of this program."""
    made = Session()
    atexit.register(made.close)
    return made

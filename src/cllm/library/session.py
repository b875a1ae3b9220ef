"""What the library runs on: the settings of this place, an app, and the turns that are under way.

One session serves the whole program. It is made when it is first needed and closed at the end.
"""

import os
from contextlib import aclosing
from pathlib import Path

import msgspec

from cllm.app import App
from cllm.core.notice import Notice
from cllm.core.ports import Store
from cllm.core.reply import Noticed, TextDelta
from cllm.engine.request import TurnBegan, TurnEnded, TurnRequest
from cllm.library.answer import Answer, Pieces
from cllm.library.loop import CALLER, OncePerProcess, Who, background, closed
from cllm.settings.load import CommandLine, Place, load_settings


class _Left(msgspec.Struct, frozen=True, kw_only=True):
    """A stream that is not at its end, and who reads it."""

    reader: Who
    pieces: Pieces


class Session:
    """An app, whose connections live on cllm's own loop."""

    def __init__(self) -> None:
        place = Place(home=Path.home(), directory=Path.cwd(), environment=dict(os.environ))
        self.app = App(load_settings(place, CommandLine()))
        self._under_way: dict[tuple[int, str], _Left] = {}
        background().at_stop(self.app.close)

    def pieces(self, request: TurnRequest, *, store: Store | None = None) -> Pieces:
        """Take a turn: the text of the answer as it comes, and at last the answer."""
        kept_in = self.app.store if store is None else store
        said = self._said(request, kept_in)
        ref = request.policy.ref
        return said if ref is None else self._noted(said, kept_in, ref)

    async def _noted(self, said: Pieces, store: Store, ref: str) -> Pieces:
        """The same, with a note of who reads it as long as it is not at its end."""
        await self.let_go(store, ref)
        key = (id(store), ref)
        mine = _Left(reader=CALLER.get(), pieces=said)
        self._under_way[key] = mine
        try:
            async with aclosing(said):
                async for piece in said:
                    yield piece
        finally:
            if self._under_way.get(key) is mine:
                del self._under_way[key]

    async def _said(self, request: TurnRequest, store: Store) -> Pieces:
        """The text of a turn as it arrives, and at last the answer."""
        notices: list[Notice] = []
        conversation: str | None = None
        async with aclosing(self.app.engine(store).run_turn(request)) as events:
            async for event in events:
                match event:
                    case TextDelta():
                        yield event.text
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

    async def let_go(self, store: Store, ref: str) -> None:
        """End a stream of that conversation that its reader left without closing it.

        The reader does something else now and would wait for itself. Another's stream goes on.
        """
        left = self._under_way.get((id(store), ref))
        if left is not None and left.reader == CALLER.get():
            await closed(left.pieces)


def _forget(_session: Session) -> None:
    """Nothing to end: the loop closes the app."""


session = OncePerProcess(Session, _forget)
"""The session of this program."""

"""One turn of a chat: its events on the screen, and what it used and cost.

An error of ours ends the turn and not the chat.
"""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, assert_never

from cllm.core.errors import CllmError
from cllm.core.reply import (
    Noticed,
    PartAdded,
    RefusalDelta,
    ReplyFinished,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    Verbatim,
)
from cllm.engine.request import TurnBegan, TurnEnded, TurnEvent, TurnRequest, TurnWaits
from cllm.engine.rounds import RoundEnded
from cllm.repl.chat import Chat
from cllm.repl.status import answer_line

if TYPE_CHECKING:
    from cllm.repl.screen import Answer

TICK = 0.08


async def take_turn(chat: Chat, request: TurnRequest) -> None:
    """Take the turn and show it. What was said so far is kept if it is cancelled."""
    answer = chat.screen.begin_answer()
    failed = False
    try:
        async with _redrawn(answer):
            await _show_all(chat, request, answer)
    except CllmError as error:
        failed = True
        chat.failures += 1
        chat.screen.error(error)
    except asyncio.CancelledError:
        chat.screen.note(_interrupted(request))
        raise
    finally:
        chat.screen.end_answer()
        await _look(chat, request, failed=failed)


async def _show_all(chat: Chat, request: TurnRequest, answer: "Answer") -> None:
    shown = _Turn(chat, answer)
    log = None if chat.new_log is None else chat.new_log()
    async with aclosing(chat.app.engine().run_turn(request)) as events:
        async for event in events:
            shown.hear(event)
            if log is not None:
                log(event)


async def _look(chat: Chat, request: TurnRequest, *, failed: bool) -> None:
    """See what became of the turn; if it failed, the person was told why once already."""
    try:
        await chat.taken(request)
    except CllmError:
        if not failed:
            raise


def _interrupted(request: TurnRequest) -> str:
    is_kept = request.policy.on_interrupt == "keep"
    kept = "What was said so far is kept." if is_kept else "Nothing is kept."
    return f"Interrupted. {kept}"


@asynccontextmanager
async def _redrawn(answer: "Answer") -> AsyncGenerator[None, None]:
    """While this runs, what has come is shown also when nothing more comes."""

    async def tick() -> None:
        while True:
            answer.refresh()
            await asyncio.sleep(TICK)

    ticking = asyncio.create_task(tick())
    try:
        yield
    finally:
        ticking.cancel()


class _Turn:
    """Shows the events of one turn."""

    def __init__(self, chat: Chat, answer: "Answer") -> None:
        self._chat = chat
        self._screen = chat.screen
        self._answer = answer
        self._began = time.monotonic()

    def hear(self, event: TurnEvent) -> None:
        match event:
            case TurnWaits():
                self._screen.note(f"Waiting for another turn in '{event.conversation}' to end.")
            case TurnBegan():
                self._begin(event)
            case Noticed():
                self._screen.warn(event.notice)
            case TextDelta() | RefusalDelta():
                self._write(event.text)
            case ThinkingDelta():
                self._answer.think(event.text)
            case RoundEnded():
                self._answer.settle()
            case TurnEnded():
                self._end(event)
            case ToolCallDelta() | PartAdded() | Verbatim() | ReplyFinished():
                pass
            case _:
                assert_never(event)

    def _write(self, text: str) -> None:
        """Show it, unless it has to fit a schema: that is known at the end only."""
        if self._chat.hold is None:
            self._answer.write(text)

    def _begin(self, event: TurnBegan) -> None:
        for notice in self._chat.untold(event.prompt.notices):
            self._screen.warn(notice)

    def _end(self, event: TurnEnded) -> None:
        usage = event.reply.usage if event.turn is None else event.turn.usage
        self._chat.sitting = self._chat.sitting.plus(usage, event.cost)
        if self._chat.hold is not None:
            self._answer.write(event.reply.message.text)
        if not event.reply.message.text.strip():
            self._screen.note("The model answered without a text.")
        if event.reply.stop_reason == "length":
            self._screen.note("The answer reached its limit of tokens (`max_tokens`).")
        if self._chat.options.show_stats:
            seconds = time.monotonic() - self._began
            self._screen.note(answer_line(usage, event.cost, seconds))

"""One turn of a chat: prints its events, usage and cost. A CllmError does not end the chat."""

import asyncio
import contextlib
import time
from contextlib import aclosing
from typing import TYPE_CHECKING, assert_never

from cllm.app import NO_TEXT, TOOL_NOT_RUN
from cllm.core.errors import CllmError
from cllm.core.notice import Notice
from cllm.core.reply import (
    ModelReported,
    Noticed,
    PartAdded,
    RefusalDelta,
    ReplyFinished,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    UsageReported,
    Verbatim,
)
from cllm.engine.request import TurnEnded, TurnEvent, TurnQueued, TurnRequest, TurnStarted
from cllm.engine.tool_rounds import ToolRoundEnded
from cllm.history.repair import NOTICES as REPAIR_NOTICES
from cllm.repl.chat import Chat
from cllm.repl.format import format_price
from cllm.repl.progress import TurnProgress, describe_reading

if TYPE_CHECKING:
    from cllm.repl.screen import Answer

REDRAW_SECONDS = 0.08


async def run_chat_turn(chat: Chat, request: TurnRequest) -> None:
    answer = chat.screen.start_answer()
    redraw = asyncio.create_task(_redraw(answer))
    has_failed, turns_before = False, chat.count_turns()
    progress = TurnProgress(request)
    try:
        await _show_all(chat, request, answer, progress)
    except CllmError as error:
        has_failed = True
        chat.failures += 1
        chat.screen.error(error)
        if progress.is_saved_after(error):
            chat.app.record_use(progress.lease)
            if chat.screen.is_terminal:
                chat.screen.note("Your message is saved; /retry sends it again.")
        if chat.new_log is not None:
            from cllm.logs import log_error  # noqa: PLC0415 - most chats write no log

            log_error("turn", error)
    except asyncio.CancelledError:
        if progress.is_saved_when_interrupted:
            chat.app.record_use(progress.lease)
        chat.screen.note(f"Interrupted. {progress.describe_interrupted()}")
        raise
    finally:
        redraw.cancel()
        chat.screen.end_answer()
        # After a failure the user has seen its reason; a second error adds nothing.
        with contextlib.suppress(*([CllmError] if has_failed else [])):
            await chat.finish_turn(request)
            notice = chat.announce_trim(turns_before)
            if notice is not None:
                chat.screen.warn(notice)


async def _show_all(
    chat: Chat, request: TurnRequest, answer: "Answer", progress: TurnProgress
) -> None:
    view = TurnPrinter(chat, answer)
    log = None if chat.new_log is None else chat.new_log()
    async with aclosing(chat.app.engine().run_turn(request)) as events:
        async for event in events:
            progress.on_event(event)
            if isinstance(event, TurnEnded):
                chat.app.record_use(progress.lease)
            view.on_event(event)
            if log is not None:
                log(event)


async def _redraw(answer: "Answer") -> None:
    while True:
        answer.refresh()
        await asyncio.sleep(REDRAW_SECONDS)


class TurnPrinter:
    def __init__(self, chat: Chat, answer: "Answer") -> None:
        self._chat = chat
        self._screen = chat.screen
        self._answer = answer
        self._started_at = time.monotonic()

    def on_event(self, event: TurnEvent) -> None:
        match event:
            case TurnQueued():
                self._screen.note(f"Waiting for another turn in '{event.conversation}' to finish.")
            case TurnStarted():
                self._start(event)
            case Noticed():
                self._warn(event.notice)
            case TextDelta() | RefusalDelta():
                self._write(event.text)
            case ThinkingDelta():
                self._answer.think(event.text)
            case ToolRoundEnded():
                self._answer.settle()
            case TurnEnded():
                self._end(event)
            case ToolCallDelta() | PartAdded() | Verbatim():
                pass
            case UsageReported() | ModelReported() | ReplyFinished():
                pass
            case _:
                assert_never(event)

    def _start(self, event: TurnStarted) -> None:
        if self._screen.is_terminal and (reading := describe_reading(event)) is not None:
            self._screen.note(reading)
        for notice in self._chat.new_notices(event.prompt.notices):
            self._screen.warn(notice)

    def _warn(self, notice: Notice) -> None:
        # Each later turn repairs the same history in the same way.
        is_new = notice.code not in REPAIR_NOTICES or self._chat.new_notices((notice,))
        if is_new:
            self._screen.warn(notice)

    def _write(self, text: str) -> None:
        # A reply is checked against the schema before it is shown.
        if self._chat.apply_schema is None:
            self._answer.write(text)

    def _end(self, event: TurnEnded) -> None:
        usage = event.reply.usage if event.turn is None else event.turn.usage
        self._chat.session_usage = self._chat.session_usage.plus(usage, event.cost)
        if self._chat.apply_schema is not None:
            self._answer.write(event.reply.message.text)
        if event.reply.stop_reason == "tool_calls":
            self._screen.note(TOOL_NOT_RUN)
        elif not event.reply.message.text.strip():
            self._screen.note(NO_TEXT)
        if event.reply.stop_reason == "length":
            self._screen.note("The reply reached the token limit; increase `max_tokens`.")
        if event.reply.stop_reason == "context_window":
            self._screen.note("The reply filled the model's context window and is incomplete.")
        if self._chat.options.show_stats:
            seconds = time.monotonic() - self._started_at
            self._screen.note(f"{format_price(usage, event.cost)} · {seconds:.1f} s")

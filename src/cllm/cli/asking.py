"""One turn from the shell, with its printing: runs the engine and shows its events."""

import asyncio
import contextlib
import os
import signal
from contextlib import aclosing
from pathlib import Path
from types import FrameType
from typing import assert_never

import msgspec

from cllm.app import DEFAULT_MODEL, App, new_conversation_id, new_id, now
from cllm.cli import printing
from cllm.cli.main import EXIT_INTERRUPTED, Terminated
from cllm.cli.progress import Progress
from cllm.core.conversation import Policy
from cllm.core.errors import ConversationNotFoundError
from cllm.core.message import plain_message
from cllm.core.ports import NewConversation
from cllm.core.reply import Noticed, PartAdded, TextDelta, ThinkingDelta, ToolCallDelta
from cllm.engine.turn import TurnBegan, TurnEnded, TurnEvent, TurnRequest, TurnWaits
from cllm.settings.load import CommandLine, Place, load_settings

PATIENT_PRESSES = 2
PATIENT_SECONDS = 1.0

HINT = (
    "Using the small model that runs on this machine. For better answers choose a larger one: "
    "-m openai/gpt-4o, the variable CLLM_MODEL, or `model:` in ~/.cllm/Cllmfile.yml. "
    "(This is said once.)"
)


class AskOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the person asked for, beside the settings."""

    said: str
    ref: str | None
    read_only: bool
    automatic: bool
    policy: Policy


def ask(place: Place, line: CommandLine, options: AskOptions) -> None:
    """Take the turn, printing the answer; errors go up."""
    settings = load_settings(place, line)
    for notice in settings.notices:
        printing.warn(notice)
    app = App(settings, report=Progress(), asks_once=True)
    asyncio.run(_take_turn(app, _request(app, options), options))


def _request(app: App, options: AskOptions) -> TurnRequest:
    settings = app.settings
    ref = _conversation(app, options)
    keep = ref is not None and not options.read_only and not settings.raw
    return TurnRequest(
        messages=(plain_message("user", options.said),),
        model=app.model,
        model_is_explicit=settings.model_is_explicit,
        ref=ref,
        create=NewConversation(id=ref, model=app.model) if ref and keep else None,
        system=settings.system,
        policy=options.policy,
        parameters=settings.parameters,
        fallbacks=settings.fallbacks,
        strict=settings.strict,
        stream=settings.stream and not settings.raw,
        read_only=not keep,
        on_interrupt="discard" if settings.on_interrupt == "discard" else "keep",
        cache_key=app.cache_key(ref) if ref and keep else None,
    )


def _conversation(app: App, options: AskOptions) -> str | None:
    """The conversation to take the turn in. `--raw` keeps nothing, so a new one is none there."""
    if options.automatic:
        return None if app.settings.raw else new_conversation_id(now(), new_id())
    if app.settings.raw and not options.read_only and options.ref is not None:
        try:
            app.run(app.store.load(options.ref, tail=0))
        except ConversationNotFoundError:
            return None
    return options.ref


async def _take_turn(app: App, request: TurnRequest, options: AskOptions) -> None:
    stop = _Stop()
    screen = _Screen(app, options)
    try:
        async with aclosing(app.engine().take_turn(request)) as events:
            async for event in events:
                screen.show(event)
                if screen.answer.is_silent and request.create is None:
                    break
    except asyncio.CancelledError:
        raise (KeyboardInterrupt if stop.number == signal.SIGINT else Terminated) from None
    finally:
        try:
            screen.answer.end()
        finally:
            await app.close()
    if screen.was_cut:
        printing.note("The answer reached its limit of tokens; raise it with --max-tokens.")


class _Screen:
    """Shows the events of a turn: the answer on standard output, the rest on standard error."""

    def __init__(self, app: App, options: AskOptions) -> None:
        self.answer = printing.AnswerPrinter()
        self.was_cut = False
        self._app = app
        self._options = options

    def show(self, event: TurnEvent) -> None:
        match event:
            case TurnWaits():
                printing.note(f"Waiting for another turn in '{event.conversation}' to end.")
            case TurnBegan():
                self._announce(event)
            case Noticed():
                printing.warn(event.notice)
            case TextDelta():
                if not self._app.settings.raw:
                    self.answer.write(event.text)
            case TurnEnded():
                self.was_cut = event.reply.stop_reason == "length"
                if not event.reply.message.text.strip():
                    printing.note("The model answered without a text.")
                if self._app.settings.raw:
                    self.answer.write((event.reply.raw or b"").decode("utf-8", "replace"))
            case ThinkingDelta() | ToolCallDelta() | PartAdded():
                pass
            case _:
                assert_never(event)

    def _announce(self, event: TurnBegan) -> None:
        if self._app.settings.model is None and event.model == DEFAULT_MODEL:
            _hint_once(self._app.cache_paths.root)
        for notice in event.prompt.notices:
            printing.warn(notice)
        if self._options.automatic and event.conversation is not None:
            printing.note(f"Conversation: {event.conversation}")


class _Stop:
    """Cancels the turn on Ctrl-C, SIGTERM or SIGHUP, once, so that what was said can be kept.

    While it is being kept, further presses are not heard; the third one after a moment ends it all.
    The handlers stay to the end of the process: a press that comes late changes nothing any more.
    """

    def __init__(self) -> None:
        self.number: int | None = None
        self._task = asyncio.current_task()
        self._first_at = 0.0
        self._presses = 0
        self._loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._hear)

    def _hear(self, number: int, _frame: FrameType | None) -> None:
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._stop, number)

    def _stop(self, number: int) -> None:
        now = self._loop.time()
        self._presses += 1
        if self.number is None and self._task is not None:
            self.number, self._first_at = number, now
            self._task.cancel()
        elif self._presses > PATIENT_PRESSES and now - self._first_at > PATIENT_SECONDS:
            os._exit(EXIT_INTERRUPTED)


def _hint_once(folder: Path) -> None:
    """Say the hint, unless this machine has seen it."""
    mark = folder / "hint-shown"
    if mark.exists():
        return
    printing.note(HINT)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        mark.touch()
    except OSError:
        return

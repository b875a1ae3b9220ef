"""One turn from the shell, with its printing: runs the engine and shows its events."""

import asyncio
import signal
from contextlib import aclosing
from pathlib import Path

import msgspec

from cllm.app import DEFAULT_MODEL, App, new_conversation_id, new_id, now
from cllm.cli import printing
from cllm.cli.main import Terminated
from cllm.cli.progress import Progress
from cllm.core.conversation import Policy
from cllm.core.message import plain_message
from cllm.core.ports import NewConversation
from cllm.core.reply import TextDelta
from cllm.engine.turn import TurnBegan, TurnEnded, TurnRequest
from cllm.settings.load import CommandLine, Place, load_settings

HINT = (
    "Using the small model that runs on this machine. For better answers choose a larger one: "
    "-m openai/gpt-4o, the variable CLLM_MODEL, or `model:` in ~/.cllm/Cllmfile.yml. "
    "(This is said once.)"
)


class AskOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the person asked for, beside the settings."""

    said: str
    ref: str | None
    keep: bool
    automatic: bool
    policy: Policy


def ask(place: Place, line: CommandLine, options: AskOptions) -> None:
    """Take the turn, printing the answer; errors go up."""
    settings = load_settings(place, line)
    for notice in settings.notices:
        printing.warn(notice)
    app = App(settings, report=Progress())
    asyncio.run(_take_turn(app, _request(app, options), options))


def _request(app: App, options: AskOptions) -> TurnRequest:
    settings = app.settings
    ref = options.ref
    if options.automatic and options.keep:
        ref = new_conversation_id(now(), new_id())
    create = NewConversation(id=ref, model=app.model) if ref and options.keep else None
    return TurnRequest(
        messages=(plain_message("user", options.said),),
        model=app.model,
        model_is_explicit=settings.model_is_explicit,
        ref=ref,
        create=create,
        system=settings.system,
        policy=options.policy,
        parameters=settings.parameters,
        stream=settings.stream and not settings.raw,
        read_only=not options.keep,
        on_interrupt="discard" if settings.on_interrupt == "discard" else "keep",
        cache_key=app.cache_key(ref) if ref and options.keep else None,
    )


async def _take_turn(app: App, request: TurnRequest, options: AskOptions) -> None:
    terminated = _cancel_on_sigterm()
    printer = printing.AnswerPrinter()
    try:
        async with aclosing(app.engine().take_turn(request)) as events:
            async for event in events:
                if isinstance(event, TurnBegan):
                    _announce(event, options, app)
                elif isinstance(event, TextDelta) and not app.settings.raw:
                    printer.write(event.text)
                elif isinstance(event, TurnEnded) and app.settings.raw:
                    printer.write((event.reply.raw or b"").decode("utf-8", "replace"))
                if printer.reader_is_gone and request.create is None:
                    return
    except asyncio.CancelledError:
        if terminated.is_set():
            raise Terminated from None
        raise
    finally:
        printer.end()
        await app.close()


def _announce(event: TurnBegan, options: AskOptions, app: App) -> None:
    if app.settings.model is None and event.model == DEFAULT_MODEL:
        _hint_once(app.cache_paths.root)
    for notice in event.prompt.notices:
        printing.warn(notice)
    if options.automatic and options.keep:
        printing.note(f"Conversation: {event.conversation}")


def _cancel_on_sigterm() -> asyncio.Event:
    """End as if by Ctrl-C when asked to terminate, so that what was said is kept."""
    asked = asyncio.Event()
    task = asyncio.current_task()

    def cancel() -> None:
        asked.set()
        if task is not None:
            task.cancel()

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, cancel)
    return asked


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

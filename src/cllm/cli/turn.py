"""One turn of `cllm PROMPT`: runs the engine and prints its events."""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, assert_never

import msgspec

from cllm.app import (
    DEFAULT_MODEL,
    DEFAULT_MODEL_LABEL,
    IN_CONTEXT,
    NO_TEXT,
    TOOL_NOT_RUN,
    App,
    build_new_conversation,
    new_conversation_id,
    new_id,
    now,
)
from cllm.cli import output
from cllm.cli.inputs import NO_PROMPT, OptionError, current_environment
from cllm.cli.main import EXIT_INTERRUPTED
from cllm.cli.progress import Progress
from cllm.cli.trust import load_trusted_settings
from cllm.core.conversation import SHELL_SOURCE, Policy
from cllm.core.errors import CllmError, ConversationNotFoundError, UsageError
from cllm.core.message import AnyPart, Text, plain_message
from cllm.core.ports import Lease
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
from cllm.engine.request import (
    TurnEnded,
    TurnEvent,
    TurnInput,
    TurnQueued,
    TurnRequest,
    TurnStarted,
    TurnStorage,
    TurnTarget,
)
from cllm.engine.tool_rounds import ToolBox, ToolRoundEnded
from cllm.repl.progress import TurnProgress, describe_reading
from cllm.settings.load import CommandLine, Environment, Settings
from cllm.terminal import TerminationSignal

if TYPE_CHECKING:
    from cllm.engine.edits import EditedMessage

MAX_PRESSES = 2
FORCE_EXIT_SECONDS = 1.0


class AskOptions(msgspec.Struct, frozen=True, kw_only=True):
    text: str
    ref: str | None
    read_only: bool
    extract: bool = False
    automatic: bool
    continues: bool = False
    announces_id: bool = True
    policy: Policy
    attachments: tuple[AnyPart, ...] = ()
    exec_commands: tuple[str, ...] = ()
    context_exec: bool = True
    allow_commands: bool = False
    command_allow: tuple[str, ...] = ()
    command_deny: tuple[str, ...] = ()
    confirm_commands: bool = False


def ask(env: Environment, line: CommandLine, options: AskOptions) -> None:
    settings = load_trusted_settings(env, line)
    options = _apply_template(settings, options)
    log = _start_log(settings)
    is_unnamed = options.ref is None and not (options.automatic or options.continues)
    if settings.save == "all" and is_unnamed:
        options = msgspec.structs.replace(options, automatic=True, announces_id=False)
    app = App(settings, report=Progress(), single_turn=True, warn=output.warn)
    if options.continues:
        options = _continue_last(settings, options)
    request = _build_request(app, options)
    with contextlib.ExitStack() as stack:
        apply_schema = _open_schema(app, stack)
        asyncio.run(_run_turn(app, apply_schema(request), options, log))


def open_turn_app(line: CommandLine) -> App:
    """Open an app that makes one turn."""
    settings = load_trusted_settings(current_environment(), line)
    return App(settings, report=Progress(), single_turn=True, warn=output.warn)


def run_stored_turn(app: App, choose_turn: Callable[[], Awaitable["EditedMessage"]]) -> None:
    """Send messages in a stored conversation and print the reply; nothing without messages."""
    log = _start_log(app.settings)

    async def run() -> None:
        chosen = await choose_turn()
        if not chosen.input:
            return
        options = AskOptions(
            text="",
            ref=chosen.conversation,
            read_only=False,
            automatic=False,
            policy="captured",
        )
        request = _build_request(app, options).with_input(messages=chosen.input)
        stored = request.with_storage(place=chosen.place, create=None)
        await _run_turn(app, apply_schema(stored), options, log)

    with contextlib.ExitStack() as stack:
        apply_schema = _open_schema(app, stack)
        asyncio.run(run())


def _open_schema(app: App, stack: contextlib.ExitStack) -> Callable[[TurnRequest], TurnRequest]:
    """Return a function that adds the JSON schema to a request, if one is configured."""
    settings = app.settings
    if settings.schema is None:
        return lambda request: request
    from cllm.cli.schema import open_checker, require_schema

    return partial(require_schema, stack.enter_context(open_checker(settings.schema, settings.env)))


def _start_log(settings: Settings) -> Callable[[TurnEvent], None] | None:
    if settings.verbosity == 0 and settings.log_file is None:
        return None
    from cllm.cli.turn_log import start_logging

    return start_logging(settings)()


def _apply_template(settings: Settings, options: AskOptions) -> AskOptions:
    """Fill the input into the `prompt` of the settings, if any."""
    if settings.prompt is not None:
        text = settings.variables.fill_prompt(settings.prompt, options.text)
        options = msgspec.structs.replace(options, text=text)
    if not options.text.strip() and not options.attachments:
        raise UsageError(NO_PROMPT)
    return options


def _continue_last(settings: Settings, options: AskOptions) -> AskOptions:
    from cllm.cli.continuation import find_last_conversation

    last = find_last_conversation(settings)
    output.note(f"Continuing conversation: {last.ref}")
    return msgspec.structs.replace(options, ref=last.id)


def _build_request(app: App, options: AskOptions) -> TurnRequest:
    settings = app.settings
    ref = _resolve_ref(app, options)
    message = plain_message("user", options.text)
    if options.attachments:
        from cllm.wire.openai.parts import encode_parts

        text = (Text(text=options.text),) if options.text else ()
        message = encode_parts("user", (*text, *options.attachments))
    is_nested = IN_CONTEXT in settings.env.environment
    configured = settings.context if options.context_exec and not is_nested else ()
    is_saved = ref is not None and not options.read_only and not settings.raw
    return TurnRequest(
        input=TurnInput(
            messages=(message,),
            system=settings.system,
            context=(*configured, *map(settings.variables.exec_command, options.exec_commands)),
        ),
        target=TurnTarget(
            model=app.model,
            switches_model=settings.model_is_explicit,
            fallbacks=settings.fallbacks,
            parameters=settings.parameters,
            stream=settings.stream and not settings.raw,
            strict=settings.strict,
            tools=_open_tools(app, options),
        ),
        storage=TurnStorage(
            ref=ref,
            cache_key=app.cache_key(ref) if ref and is_saved else None,
            create=build_new_conversation(ref, model=app.model, source=SHELL_SOURCE)
            if ref and is_saved
            else None,
            read_only=not is_saved,
            system=options.policy,
            window=None if ref is None else app.window_for,
            on_interrupt="discard" if settings.on_interrupt == "discard" else "keep",
        ),
    )


def _open_tools(app: App, options: AskOptions) -> ToolBox | None:
    settings = app.settings
    if not (options.allow_commands or settings.allow_commands):
        flags = {
            "--command-allow": options.command_allow,
            "--command-deny": options.command_deny,
            "--confirm-commands": options.confirm_commands,
        }
        for flag, value in flags.items():
            if value:
                raise OptionError(f"{flag} has no effect without --allow-commands.")
        return None
    from cllm.cli.confirmation import terminal_confirm
    from cllm.settings.sections import apply_flags

    command_settings = apply_flags(
        settings.commands,
        allow=options.command_allow,
        deny=options.command_deny,
        confirm=options.confirm_commands,
    )
    return app.command_tool(command_settings, confirm=terminal_confirm(), report=output.note)


def _resolve_ref(app: App, options: AskOptions) -> str | None:
    """Return the conversation of the turn. `--raw` saves nothing, so it creates none."""
    if options.automatic:
        return None if app.settings.raw else new_conversation_id(now(), new_id())
    if app.settings.raw and not options.read_only and options.ref is not None:
        return options.ref if _exists(app.settings, options.ref) else None
    return options.ref


def _exists(settings: Settings, ref: str) -> bool:
    """The stores are opened and closed here: connections belong to one event loop."""
    app = App(settings, warn=output.warn)

    async def find() -> bool:
        try:
            await app.store.load(ref, tail=0)
        except ConversationNotFoundError:
            return False
        finally:
            await app.close()
        return True

    return app.run(find())


async def _run_turn(
    app: App, request: TurnRequest, options: AskOptions, log: Callable[[TurnEvent], None] | None
) -> None:
    stop = _StopSignals()
    screen = _Screen(app, options)
    progress = TurnProgress(request)
    try:
        # A new ID is in no store; a question does not wait for the database of the server.
        store = app.own_store if options.automatic else app.store
        async with aclosing(app.engine(store).run_turn(request)) as events:
            await _show_events(events, request, screen, progress, log)
    except CllmError as error:
        if progress.is_saved_after(error):
            app.record_use(progress.lease)
        raise
    except asyncio.CancelledError:
        screen.answer.settle()
        if progress.is_saved_when_interrupted:
            app.record_use(progress.lease)
        if stop.number != signal.SIGINT:
            raise TerminationSignal from None
        output.note(f"Interrupted. {progress.describe_interrupted()}")
        raise KeyboardInterrupt from None
    finally:
        try:
            screen.answer.end()
        finally:
            await app.close()
    if screen.reached_limit:
        output.note("The reply reached the token limit; raise it with --max-tokens.")
    if screen.has_no_block:
        raise UsageError("The reply contains no code block; it is printed above.")


async def _show_events(
    events: AsyncGenerator[TurnEvent],
    request: TurnRequest,
    screen: "_Screen",
    progress: TurnProgress,
    log: Callable[[TurnEvent], None] | None,
) -> None:
    """Print and log the events. If the output is closed, stop a turn that creates nothing."""
    async for event in events:
        progress.on_event(event)
        screen.show(event)
        if log is not None:
            if isinstance(event, TurnEnded):
                screen.answer.settle()
            log(event)
        if screen.answer.failure is not None and request.storage.create is None:
            return


class _Screen:
    def __init__(self, app: App, options: AskOptions) -> None:
        self.answer = output.AnswerPrinter()
        self.reached_limit = False
        self.has_no_block = False
        self._lease: Lease | None = None
        self._app = app
        self._options = options
        # A reply is checked against the schema before it is printed.
        is_checked = app.settings.schema is not None
        self._prints_at_end = app.settings.raw or is_checked or options.extract

    def show(self, event: TurnEvent) -> None:
        match event:
            case TurnQueued():
                output.note(f"Waiting for another turn in '{event.conversation}' to finish.")
            case TurnStarted():
                self._announce(event)
            case Noticed():
                output.warn(event.notice)
            case TextDelta() | RefusalDelta():
                if not self._prints_at_end:
                    self.answer.write(event.text)
            case TurnEnded():
                self._app.record_use(self._lease)
                self._end(event.reply)
            case ToolRoundEnded():
                self.answer.break_line()
            case ThinkingDelta() | ToolCallDelta() | PartAdded() | Verbatim():
                pass
            case UsageReported() | ModelReported() | ReplyFinished():
                pass
            case _:
                assert_never(event)

    def _end(self, reply: ReplyFinished) -> None:
        self.reached_limit = reply.stop_reason == "length"
        if reply.stop_reason == "context_window":
            output.note("The reply filled the model's context window and is incomplete.")
        if reply.stop_reason == "tool_calls":
            output.note(TOOL_NOT_RUN)
        elif not reply.message.text.strip():
            output.note(NO_TEXT)
        if self._app.settings.raw:
            self.answer.write((reply.raw or b"").decode("utf-8", "replace"))
        elif self._options.extract:
            self._print_code_block(reply.message.text)
        elif self._prints_at_end:
            self.answer.write(reply.message.text)

    def _print_code_block(self, text: str) -> None:
        from cllm.cli.code_block import find_code_block

        block = find_code_block(text)
        if block is None:
            output.print_exactly(text, err=True)
            self.has_no_block = True
        else:
            self.answer.write(block)

    def _announce(self, event: TurnStarted) -> None:
        self._lease = event.lease
        if self._app.settings.model is None and event.model == self._app.model:
            from cllm.default_model import take_hint

            hint = take_hint(self._app.model_choice, self._app.cache_paths.root)
            if hint is not None:
                output.note(hint)
        if event.model == DEFAULT_MODEL and output.is_on_terminal():
            output.note(DEFAULT_MODEL_LABEL)
        if output.is_on_terminal() and (reading := describe_reading(event)) is not None:
            output.note(reading)
        for notice in event.prompt.notices:
            output.warn(notice)
        is_announced = self._options.automatic and self._options.announces_id
        if is_announced and event.conversation is not None:
            output.note(f"Conversation: {event.conversation}")


class _StopSignals:
    """Cancels the turn on the first signal, so that it can be saved; the third exits.

    The handlers remain installed: a late signal must not interrupt the exit.
    """

    def __init__(self) -> None:
        self.number: int | None = None
        self._task = asyncio.current_task()
        self._first_at = 0.0
        self._presses = 0
        self._loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._stop, number)

    def _stop(self, number: int) -> None:
        now = self._loop.time()
        self._presses += 1
        if self.number is None and self._task is not None:
            self.number, self._first_at = number, now
            self._task.cancel()
        elif self._presses > MAX_PRESSES and now - self._first_at > FORCE_EXIT_SECONDS:
            os._exit(EXIT_INTERRUPTED)

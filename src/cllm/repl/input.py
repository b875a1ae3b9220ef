"""Terminal input: line editing, history, completion, a status line."""

import contextlib
import os
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from pathlib import Path
from typing import Literal

from prompt_toolkit import PromptSession
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.layout.screen import Char
from prompt_toolkit.styles import Style

from cllm.core.errors import CllmError
from cllm.repl.chat import Chat
from cllm.repl.commands import COMMANDS, COMMANDS_BY_NAME
from cllm.repl.format import model_names
from cllm.repl.loop import CONTINUATION, PROMPT
from cllm.repl.screen import replace_surrogates
from cllm.terminal import escape_character, hidden_characters, one_line

STYLE = Style.from_dict(
    {"prompt": "bold", "bottom-toolbar": "noreverse", "bottom-toolbar.text": "fg:ansibrightblack"}
)
# Without this, the line editor prints hidden characters of pasted text and completed names.
Char.display_mappings.update(
    {character: escape_character(character) for character in hidden_characters()}
)
NamedItems = Sequence[tuple[str, str]]
MAX_CONVERSATIONS = 500


class TerminalReader:
    blocks = False

    def __init__(
        self, *, history: History, completer: "ChatCompleter", status: Callable[[], str]
    ) -> None:
        self._completer = completer
        self._prompts: PromptSession[str] = PromptSession(
            [("class:prompt", PROMPT)],
            multiline=True,
            prompt_continuation=" " * len(PROMPT),
            history=history,
            completer=completer,
            complete_while_typing=Condition(
                lambda: self._prompts.default_buffer.text.startswith("/")
            ),
            key_bindings=_keys(completer),
            bottom_toolbar=lambda: one_line(status()),
            style=STYLE,
            reserve_space_for_menu=6,
            enable_suspend=True,
        )

    async def read(self) -> str:
        self._completer.clear_cache()
        return replace_surrogates(await self._prompts.prompt_async())


def _keys(completer: Completer) -> KeyBindings:
    keys = KeyBindings()

    @keys.add("tab")
    async def _tab(event: KeyPressEvent) -> None:
        await complete_at_once(event.current_buffer, completer)

    @keys.add("enter")
    def _enter(event: KeyPressEvent) -> None:
        handle_enter(event.current_buffer)

    @keys.add("escape", "enter")
    def _alt_enter(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    return keys


async def complete_at_once(buffer: Buffer, completer: Completer) -> None:
    """Insert the only match, else show the matches.

    The line editor ignores Tab while it looks for matches of the text that was typed before it.
    """
    document = buffer.document
    event = CompleteEvent(completion_requested=True)
    matches = [match async for match in completer.get_completions_async(document, event)]
    if buffer.document != document:
        return
    if len(matches) == 1:
        buffer.apply_completion(matches[0])
    elif buffer.complete_state is not None:
        buffer.complete_next()
    else:
        buffer.start_completion(insert_common_part=True)


def handle_enter(buffer: Buffer) -> None:
    if buffer.complete_state is not None and buffer.complete_state.current_completion is not None:
        buffer.complete_state = None
    elif buffer.document.is_cursor_at_the_end and buffer.text.endswith(CONTINUATION):
        buffer.delete_before_cursor()
        buffer.insert_text("\n")
    else:
        buffer.validate_and_handle()


class PrivateHistory(FileHistory):
    """A history file; disk errors are ignored."""

    def store_string(self, string: str) -> None:
        with contextlib.suppress(OSError):
            super().store_string(string)


def open_history(path: Path | None) -> History:
    """Return the history in a file; in memory without a path, or if the file cannot be opened."""
    if path is not None:
        with contextlib.suppress(OSError):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600))
            return PrivateHistory(path)
    return InMemoryHistory()


class ChatCompleter(Completer):
    """Completes commands and their arguments. Conversations are loaded once per line."""

    def __init__(self, chat: Chat) -> None:
        self._chat = chat
        self._files = PathCompleter(expanduser=True)
        self.clear_cache()

    def clear_cache(self) -> None:
        """Reload the conversations at the next completion."""
        self._conversations: NamedItems | None = None

    async def names(self, kind: Literal["models", "conversations"]) -> NamedItems:
        if kind == "models":
            return model_names(self._chat.app)
        if self._conversations is None:
            try:
                page = await self._chat.app.store.list_conversations(limit=MAX_CONVERSATIONS)
            except CllmError:
                return ()
            self._conversations = [(one.id, one.title or "") for one in page.items]
        return self._conversations

    def get_completions(
        self, _document: Document, _complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        """Return nothing: completion is asynchronous only."""
        return ()

    async def get_completions_async(
        self, document: Document, complete_event: CompleteEvent
    ) -> AsyncGenerator[Completion, None]:
        before = document.text_before_cursor
        if not before.startswith("/") or "\n" in before:
            return
        word, space, argument = before[1:].partition(" ")
        if not space:
            for completion in _complete_command(word):
                yield completion
            return
        command = COMMANDS_BY_NAME.get(word)
        completes = None if command is None else command.completes
        if completes == "files":
            inside = Document(argument.lstrip())
            for completion in self._files.get_completions(inside, complete_event):
                if one_line(completion.text) == completion.text:
                    yield completion
        elif completes is not None:
            for name, remark in await self.names(completes):
                if name.startswith(argument) and one_line(name) == name:
                    start = -len(argument)
                    yield Completion(name, start_position=start, display_meta=one_line(remark))


def _complete_command(word: str) -> Iterable[Completion]:
    for row in COMMANDS:
        if row.name.startswith(word.lower()):
            yield Completion(
                f"{row.name}{' ' if row.argument else ''}",
                start_position=-len(word),
                display=f"/{row.name} {row.argument}".rstrip(),
                display_meta=row.description,
            )

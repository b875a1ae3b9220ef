"""The state of a chat and the requests of its turns. Prints nothing and calls no model."""

from collections.abc import Callable, Iterable

import msgspec

from cllm.app import App, new_conversation_id, new_id, now
from cllm.core.conversation import CHAT_SOURCE, StoredConversation, Turn, check_id, check_ref
from cllm.core.errors import ConversationNotFoundError, UsageError
from cllm.core.message import AnyPart, Message, Text, plain_message
from cllm.core.notice import Notice
from cllm.core.ports import NewConversation
from cllm.engine.edits import (
    branch_conversation,
    change_pins,
    delete_last_turn,
    require_last_turn,
)
from cllm.engine.prompt_builder import TRIMMED_CODE, make_trim_notice
from cllm.engine.request import TurnEvent, TurnInput, TurnRequest, TurnStorage, TurnTarget
from cllm.engine.tool_rounds import ToolBox
from cllm.engine.transfer import copy_into
from cllm.history.system_prompt import GivenPrompt, choose_system
from cllm.repl.format import SessionUsage
from cllm.repl.screen import Screen
from cllm.window.strategies import ByTurns
from cllm.wire.openai.parts import encode_parts

Attach = Callable[[Iterable[str]], tuple[AnyPart, ...]]
LogEvent = Callable[[TurnEvent], None]
ApplySchema = Callable[[TurnRequest], TurnRequest]


class ChatOptions(msgspec.Struct, frozen=True, kw_only=True):
    """`window` None: the window of the settings applies."""

    window: ByTurns | None = ByTurns()
    show_stats: bool = True
    is_saved: bool = True


class Chat:
    """A conversation, which is stored under `ref` with its first reply.

    `attach` reads files, `open_saved_app` opens the store for an unsaved chat, `new_log` returns a
    logger for one turn, `apply_schema` adds the JSON schema to a request.
    """

    def __init__(
        self,
        app: App,
        screen: Screen,
        options: ChatOptions,
        *,
        attach: Attach,
        tools: ToolBox | None = None,
        open_saved_app: Callable[[], App] | None = None,
        new_log: Callable[[], LogEvent] | None = None,
        apply_schema: ApplySchema | None = None,
    ) -> None:
        self.app = app
        self.screen = screen
        self.options = options
        self.attach = attach
        self.session_usage = SessionUsage()
        self.failures = 0
        self.new_log = new_log
        self.apply_schema = apply_schema
        self._tools = tools
        self._open_saved_app = open_saved_app
        self._switch_to(_automatic_id(), None)
        # `-m` applies to the conversation that the chat starts with.
        self.named_model: str | None = app.model if app.settings.model_is_explicit else None

    def _switch_to(self, ref: str, conversation: StoredConversation | None) -> None:
        self.ref = ref
        self.conversation = conversation
        self.title: str | None = None
        self.named_model = None
        self.system: GivenPrompt = self.app.settings.system
        self.next_system: GivenPrompt | None = None
        self.attachments: tuple[AnyPart, ...] = ()
        self.exec_commands: tuple[str, ...] = ()
        self._seen_messages: set[str] = set()
        self._is_trim_announced = False

    def new(self) -> None:
        """Start a conversation with the same model and system prompt."""
        model, system = self.model, self.next_system or self.system
        self._switch_to(_automatic_id(), None)
        self.named_model, self.system = model, system

    def new_notices(self, notices: Iterable[Notice]) -> tuple[Notice, ...]:
        """Return the notices that are new in this conversation, and all about the window."""
        new = tuple(
            notice
            for notice in notices
            if (notice.code == TRIMMED_CODE and not self._is_trim_announced)
            or notice.message not in self._seen_messages
        )
        self._is_trim_announced = False
        self._seen_messages.update(notice.message for notice in new)
        return new

    @property
    def model(self) -> str:
        """The model that the user named, else the conversation's, else the configured one."""
        stored = None if self.conversation is None else self.conversation.model
        return self.named_model or stored or self.app.model

    async def open(self, ref: str, *, prompt: GivenPrompt | None = None) -> tuple[Notice, ...]:
        """Open a conversation; return notices. UsageError if `prompt` is another system prompt."""
        conversation = await self.app.store.load(ref)
        system = prompt or self._configured_prompt()
        choice = choose_system(conversation, system, new_policy="captured", now=now())
        self._switch_to(conversation.id, conversation)
        return self.new_notices(choice.notices)

    async def open_or_start(self, ref: str) -> tuple[Notice, ...]:
        named = self.named_model
        try:
            notices = await self.open(check_ref(ref), prompt=self.app.settings.system)
        except ConversationNotFoundError:
            self._switch_to(ref, None)
            notices = ()
        self.named_model = named
        return notices

    async def reload(self) -> None:
        try:
            self.conversation = await self.app.store.load(self.ref)
        except ConversationNotFoundError:
            self.conversation = None

    async def reload_with_usage(self) -> None:
        """Reload; add the usage and cost of a new summary to this chat."""
        before = None if self.conversation is None else self.conversation.summary
        await self.reload()
        after = None if self.conversation is None else self.conversation.summary
        if after is not None and after != before:
            self.session_usage = self.session_usage.plus(after.usage, after.cost)

    async def pin(self, number: int) -> None:
        await change_pins(self.app.store, self.ref, add=(number,))
        await self.reload()

    async def unpin(self, number: int) -> None:
        await change_pins(self.app.store, self.ref, remove=(number,))
        await self.reload()

    def request(self, text: str) -> TurnRequest:
        parts = (Text(text=text), *self.attachments)
        message = encode_parts("user", parts) if self.attachments else plain_message("user", text)
        return self.build_request((message,), self.exec_commands)

    async def build_regeneration(self) -> TurnRequest:
        """Build the request that repeats the last turn.

        The commands for a message that has failed run again; their output is not in the message.
        """
        last = require_last_turn(await self._load_unchanged())
        commands = () if last.turn.is_history else self.exec_commands
        return self.build_request(last.input, commands).with_storage(place=last.turn.place)

    def build_request(
        self, messages: tuple[Message, ...], exec_commands: tuple[str, ...] = ()
    ) -> TurnRequest:
        settings = self.app.settings
        fill = settings.variables.exec_command
        request = TurnRequest(
            input=TurnInput(
                messages=messages,
                system=self.system if self.conversation is None else self._configured_prompt(),
                context=(*settings.context, *map(fill, exec_commands)),
            ),
            target=TurnTarget(
                model=self.named_model or self.app.model,
                switches_model=self.named_model is not None,
                fallbacks=settings.fallbacks,
                parameters=settings.parameters,
                stream=settings.stream,
                strict=settings.strict,
                tools=self._tools,
            ),
            storage=TurnStorage(
                ref=self.ref,
                cache_key=self.app.cache_key(self.ref) if self.options.is_saved else None,
                create=NewConversation(
                    id=self.ref, model=self.model, title=self.title, source=CHAT_SOURCE
                ),
                window=lambda model: self.options.window or self.app.window_for(model),
                on_interrupt="discard" if settings.on_interrupt == "discard" else "keep",
            ),
        )
        return request if self.apply_schema is None else self.apply_schema(request)

    def _configured_prompt(self) -> GivenPrompt:
        """Return the configured prompt; it does not override the one of a stored conversation."""
        return msgspec.structs.replace(self.app.settings.system, explicit=False)

    async def finish_turn(self, request: TurnRequest) -> None:
        """Reload after a turn; clear the attachments and commands that it used.

        Those of a turn that fails are left for the next message; `/retry` uses them too.
        """
        place = request.storage.place
        before = () if self.conversation is None else self.conversation.turns
        is_retry = any(turn.place == place and not turn.is_history for turn in before)
        await self.reload_with_usage()
        turns = () if self.conversation is None else self.conversation.turns
        if not turns or turns[-1].asked != request.input.messages:
            return
        if turns[-1].is_history and (place is None or is_retry):
            self.attachments, self.exec_commands = (), ()

    def announce_trim(self, turns_before: int) -> Notice | None:
        """Return the notice that the turn that has just ended pushes another one out of the window.

        The next turn, which leaves it out, does not report it again.
        """
        turns = self.count_turns()
        window = self.options.window
        if window is None or not max(turns_before, window.max_turns) < turns:
            return None
        notice = make_trim_notice(1)
        self._is_trim_announced = True
        self._seen_messages.add(notice.message)
        return notice

    def count_turns(self) -> int:
        turns = () if self.conversation is None else self.conversation.turns
        return sum(turn.is_history for turn in turns)

    def last_turn(self) -> Turn:
        """Raises UsageError if there is none."""
        turns = () if self.conversation is None else self.conversation.turns
        if not turns:
            raise UsageError("This conversation has no messages yet.")
        return turns[-1]

    async def _load_unchanged(self) -> StoredConversation:
        """Load the conversation; UsageError if another process changed its last turn."""
        turn, count = self.last_turn(), self.require_conversation().message_count
        stored = await self.app.store.load(self.ref)
        if stored.message_count != count or stored.turns[-1].messages != turn.messages:
            raise UsageError(
                f"Another process changed '{self.ref}'; reload it with /open {self.ref}."
            )
        self.conversation = stored
        return stored

    async def undo(self) -> tuple[Message, ...]:
        """Delete the last turn; return its messages."""
        messages = await delete_last_turn(self.app.store, await self._load_unchanged())
        await self.reload()
        return messages

    async def start_next_branch(self) -> str | None:
        """Switch to a branch with the next system prompt; return the ID of the original, or None.

        It starts with a message, so that a prompt that is changed again leaves no conversation.
        """
        return None if self.next_system is None else await self.branch(system=self.next_system)

    async def branch(
        self,
        *,
        ref: str | None = None,
        at: int | None = None,
        system: GivenPrompt | None = None,
    ) -> str:
        """Switch to a branch; return the ID of the original conversation."""
        self.require_conversation()
        parent_ref, created = self.ref, NewConversation(id=ref or _automatic_id())
        branch = await branch_conversation(
            self.app.store, self.ref, created, at=at, prompt=system, now=now()
        )
        attachments, exec_commands = self.attachments, self.exec_commands
        prompt, named = system or self.system, self.named_model
        self._switch_to(branch.id, branch)
        self.attachments, self.exec_commands = attachments, exec_commands
        self.system, self.named_model = prompt, named
        return parent_ref

    def require_conversation(self) -> StoredConversation:
        """Raises UsageError if there is none."""
        if self.conversation is None:
            raise UsageError("This conversation has no messages yet.")
        return self.conversation

    async def save_to_store(self, ref: str | None) -> None:
        """Copy an unsaved conversation into the store and continue there."""
        if self.options.is_saved or self._open_saved_app is None:
            raise UsageError("The conversation is already saved; /save ID makes a copy.")
        conversation = self.require_conversation()
        saved_app = self._open_saved_app()
        await copy_into(saved_app.store, conversation, check_id(ref or self.ref))
        old, self.app = self.app, saved_app
        self.options = msgspec.structs.replace(self.options, is_saved=True)
        await old.close()
        self.ref = ref or self.ref
        await self.reload()


def _automatic_id() -> str:
    return new_conversation_id(now(), new_id())

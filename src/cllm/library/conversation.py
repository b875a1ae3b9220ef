"""`cllm.Conversation`: a handle on one conversation in a store."""

from contextlib import aclosing
from typing import Any, Literal, Unpack, get_args

from cllm.app import App, now
from cllm.core.conversation import (
    Policy,
    StandingSummary,
    StoredConversation,
    Turn,
    WindowRecord,
    check_title,
)
from cllm.core.errors import ConversationNotFoundError, UsageError
from cllm.core.message import Message, plain_message
from cllm.core.ports import Changes, Hits, NewConversation, Store, Tail, UsageSum
from cllm.engine import edits
from cllm.engine.request import TurnRequest, TurnStorage
from cllm.engine.summaries import SummarySaved
from cllm.engine.transfer import copy_into
from cllm.history.system_prompt import GivenPrompt, choose_system
from cllm.library import arguments, operations
from cllm.library.arguments import MessageInput, Parameters
from cllm.library.loop import asynchronous, synchronous
from cllm.library.session import Answer, AsyncTextStream, Pieces, TextStream, read_answer, session
from cllm.library.stores import IN_MEMORY, OpenStore, resolve_store
from cllm.stores.search import (
    build_hit,
    find_matches,
    parse_query,
    rank_match,
    sort_newest,
)
from cllm.window.strategies import Strategy
from cllm.wire.conversation_file.codec import encode_conversation
from cllm.wire.conversation_file.transcript import encode_markdown, transcript_of

Speaker = Literal["user", "assistant"]


class Conversation:
    """A conversation to start or continue. Nothing is stored before the first message.

    `ref` is its ID (default: a new one), `store` a store or its URL. `model`, `system` and `policy`
    apply to a new conversation only. `window` and `store` default to the settings. `parameters` are
    sent with every request.
    """

    def __init__(
        self,
        ref: str | None = None,
        *,
        store: Store | str | None = None,
        model: str | None = None,
        system: str | None = None,
        policy: Policy = "captured",
        window: Strategy | None = None,
        source: str = "system=",
        **parameters: Unpack[Parameters],
    ) -> None:
        self.id = arguments.check_ref(ref)
        self.model = arguments.check_optional_text("model", model)
        self.policy = arguments.check_choice("policy", policy, get_args(Policy))
        self.parameters = arguments.check_parameters("Conversation", parameters)
        self.window = arguments.check_window(window)
        self.system = arguments.check_optional_text("system", system)
        self._source = source
        self._own_store = resolve_store(store)

    def __repr__(self) -> str:
        return f"<cllm.Conversation {self.id}>"

    @property
    def _app(self) -> App:
        return session().app

    @property
    def _store(self) -> Store:
        store = self._own_store
        if store is None:
            return self._app.store
        return store.kept if isinstance(store, OpenStore) else store

    @property
    def _new(self) -> NewConversation:
        return NewConversation(id=self.id, model=self._named_model or self._app.model)

    @property
    def _named_model(self) -> str | None:
        """The model of this handle; an alias is replaced by its model."""
        return None if self.model is None else self._app.settings.expand_alias(self.model)

    @property
    def _cache_key(self) -> str | None:
        """The key of the local model's cache; None for a store without a URL."""
        store = self._own_store
        if store is None:
            return self._app.cache_key(self.id)
        if not isinstance(store, OpenStore) or store.url.startswith(IN_MEMORY):
            return None
        return self._app.cache_key(self.id, store=store.url)

    @property
    def given_prompt(self) -> GivenPrompt:
        if self.system is None:
            return self._app.settings.system
        return GivenPrompt(text=self.system, source=self._source, explicit=True)

    async def _ask(self, prompt: MessageInput, **parameters: Unpack[Parameters]) -> Answer:
        """Send a message and wait for the reply; both are saved."""
        return await read_answer(self.pieces(prompt, parameters, stream=False))

    def stream(self, prompt: MessageInput, **parameters: Unpack[Parameters]) -> TextStream:
        """Send a message; yields the reply's text as it arrives. Stopping early saves the text."""
        return TextStream(self.pieces(prompt, parameters, stream=True))

    def astream(self, prompt: MessageInput, **parameters: Unpack[Parameters]) -> AsyncTextStream:
        """`stream` for asynchronous code."""
        return AsyncTextStream(self.pieces(prompt, parameters, stream=True))

    def pieces(self, prompt: MessageInput, parameters: Parameters, *, stream: bool) -> Pieces:
        checked = arguments.check_parameters("stream" if stream else "ask", parameters)
        first, messages = arguments.split_system(prompt, system=self.system)
        if not messages:
            raise UsageError(
                "A conversation needs a message besides the system message; add a user message."
            )
        system = None
        if first is not None:
            system = GivenPrompt(text=first.text, source=arguments.SYSTEM_PATH, explicit=True)
        request = self._request(messages, checked, system=system, stream=stream)
        return session().pieces(request, store=self._store)

    def _request(
        self,
        messages: tuple[Message, ...],
        parameters: dict[str, Any],
        *,
        system: GivenPrompt | None = None,
        stream: bool = False,
    ) -> TurnRequest:
        return session().build_request(
            messages,
            model=self.model,
            system=self.given_prompt if system is None else system,
            context=() if self.policy == "pinned" else self._app.settings.context,
            parameters={**self.parameters, **parameters},
            stream=stream,
            storage=TurnStorage(
                ref=self.id,
                cache_key=self._cache_key,
                create=self._new,
                system=self.policy,
                window=self.window_for,
            ),
        )

    def window_for(self, model: str) -> Strategy:
        return self.window or self._app.window_for(model)

    async def _load(self, *, tail: Tail = None) -> StoredConversation:
        """Load the conversation, or its newest part. Raises ConversationNotFoundError."""
        return await self._store.load(self.id, tail=tail)

    def look_at(self, stored: StoredConversation) -> operations.Seen:
        model = self._named_model or stored.model or self._app.model
        return operations.find_window(
            stored, self.window_for(model), self._app.model_context(model)
        )

    async def _exists(self) -> bool:
        """Return whether the conversation is stored."""
        try:
            await self._store.summary(self.id)
        except ConversationNotFoundError:
            return False
        return True

    async def _create(self) -> None:
        """Store an empty conversation with its system prompt. Raises ConversationExistsError."""
        fresh = StoredConversation(id=self.id, created_at=now(), updated_at=now())
        opening = None
        if self.policy != "captured" or self.system is not None:
            choice = choose_system(fresh, self.given_prompt, new_policy=self.policy, now=now())
            opening = choice.opening
        await self._store.create(self._new, opening=opening)

    async def _delete(self) -> None:
        """Delete the conversation permanently; its branches stay."""
        await self._close_open_stream()
        await self._store.delete(self.id)
        if self._cache_key is not None:
            store = self._own_store
            self._app.forget(self.id, store=store.url if isinstance(store, OpenStore) else None)

    async def _messages(self) -> tuple[Message, ...]:
        """Return the messages in order, without the system prompt."""
        return tuple(message for _, _, message in (await self._load()).numbered_messages())

    async def _turns(self) -> tuple[Turn, ...]:
        """Return the turns of the default path, with models, usage, cost and notices."""
        return (await self._load()).turns

    async def _usage(self) -> UsageSum:
        """Return usage and cost of all calls, including variants, failed turns and summaries."""
        return operations.sum_usage(await self._load())

    async def _add(self, role: Speaker, text: str, *, window: WindowRecord | None = None) -> None:
        """Save a message without calling a model; `window` records where the window starts."""
        checked = arguments.check_choice("role", role, get_args(Speaker))
        message = plain_message(checked, arguments.check_message_text(text))
        await self._close_open_stream()
        await operations.add_message(
            self._store,
            message,
            new=self._new,
            prompt=self.given_prompt,
            policy=self.policy,
            window=window,
        )

    async def _branch(
        self, ref: str | None = None, *, at: int | None = None, system: str | None = None
    ) -> "Conversation":
        """Create a conversation with the messages up to number `at`, or all."""
        new = NewConversation(id=arguments.check_ref(ref))
        through = None if at is None else arguments.check_number("at", at)
        await self._close_open_stream()
        prompt = None
        if system is not None:
            text = arguments.check_text("system", system)
            prompt = GivenPrompt(text=text, source="system=", explicit=True)
        stored = await edits.branch_conversation(
            self._store, self.id, new, at=through, prompt=prompt, now=now()
        )
        branch = self.another(stored.id)
        branch.model = branch.system = None
        return branch

    def another(self, ref: str | None = None) -> "Conversation":
        return Conversation(
            ref,
            store=self._own_store,
            model=self.model,
            system=self.system,
            policy=self.policy,
            window=self.window,
            source=self._source,
            parameters=self.parameters,
        )

    async def _delete_from(self, sequence: int) -> None:
        """Delete the message with that number and all later ones permanently."""
        number = arguments.check_number("The message number", sequence)
        await self._close_open_stream()
        await self._store.delete_from(self.id, number)

    async def _undo(self) -> tuple[Message, ...]:
        """Delete the last turn permanently; return its messages."""
        await self._close_open_stream()
        return await edits.delete_last_turn(self._store, await self._load())

    async def _regenerate(self, **parameters: Unpack[Parameters]) -> Answer:
        """Answer the last turn again; the previous answer stays as a variant."""
        checked = arguments.check_parameters("regenerate", parameters)
        last = edits.require_last_turn(await self._load())
        request = self._request(last.input, checked)
        again = request.with_storage(place=last.turn.place)
        return await read_answer(session().pieces(again, store=self._store))

    async def _pin(self, *sequences: int) -> tuple[int, ...]:
        """Include the turns of these messages in every window; return all pins."""
        return await edits.change_pins(self._store, self.id, add=await self._pinned(sequences))

    async def _unpin(self, *sequences: int) -> tuple[int, ...]:
        """Remove pins; return the remaining ones."""
        return await edits.change_pins(self._store, self.id, remove=await self._pinned(sequences))

    async def _pinned(self, sequences: tuple[int, ...]) -> list[int]:
        numbers = [arguments.check_number("The message number", one) for one in sequences]
        await self._close_open_stream()
        return numbers

    async def _compact(self) -> StandingSummary:
        """Summarise all turns but the newest one, for later windows; the turns stay stored."""
        await self._close_open_stream()
        engine = self._app.engine(self._store)
        async with aclosing(engine.compact(self._request((), {}))) as events:
            async for event in events:
                if isinstance(event, SummarySaved):
                    return event.summary
        raise AssertionError("a summary is saved or an error is raised")

    async def _undo_compact(self) -> StandingSummary:
        """Restore the previous summary, or none; return the removed one."""
        await self._close_open_stream()
        return await self._app.engine(self._store).undo_summary(self.id)

    async def _retitle(self, title: str | None) -> None:
        """Set the title; None or a blank one removes it."""
        changes = Changes(title=check_title(arguments.check_optional_text("title", title)))
        await self._close_open_stream()
        await self._store.update(self.id, changes)

    async def _search(self, query: str, *, limit: int = 20) -> Hits:
        """Return the messages that contain all words of the query, newest first."""
        terms = parse_query(arguments.check_text("query", query))
        checked = arguments.check_number("limit", limit, least=1)
        matches = sort_newest(find_matches(await self._load(), terms))
        hits = (build_hit(one, terms, rank_match(one, terms)) for one in matches[:checked])
        return Hits(items=tuple(hits), total=len(matches))

    async def _export(self, form: operations.ExportFormat = "json") -> str:
        """Return the conversation as a conversation file or as Markdown."""
        arguments.check_choice("form", form, get_args(operations.ExportFormat))
        stored = await self._load()
        if form == "markdown":
            return encode_markdown(transcript_of(stored))
        return encode_conversation(stored).decode()

    async def _import_json(self, exported: str | bytes) -> None:
        """Store an exported conversation under this ID, which must be unused."""
        await copy_into(self._store, operations.decode_export(exported), self.id)

    async def _close_open_stream(self) -> None:
        await session().close_open_stream(self._store, self.id)

    ask, aask = synchronous(_ask), asynchronous(_ask)
    load, aload = synchronous(_load), asynchronous(_load)
    exists, aexists = synchronous(_exists), asynchronous(_exists)
    create, acreate = synchronous(_create), asynchronous(_create)
    delete, adelete = synchronous(_delete), asynchronous(_delete)
    messages, amessages = synchronous(_messages), asynchronous(_messages)
    turns, aturns = synchronous(_turns), asynchronous(_turns)
    usage, ausage = synchronous(_usage), asynchronous(_usage)
    add, aadd = synchronous(_add), asynchronous(_add)
    branch, abranch = synchronous(_branch), asynchronous(_branch)
    delete_from, adelete_from = synchronous(_delete_from), asynchronous(_delete_from)
    undo, aundo = synchronous(_undo), asynchronous(_undo)
    regenerate, aregenerate = synchronous(_regenerate), asynchronous(_regenerate)
    pin, apin = synchronous(_pin), asynchronous(_pin)
    unpin, aunpin = synchronous(_unpin), asynchronous(_unpin)
    compact, acompact = synchronous(_compact), asynchronous(_compact)
    undo_compact, aundo_compact = synchronous(_undo_compact), asynchronous(_undo_compact)
    retitle, aretitle = synchronous(_retitle), asynchronous(_retitle)
    search, asearch = synchronous(_search), asynchronous(_search)
    export, aexport = synchronous(_export), asynchronous(_export)
    import_json, aimport_json = synchronous(_import_json), asynchronous(_import_json)

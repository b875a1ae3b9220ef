"""`cllm.Conversation`: one conversation in a store, held by a program.

The object is a handle: what was said is in the store, and every operation looks at it there.
Each operation is written once, as a coroutine; its two public names differ in who waits.
"""

from collections.abc import Callable
from contextlib import aclosing
from typing import Any, Literal, Unpack, get_args

from cllm.app import App, now
from cllm.assembly.system import GivenPrompt, choose_system, recapture
from cllm.assembly.window import Strategy
from cllm.core.conversation import Conversation as StoredConversation
from cllm.core.conversation import Policy, StandingSummary, Turn, WindowRecord
from cllm.core.errors import ConversationNotFoundError, UsageError
from cllm.core.message import Message, plain_message
from cllm.core.ports import Changes, Hits, NewConversation, Store, Tail, UsageSum
from cllm.engine.compacting import Summarised
from cllm.engine.request import TurnInput, TurnPolicy, TurnRequest, TurnTarget
from cllm.engine.transfer import copy_into
from cllm.library.answer import Answer, AsyncTextStream, Pieces, TextStream, whole
from cllm.library.asking import Said, automatic_id, messages_of
from cllm.library.given import (
    Parameters,
    check_choice,
    check_number,
    check_optional_text,
    check_ref,
    check_said,
    check_text,
    check_window,
    parameters_of,
)
from cllm.library.loop import asynchronous, background, synchronous
from cllm.library.operations import (
    ExportFormat,
    Seen,
    add_message,
    check_form,
    decode_export,
    encode_export,
    ledger_of,
    look,
    total,
)
from cllm.library.session import Session, session
from cllm.library.stores import IN_MEMORY, OpenStore, held_store, on_own_loop
from cllm.stores.lists import hits_in, page_of_hits, query_terms

Speaker = Literal["user", "assistant"]


class Conversation:
    """A conversation that is begun or gone on with; nothing is stored before something is said.

    `ref` is its id, an automatic one if none is given, and `store` a store or its URL, that of the
    settings if none is given. `model`, `system` and `policy` are for a conversation that is new:
    one that is stored keeps its own. `window` chooses what of it is sent, as the settings say if it
    is not given. `parameters` go into every request.
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
        self.id = automatic_id() if ref is None else check_ref(ref)
        self.model = check_optional_text("model", model)
        self.policy = check_choice("policy", policy, get_args(Policy))
        self.parameters = parameters_of("Conversation", parameters)
        self.window = check_window(window)
        self.system = check_optional_text("system", system)
        self._source = source
        self._given_store = held_store(store)

    def __repr__(self) -> str:
        return f"<cllm.Conversation {self.id}>"

    @property
    def _session(self) -> Session:
        return session()

    @property
    def _app(self) -> App:
        return self._session.app

    @property
    def _store(self) -> Store:
        return on_own_loop(self._given_store) or self._app.store

    @property
    def _cache_key(self) -> str | None:
        """What the local model knows it by; nothing in a store that has no name of its own."""
        given = self._given_store
        if given is None:
            return self._app.cache_key(self.id)
        if not isinstance(given, OpenStore) or given.url.startswith(IN_MEMORY):
            return None
        return self._app.cache_key(self.id, store=given.url)

    @property
    def given_prompt(self) -> GivenPrompt:
        """The system prompt for a new conversation."""
        if self.system is None:
            return self._app.settings.system
        return GivenPrompt(text=self.system, source=self._source, explicit=True)

    def ask(self, said: Said, **parameters: Unpack[Parameters]) -> Answer:
        """Say something and wait for the answer; both are kept."""
        return background().run(whole(self.pieces(said, parameters, stream=False)))

    def stream(self, said: Said, **parameters: Unpack[Parameters]) -> TextStream:
        """Say something; the answer's text as it comes. Who leaves early keeps what was said."""
        return TextStream(self.pieces(said, parameters, stream=True))

    async def aask(self, said: Said, **parameters: Unpack[Parameters]) -> Answer:
        """`ask` for asynchronous code."""
        work = whole(self.pieces(said, parameters, stream=False))
        return await background().elsewhere(work)

    def astream(self, said: Said, **parameters: Unpack[Parameters]) -> AsyncTextStream:
        """`stream` for asynchronous code."""
        return AsyncTextStream(self.pieces(said, parameters, stream=True))

    def pieces(self, said: Said, parameters: Parameters, *, stream: bool) -> Pieces:
        """A turn for cllm's own loop, which `ask` and `stream` run."""
        given = parameters_of("stream" if stream else "ask", parameters)
        request = self._request(messages_of(said), given, stream=stream)
        return self._session.pieces(request, store=self._store)

    def _request(
        self, messages: tuple[Message, ...], parameters: dict[str, Any], *, stream: bool = False
    ) -> TurnRequest:
        settings = self._app.settings
        model = self.model or self._app.model
        return TurnRequest(
            input=TurnInput(
                messages=messages,
                system=self.given_prompt,
                context=() if self.policy == "pinned" else settings.context,
            ),
            target=TurnTarget(
                model=model,
                model_is_explicit=self.model is not None,
                fallbacks=settings.fallbacks,
                parameters={**settings.parameters, **self.parameters, **parameters},
                stream=stream,
                strict=settings.strict,
            ),
            policy=TurnPolicy(
                ref=self.id,
                cache_key=self._cache_key,
                create=NewConversation(id=self.id, model=model),
                system=self.policy,
                window=self.window_for,
            ),
        )

    def window_for(self, model: str) -> Strategy:
        """What of the conversation that model is sent."""
        return self.window or self._app.window_for(model)

    async def _load(self, *, tail: Tail = None) -> StoredConversation:
        """All of it as it is stored now, or its end; ConversationNotFoundError if nothing is."""
        return await self._store.load(self.id, tail=tail)

    def look_at(self, stored: StoredConversation) -> Seen:
        """What of it the next window has."""
        model = stored.model or self.model or self._app.model
        return look(stored, self.window_for(model), self._app.served(model))

    async def _exists(self) -> bool:
        """Whether something is stored under its id."""
        try:
            await self._store.summary(self.id)
        except ConversationNotFoundError:
            return False
        return True

    async def _create(self) -> None:
        """Store it now, empty, under its system prompt; an error if it is there already."""
        model = self.model or self._app.model
        new = NewConversation(id=self.id, model=model)
        fresh = StoredConversation(id=self.id, created_at=now(), updated_at=now())
        opening = None
        if self.policy != "captured" or self.system is not None:
            choice = choose_system(fresh, self.given_prompt, new_policy=self.policy, now=now())
            opening = choice.opening
        await self._store.create(new, opening=opening)

    async def _delete(self) -> None:
        """Delete it for good; its branches stay."""
        await self._let_go()
        await self._store.delete(self.id)
        if self._cache_key is not None:
            given = self._given_store
            self._app.forget(self.id, store=given.url if isinstance(given, OpenStore) else None)

    async def _messages(self) -> tuple[Message, ...]:
        """What was said, in order; the system prompt is not among it."""
        return tuple(message for _, _, message in (await self._load()).numbered_messages())

    async def _turns(self) -> tuple[Turn, ...]:
        """The turns of the default path, with their models, usage, cost and notices."""
        return (await self._load()).turns

    async def _usage(self) -> UsageSum:
        """What all calls used and cost, variants, failed turns and summaries too."""
        return total(await self._load())

    async def _add(self, role: Speaker, text: str, *, window: WindowRecord | None = None) -> None:
        """Keep something that was said elsewhere, and ask nobody; `window` is where that begins."""
        speaker = check_choice("role", role, get_args(Speaker))
        message = plain_message(speaker, check_said(text))
        await self._let_go()
        await add_message(
            self._store,
            message,
            new=NewConversation(id=self.id, model=self.model or self._app.model),
            given=self.given_prompt,
            policy=self.policy,
            window=window,
        )

    async def _branch(
        self, ref: str | None = None, *, at: int | None = None, system: str | None = None
    ) -> "Conversation":
        """Another conversation with the messages up to number `at`, or all; this one stays."""
        new = NewConversation(id=automatic_id() if ref is None else check_ref(ref))
        through = None if at is None else check_number("at", at)
        await self._let_go()
        opening = None
        if system is not None:
            text = check_text("system", system)
            given = GivenPrompt(text=text, source="system=", explicit=True)
            opening = recapture(await self._load(), given, now=now())
        made = await self._store.branch(self.id, new, at=through, opening=opening)
        branch = self.another(made.id)
        branch.model = branch.system = None
        return branch

    def another(self, ref: str | None = None) -> "Conversation":
        """A new conversation, or that one, in the same store and with the same options."""
        return Conversation(
            ref,
            store=self._given_store,
            model=self.model,
            system=self.system,
            policy=self.policy,
            window=self.window,
            source=self._source,
            parameters=self.parameters,
        )

    async def _delete_from(self, sequence: int) -> None:
        """Delete the message of that number and all later ones, for good."""
        number = check_number("The number of a message", sequence)
        await self._let_go()
        await self._store.delete_from(self.id, number)

    async def _undo(self) -> tuple[Message, ...]:
        """Take the last turn back, for good; what was said in it."""
        await self._let_go()
        stored = await self._load()
        said = tuple(message for _, _, message in stored.numbered_messages())
        if not said:
            raise UsageError(f"Nothing has been said in conversation '{self.id}' yet.")
        start = ledger_of(said).turns[-1]
        await self._store.delete_from(self.id, stored.first_sequence + start)
        return said[start:]

    async def _regenerate(self, **parameters: Unpack[Parameters]) -> Answer:
        """Ask the last turn once more; the one that is there stays as a variant."""
        given = parameters_of("regenerate", parameters)
        turns = (await self._load()).turns
        if not turns:
            raise UsageError(f"Nothing has been said in conversation '{self.id}' yet.")
        request = self._request(turns[-1].asked, given)
        again = request.with_policy(place=turns[-1].place)
        return await whole(self._session.pieces(again, store=self._store))

    async def _pin(self, *sequences: int) -> tuple[int, ...]:
        """Have the turns of these messages in every window; all that are pinned now."""
        return await self._repin(sequences, set.union)

    async def _unpin(self, *sequences: int) -> tuple[int, ...]:
        """Let these messages leave windows again; all that are pinned now."""
        return await self._repin(sequences, set.difference)

    async def _repin(
        self, sequences: tuple[int, ...], change: Callable[[set[int], set[int]], set[int]]
    ) -> tuple[int, ...]:
        numbers = {check_number("The number of a message", one) for one in sequences}
        await self._let_go()
        before = (await self._load()).pins
        pins = tuple(sorted(change(set(before), numbers)))
        await self._store.update(self.id, Changes(pins=pins))
        return pins

    async def _compact(self) -> StandingSummary:
        """Put all but the newest turn into a summary, made by the model; the turns stay stored.

        Every window has it in place of those turns; `undo_compact` takes it back.
        """
        await self._let_go()
        engine = self._app.engine(self._store)
        async with aclosing(engine.compact(self._request((), {}))) as events:
            async for event in events:
                if isinstance(event, Summarised):
                    return event.summary
        raise AssertionError("a summary is kept, or there is an error")

    async def _undo_compact(self) -> StandingSummary:
        """Go back to the summary before, or to none; the one that is gone."""
        await self._let_go()
        return await self._app.engine(self._store).undo_summary(self.id)

    async def _retitle(self, title: str | None) -> None:
        """Give it another title."""
        changes = Changes(title=check_optional_text("title", title))
        await self._let_go()
        await self._store.update(self.id, changes)

    async def _search(self, query: str, *, limit: int = 20) -> Hits:
        """The messages that have all words of the query, newest first."""
        terms = query_terms(check_text("query", query))
        most = check_number("limit", limit, least=1)
        found = hits_in(await self._load(), terms)
        return page_of_hits(found, limit=most, offset=0)

    async def _export(self, form: ExportFormat = "json") -> str:
        """All of it as text: the conversation file, or Markdown to read."""
        wanted = check_form(form)
        return encode_export(await self._load(), wanted)

    async def _import_json(self, exported: str | bytes) -> None:
        """Fill this conversation, which is not stored yet, with an exported one."""
        await copy_into(self._store, decode_export(exported), self.id)

    async def _let_go(self) -> None:
        await self._session.let_go(self._store, self.id)

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

"""The engine runs one turn for every interface: load, assemble, call, save.

It depends on ports, never on the classes behind them.
"""

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from functools import partial

import msgspec

from cllm.core.conversation import StandingSummary, StoredConversation, Turn
from cllm.core.errors import (
    BrokenStreamError,
    CllmError,
    ConversationBusyError,
    ConversationNotFoundError,
    StoreError,
    UsageError,
)
from cllm.core.notice import reply_cut
from cllm.core.ports import (
    Changes,
    Clock,
    Lease,
    NewId,
    Opening,
    Provider,
    Store,
    Tail,
    TurnStart,
)
from cllm.core.prompt import Prompt
from cllm.core.reply import ModelReported, Noticed, ReplyEvent, ReplyFinished, UsageReported
from cllm.engine.prompt_builder import build_window_prompt, resolve_model
from cllm.engine.prompt_history import ModelContext, find_first_sequence
from cllm.engine.recorder import StatelessRecorder, TurnRecorder, total_cost
from cllm.engine.request import (
    Attempt,
    ClientHistory,
    ModelRoute,
    PlacedTurn,
    Price,
    TurnEnded,
    TurnEvent,
    TurnQueued,
    TurnRequest,
    TurnStarted,
    unknown_price,
    unknown_window,
)
from cllm.engine.retry import (
    RetryRules,
    Sleep,
    call_with_retry,
    can_fall_back,
    fallback_notice,
    is_unfit,
)
from cllm.engine.summaries import Summariser, SummaryEvent
from cllm.engine.summary_plan import has_summary_strategy
from cllm.engine.tool_rounds import ToolRoundEnded, call_with_tools
from cllm.history.context import (
    NO_CONTEXT,
    CommandOutcome,
    Context,
    ContextCommand,
    gather_context,
    plan_context,
)
from cllm.history.system_prompt import SystemChoice, add_prefix, choose_system

RunCommands = Callable[[Sequence[ContextCommand]], Awaitable[Sequence[CommandOutcome]]]
CUT_REASONS = {"content_filter": "content_filter", "length": "max_output_tokens"}
PreparedModels = dict[str, CllmError | None]
"""The models whose providers were prepared for a turn, each with its error or None."""
Recorder = TurnRecorder | StatelessRecorder
# A tuple: a union in isinstance() would be built for every event.
BEFORE_REPLY = (Noticed, UsageReported, ModelReported)
"""Events that are not a part of a reply: after them another model can still be called."""


class _OpenTurn(msgspec.Struct, frozen=True, kw_only=True):
    """A turn whose conversation is loaded and whose recorder is entered."""

    request: TurnRequest
    conversation: StoredConversation | None
    recorder: Recorder
    prepared: PreparedModels


class Engine:
    def __init__(
        self,
        *,
        store: Store,
        find_route: Callable[[str], ModelRoute],
        clock: Clock,
        new_id: NewId,
        price: Callable[[ModelRoute], Price] = unknown_price,
        context_window: Callable[[ModelRoute], int | None] = unknown_window,
        run_commands: RunCommands | None = None,
        retry: RetryRules | None = None,
        sleep: Sleep = asyncio.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._store = store
        self._find_route = find_route
        self._clock = clock
        self._new_id = new_id
        self._price = price
        self._context_window = context_window
        self._run_commands = run_commands
        self._retry = retry or RetryRules()
        self._sleep = sleep
        self._jitter = jitter

    async def run_turn(self, request: TurnRequest) -> AsyncGenerator[TurnEvent, None]:
        """Load, assemble, call and save one turn; yield its events as they happen.

        A turn without `ref` is stateless. Slow work, such as downloading a model, comes before the
        lease is taken. `ReplyFinished` comes before the turn is saved, `TurnEnded` after it.
        """
        storage = request.storage
        conversation: StoredConversation | None = None
        if not storage.skip_preload:
            conversation = await self._preload(
                request, tail=storage.tail if storage.read_only else 0
            )
        model = resolve_model(conversation, request)
        self._check_can_use_tools(model, request)
        prepared = await self._prepare((model, *request.target.fallbacks))
        notices: list[Noticed] = []
        if conversation is not None and prepared[model] is None:
            notices += await self._summarise(conversation, request, model)
        recorder: Recorder = StatelessRecorder(storage.count_unsaved)
        placed = PlacedTurn(request=request)
        async for step in self._place_turn(request, model):
            if isinstance(step, PlacedTurn):
                placed = step
            else:
                yield step
        request, lease = placed.request, placed.lease
        notices += [Noticed(notice=notice) for notice in placed.notices]
        if lease is not None:
            conversation = _remove_opening(lease)
            if is_unavailable(conversation, request):
                await self._store.drop_turn(lease)
                raise ConversationNotFoundError(conversation.id)
            model = resolve_model(conversation, request)
            recorder = TurnRecorder(self._store, lease, clock=self._clock, storage=storage)
        async with recorder:
            for noticed in notices:
                recorder.on_event(noticed)
                yield noticed
            conversation = await self._load_window(conversation, request, model, recorder.lease)
            context = await self._gather_context(conversation, request)
            first = self._build_first_attempt(conversation, request, model, context)
            if first.choice.opening is not None and request.input.context:
                await recorder.save_opening(first.choice.opening)
            turn = _OpenTurn(
                request=request, conversation=conversation, recorder=recorder, prepared=prepared
            )
            async with aclosing(self._call_models(turn, first)) as events:
                async for event in events:
                    yield event

    async def preview_prompt(self, request: TurnRequest) -> tuple[ModelRoute, Prompt]:
        """Return the route and prompt of a turn without calling the model."""
        if isinstance(request.storage.preloaded, StoredConversation):
            request = request.with_storage(preloaded=msgspec.UNSET)
        conversation = await self._preload(request, tail=request.storage.tail)
        if conversation is not None and is_unavailable(conversation, request):
            raise ConversationNotFoundError(conversation.id)
        model = resolve_model(conversation, request)
        conversation = await self._load_window(conversation, request, model, None)
        attempt = self._build_first_attempt(conversation, request, model)
        return attempt.route, build_window_prompt(conversation, request, attempt)

    async def compact(self, request: TurnRequest) -> AsyncGenerator[SummaryEvent, None]:
        """Summarise all turns but the newest; the request has no messages.

        Raises UsageError if there is nothing to summarise.
        """
        conversation = await self._preload(request.with_storage(create=None), tail=0)
        if conversation is None:
            raise UsageError("Pass the ID of the conversation to summarise.")
        model = resolve_model(conversation, request)
        await self._find_route(model).provider.prepare()
        async with aclosing(
            self._build_summariser().compact(conversation, request, model)
        ) as events:
            async for event in events:
                yield event

    async def undo_summary(self, ref: str) -> StandingSummary:
        """Restore the previous summary; return the removed one."""
        return await self._build_summariser().undo(ref)

    def _check_can_use_tools(self, model: str, request: TurnRequest) -> None:
        """Refuse tools that cllm runs, before a model that cannot call them is prepared."""
        provider = self._find_route(model).provider if request.target.tools is not None else None
        # Optional in the port: most models can.
        if not getattr(provider, "can_use_tools", True):
            raise UsageError(
                f"{model} is too small to run commands; choose a larger model, "
                "for example: -m openai/gpt-4o"
            )

    async def _summarise(
        self, conversation: StoredConversation, request: TurnRequest, model: str
    ) -> list[Noticed]:
        """Summarise old messages if the strategy of the window needs it."""
        if not has_summary_strategy(request, model):
            return []
        summariser = self._build_summariser()
        noticed = await summariser.summarise_before_turn(conversation, request, model)
        return [] if noticed is None else [noticed]

    def _build_summariser(self) -> Summariser:
        return Summariser(
            store=self._store,
            clock=self._clock,
            new_id=self._new_id,
            call_model=self._call_provider,
            attempt=self._build_first_attempt,
        )

    async def _prepare(self, models: tuple[str, ...]) -> PreparedModels:
        """Prepare providers until one succeeds; raise if none does."""
        prepared: PreparedModels = {}
        failures: list[CllmError] = []
        for model in models:
            try:
                await self._find_route(model).provider.prepare()
            except CllmError as error:
                _add_failure(failures, error)
                prepared[model] = error
            else:
                prepared[model] = None
                return prepared
        raise failures[-1]

    async def _call_models(
        self, turn: _OpenTurn, first: Attempt
    ) -> AsyncGenerator[TurnEvent, None]:
        """Call the models until one replies, and save the turn.

        If none replies, raise the error of the last model that could take the request.
        """
        request, recorder = turn.request, turn.recorder
        model = first.model
        failures: list[CllmError] = []
        for next_model in (*request.target.fallbacks, None):
            is_answering = False
            costs: list[float | None] = []
            try:
                attempt = (
                    self._build_attempt(model, first.choice, first.context) if failures else first
                )
                await _check_prepared(attempt, turn.prepared)
                prompt = build_window_prompt(turn.conversation, request, attempt)
                is_first = not recorder.has_prompt
                recorder.on_prompt(prompt, attempt)
                if is_first:
                    yield _build_started(turn, attempt, prompt)
                async with aclosing(self._call(prompt, attempt, request)) as events:
                    async for event in events:
                        if isinstance(event, ReplyFinished):
                            if request.storage.accept is not None:
                                request.storage.accept(event)
                            yield event
                            saved = await self._save_reply(turn, event)
                            cost = total_cost([*costs, _compute_cost(event, attempt.price)])
                            yield TurnEnded(reply=event, turn=saved, model=attempt.model, cost=cost)
                            return
                        if isinstance(event, ToolRoundEnded):
                            costs.append(_compute_cost(event.reply, attempt.price))
                        is_answering = is_answering or not isinstance(event, BEFORE_REPLY)
                        recorder.on_event(event)
                        yield event
                raise _build_no_reply_error(attempt)
            except CllmError as error:
                if is_answering:
                    raise
                _add_failure(failures, error)
                reason = error
            if next_model is None:
                raise failures[-1]
            notice = fallback_notice(model, next_model, reason)
            recorder.on_event(notice)
            yield notice
            model = next_model

    async def _save_reply(self, turn: _OpenTurn, reply: ReplyFinished) -> Turn | None:
        """Save the turn with its complete reply, and the model if it changes."""
        _record_cut(reply, turn.request, turn.recorder)
        saved = await turn.recorder.complete(reply)
        await self._save_model(turn.conversation, turn.request)
        return saved

    async def _save_model(
        self, conversation: StoredConversation | None, request: TurnRequest
    ) -> None:
        """Save the model of a turn that switches it, or that is the first to name one."""
        target, storage = request.target, request.storage
        if conversation is None or storage.read_only or conversation.model == target.model:
            return
        steps = storage.optional_steps
        # A client that is only recorded does not wait for it.
        is_first = conversation.model is None and steps is None
        if not target.switches_model and not (target.overrides_model and is_first):
            return
        update = self._store.update(
            conversation.id, Changes(model=target.model), owner=storage.owner
        )
        # The turn is saved: another turn or a deletion that comes first is not its failure.
        with suppress(StoreError):
            await (update if steps is None else steps.run(update))

    def _build_first_attempt(
        self,
        conversation: StoredConversation | None,
        request: TurnRequest,
        model: str,
        context: Context = NO_CONTEXT,
    ) -> Attempt:
        # A client that is only recorded has its own system prompt, as in a stateless request.
        is_recorded = request.storage.optional_steps is not None
        choice = choose_system(
            None if is_recorded else conversation,
            request.input.system,
            new_policy=request.storage.system,
            now=self._clock(),
            context=context,
        )
        return self._build_attempt(model, add_prefix(choice, request.input.prefix), context)

    def _build_attempt(self, model: str, choice: SystemChoice, context: Context) -> Attempt:
        route = self._find_route(model)
        return Attempt(
            route=route,
            model=model,
            choice=choice,
            context=context,
            price=self._price(route),
            model_context=ModelContext(
                model=model,
                provider=route.provider.name,
                context_window=partial(self._context_window, route),
                now=self._clock(),
            ),
        )

    async def _gather_context(
        self, conversation: StoredConversation | None, request: TurnRequest
    ) -> Context:
        if not request.input.context or self._run_commands is None:
            return NO_CONTEXT
        plan = plan_context(conversation, request.input.context, new_policy=request.storage.system)
        if not plan.commands:
            return NO_CONTEXT
        return gather_context(plan, await self._run_commands(plan.commands))

    def _call(
        self, prompt: Prompt, attempt: Attempt, request: TurnRequest
    ) -> AsyncGenerator[ReplyEvent | ToolRoundEnded, None]:
        provider, target = attempt.route.provider, request.target
        call = partial(self._call_provider, provider, retries=target.retries)
        if target.tools is None:
            return call(prompt)
        return call_with_tools(call, prompt, target.tools)

    def _call_provider(
        self, provider: Provider, prompt: Prompt, *, retries: int | None = None
    ) -> AsyncGenerator[ReplyEvent, None]:
        rules = self._retry
        return call_with_retry(
            partial(provider.ask, prompt),
            rules=rules if retries is None else msgspec.structs.replace(rules, retries=retries),
            sleep=self._sleep,
            jitter=self._jitter,
        )

    async def _preload(self, request: TurnRequest, *, tail: Tail) -> StoredConversation | None:
        """Load the conversation without a lease; None if it does not exist yet."""
        storage = request.storage
        if storage.ref is None:
            return None
        if not isinstance(storage.preloaded, msgspec.UnsetType):
            return storage.preloaded
        try:
            return await self._store.load(storage.ref, owner=storage.owner, tail=tail)
        except ConversationNotFoundError:
            if storage.create is None or storage.read_only:
                raise
            return None

    async def _load_window(
        self,
        conversation: StoredConversation | None,
        request: TurnRequest,
        model: str,
        lease: Lease | None,
    ) -> StoredConversation | None:
        """Load older messages if the window of the conversation needs them."""
        if conversation is None or request.storage.window is None:
            return conversation
        # The messages of this turn can already be stored, after the loaded ones.
        new = 0 if lease is None else len(lease.turn.messages)
        while (first := find_first_sequence(conversation, model)) < conversation.first_sequence:
            tail = conversation.message_count + 1 - first + new
            conversation = await self._store.load(
                conversation.id, owner=request.storage.owner, tail=tail
            )
            if lease is not None:
                turns = tuple(turn for turn in conversation.turns if turn.id != lease.turn.id)
                conversation = msgspec.structs.replace(conversation, turns=turns)
        return conversation

    async def _place_turn(
        self, request: TurnRequest, model: str
    ) -> AsyncGenerator[TurnQueued | PlacedTurn, None]:
        """Take the lease of a turn that is saved."""
        storage = request.storage
        if storage.client_history is not None:
            yield await self._place_history(request, storage.client_history, model)
        elif storage.ref is not None and not storage.read_only:
            lease = await self._try_lease(request, model)
            if lease is None:
                yield TurnQueued(conversation=storage.ref)
                lease = await self._take_lease(request, model, wait=storage.wait)
            if storage.expected_count not in (None, lease.conversation.message_count):
                await self._store.drop_turn(lease)
                raise ConversationBusyError(storage.ref)
            yield PlacedTurn(request=request, lease=lease)

    async def _place_history(
        self, request: TurnRequest, history: ClientHistory, model: str
    ) -> PlacedTurn:
        from cllm.engine.turn_placement import TurnPlacer  # noqa: PLC0415 - most turns do not need it

        placer = TurnPlacer(
            request,
            history,
            store=self._store,
            take_lease=lambda placed: self._take_lease(placed, model, wait=placed.storage.wait),
            new_id=self._new_id,
            clock=self._clock,
        )
        return await placer.place()

    async def _try_lease(self, request: TurnRequest, model: str) -> Lease | None:
        """Take the lease; None if another turn has it and the request allows waiting."""
        try:
            return await self._take_lease(request, model, wait=0)
        except ConversationBusyError:
            if request.storage.wait == 0:
                raise
            return None

    async def _take_lease(self, request: TurnRequest, model: str, *, wait: float | None) -> Lease:
        storage = request.storage
        start = TurnStart(
            id=self._new_id(),
            messages=request.input.messages,
            model=model,
            place=storage.place,
            parameters=storage.parameters,
        )
        create = storage.create
        if create is not None and create.model is None:
            create = msgspec.structs.replace(create, model=model)
        if create is not None and not request.input.context:
            create = msgspec.structs.replace(create, opening=self._build_opening(request))
        return await self._store.begin_turn(
            storage.ref or "",
            start,
            owner=storage.owner,
            create=create,
            wait=wait,
            tail=storage.tail,
        )

    def _build_opening(self, request: TurnRequest) -> Opening | None:
        """Return the opening of a new conversation whose context runs no commands."""
        now = self._clock()
        new = StoredConversation(id="", created_at=now, updated_at=now)
        policy = request.storage.system
        return choose_system(new, request.input.system, new_policy=policy, now=now).opening


def _record_cut(reply: ReplyFinished, request: TurnRequest, recorder: Recorder) -> None:
    """Save why a reply of the Responses API is incomplete: stored responses have the reason."""
    reason = CUT_REASONS.get(reply.stop_reason)
    if request.target.dialect == "responses" and reason is not None:
        recorder.on_event(Noticed(notice=reply_cut(reason)))


def _remove_opening(lease: Lease) -> StoredConversation:
    """Return the conversation; the first turn of a new one chooses its system prompt again."""
    if not lease.created:
        return lease.conversation
    return msgspec.structs.replace(
        lease.conversation, system=None, system_record=None, context_record=None
    )


def is_unavailable(conversation: StoredConversation, request: TurnRequest) -> bool:
    return request.storage.skip_preload and conversation.archived_at is not None


def _add_failure(failures: list[CllmError], error: CllmError) -> None:
    """Add the error of a model unless it is a fallback that cannot take the request.

    Raise an error that no other model can avoid.
    """
    if can_fall_back(error):
        failures.append(error)
    elif not failures or not is_unfit(error):
        raise error


def _build_started(turn: _OpenTurn, attempt: Attempt, prompt: Prompt) -> TurnStarted:
    conversation = turn.conversation
    return TurnStarted(
        conversation=None if conversation is None else conversation.id,
        model=attempt.model,
        prompt=prompt,
        lease=turn.recorder.lease,
    )


def _build_no_reply_error(attempt: Attempt) -> BrokenStreamError:
    name = attempt.route.provider.name
    return BrokenStreamError(
        f"Provider '{name}' ended its stream without a reply; try again.", provider=name
    )


async def _check_prepared(attempt: Attempt, prepared: PreparedModels) -> None:
    """Prepare the provider of an attempt, or raise the error of its first preparation."""
    if attempt.model not in prepared:
        await attempt.route.provider.prepare()
    elif (error := prepared[attempt.model]) is not None:
        raise error


def _compute_cost(reply: ReplyFinished, price: Price) -> float | None:
    return None if reply.usage is None else price(reply.usage)

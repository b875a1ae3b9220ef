"""One turn, the same for every interface: load, assemble, call, save.

The engine knows ports, not the classes behind them.
"""

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from functools import partial

import msgspec

from cllm.core.conversation import LOCAL_OWNER, StandingSummary, StoredConversation
from cllm.core.errors import (
    BrokenStreamError,
    CllmError,
    ConversationBusyError,
    ConversationNotFoundError,
    UsageError,
)
from cllm.core.ports import Clock, Lease, NewId, Provider, Store, Tail, TurnStart
from cllm.core.prompt import Prompt
from cllm.core.reply import Noticed, ReplyEvent, ReplyFinished
from cllm.engine.prompt_builder import build_window_prompt, resolve_model
from cllm.engine.prompt_history import ModelContext, find_first_sequence
from cllm.engine.recorder import NullRecorder, TurnRecorder, total_cost
from cllm.engine.request import (
    Attempt,
    Price,
    Route,
    TurnEnded,
    TurnEvent,
    TurnQueued,
    TurnRequest,
    TurnStarted,
    unknown_price,
    unknown_window,
)
from cllm.engine.retry import RetryRules, Sleep, call_with_retry, can_fall_back, fallback_notice
from cllm.engine.summaries import Summariser, SummaryEvent
from cllm.engine.summary_plan import has_summary_strategy
from cllm.engine.tool_rounds import ToolRoundEnded, call_with_tools
from cllm.history.context import CommandOutcome, ContextCommand
from cllm.history.system_prompt import (
    NO_CONTEXT,
    Context,
    SystemChoice,
    add_prefix,
    choose_system,
    gather_context,
    plan_context,
)

RunCommands = Callable[[Sequence[ContextCommand]], Awaitable[Sequence[CommandOutcome]]]
PreparedModels = dict[str, CllmError | None]
"""The models whose providers were prepared in a turn, with the error of those that failed."""


class Engine:
    def __init__(
        self,
        *,
        store: Store,
        find_route: Callable[[str], Route],
        clock: Clock,
        new_id: NewId,
        price: Callable[[Route], Price] = unknown_price,
        context_window: Callable[[Route], int | None] = unknown_window,
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

        A turn without `ref` is stateless. What takes long happens before the conversation is
        locked. `ReplyFinished` comes before the turn is saved, `TurnEnded` after it.
        """
        policy = request.policy
        conversation: StoredConversation | None = None
        if not policy.skip_preload:
            conversation = await self._peek(request, tail=policy.tail if policy.read_only else 0)
        model = resolve_model(conversation, request)
        prepared = await self._prepare((model, *request.target.fallbacks))
        compacted: Noticed | None = None
        if (
            conversation is not None
            and prepared[model] is None
            and has_summary_strategy(request, model)
        ):
            compacted = await self._compactor().before_turn(conversation, request, model)
        keeper: TurnRecorder | NullRecorder = NullRecorder()
        if policy.ref is not None and not policy.read_only:
            lease = await self._begin_now(request, model)
            if lease is None:
                yield TurnQueued(conversation=policy.ref)
                lease = await self._begin(request, model, wait=policy.wait)
            conversation = lease.conversation
            if is_unavailable(conversation, request):
                await self._store.drop_turn(lease)
                raise ConversationNotFoundError(conversation.id)
            model = resolve_model(conversation, request)
            keeper = TurnRecorder(
                self._store, lease, clock=self._clock, on_interrupt=policy.on_interrupt
            )
        async with keeper:
            if compacted is not None:
                keeper.on_event(compacted)
                yield compacted
            conversation = await self._load_window(conversation, request, model, keeper.lease)
            context = await self._context(conversation, request)
            first = self._first_attempt(conversation, request, model, context)
            answer = self._try_models(first, conversation, request, keeper, prepared)
            async with aclosing(answer) as events:
                async for event in events:
                    yield event

    async def preview_prompt(self, request: TurnRequest) -> tuple[Route, Prompt]:
        """Return the route and the prompt of a turn that is not taken."""
        if isinstance(request.policy.preloaded, StoredConversation):
            request = request.with_policy(preloaded=msgspec.UNSET)
        conversation = await self._peek(request, tail=request.policy.tail)
        if conversation is not None and is_unavailable(conversation, request):
            raise ConversationNotFoundError(conversation.id)
        model = resolve_model(conversation, request)
        conversation = await self._load_window(conversation, request, model, None)
        attempt = self._first_attempt(conversation, request, model)
        return attempt.route, build_window_prompt(conversation, request, attempt)

    async def compact(self, request: TurnRequest) -> AsyncGenerator[SummaryEvent, None]:
        """Put all but the newest turn into a summary; the request has no messages.

        Raises UsageError if there is nothing to summarise.
        """
        preloaded = await self._peek(request.with_policy(create=None), tail=0)
        if preloaded is None:
            raise UsageError("Say which conversation is to be summarised.")
        model = resolve_model(preloaded, request)
        await self._find_route(model).provider.prepare()
        async with aclosing(self._compactor().compact(preloaded, request, model)) as events:
            async for event in events:
                yield event

    async def undo_summary(self, ref: str, *, owner: str = LOCAL_OWNER) -> StandingSummary:
        """Restore the summary before the newest one; return the removed one."""
        return await self._compactor().undo(ref, owner=owner)

    def _compactor(self) -> Summariser:
        return Summariser(
            store=self._store,
            clock=self._clock,
            new_id=self._new_id,
            ask=self._ask,
            attempt=self._first_attempt,
        )

    async def _prepare(self, models: tuple[str, ...]) -> PreparedModels:
        """Prepare the first provider that can be; raise if none can."""
        prepared: PreparedModels = {}
        for model in models:
            try:
                await self._find_route(model).provider.prepare()
            except CllmError as error:
                if not can_fall_back(error) or model == models[-1]:
                    raise
                prepared[model] = error
            else:
                prepared[model] = None
                break
        return prepared

    async def _try_models(
        self,
        first: Attempt,
        conversation: StoredConversation | None,
        request: TurnRequest,
        keeper: TurnRecorder | NullRecorder,
        prepared: PreparedModels,
    ) -> AsyncGenerator[TurnEvent, None]:
        """Call the models until one answers, and save the turn."""
        attempt, is_started = first, False
        for following in (*request.target.fallbacks, None):
            is_answering = False
            provider = attempt.route.provider
            costs: list[float | None] = []
            try:
                await _check_prepared(attempt, prepared)
                prompt = build_window_prompt(conversation, request, attempt)
                keeper.on_prompt(prompt, attempt)
                if not is_started:
                    is_started = True
                    yield TurnStarted(
                        conversation=None if conversation is None else conversation.id,
                        model=attempt.model,
                        prompt=prompt,
                        lease=keeper.lease,
                    )
                async with aclosing(self._call(prompt, attempt, request)) as events:
                    async for event in events:
                        if isinstance(event, ReplyFinished):
                            if request.policy.accept is not None:
                                request.policy.accept(event)
                            yield event
                            turn = await keeper.complete(event)
                            cost = total_cost([*costs, _cost(event, attempt.price)])
                            yield TurnEnded(reply=event, turn=turn, model=attempt.model, cost=cost)
                            return
                        if isinstance(event, ToolRoundEnded):
                            costs.append(_cost(event.reply, attempt.price))
                        is_answering = is_answering or not isinstance(event, Noticed)
                        keeper.on_event(event)
                        yield event
                raise BrokenStreamError(
                    f"Provider '{provider.name}' ended without an answer.", provider=provider.name
                )
            except CllmError as error:
                if is_answering or following is None or not can_fall_back(error):
                    raise
                notice = fallback_notice(attempt.model, following, error)
            keeper.on_event(notice)
            yield notice
            attempt = self._attempt(following, first.choice, first.context)

    def _first_attempt(
        self,
        conversation: StoredConversation | None,
        request: TurnRequest,
        model: str,
        context: Context = NO_CONTEXT,
    ) -> Attempt:
        choice = choose_system(
            conversation,
            request.input.system,
            new_policy=request.policy.system,
            now=self._clock(),
            context=context,
        )
        return self._attempt(model, add_prefix(choice, request.input.prefix), context)

    def _attempt(self, model: str, choice: SystemChoice, context: Context) -> Attempt:
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

    async def _context(
        self, conversation: StoredConversation | None, request: TurnRequest
    ) -> Context:
        if not request.input.context or self._run_commands is None:
            return NO_CONTEXT
        plan = plan_context(conversation, request.input.context, new_policy=request.policy.system)
        if not plan.commands:
            return NO_CONTEXT
        return gather_context(plan, await self._run_commands(plan.commands))

    def _call(
        self, prompt: Prompt, attempt: Attempt, request: TurnRequest
    ) -> AsyncGenerator[ReplyEvent | ToolRoundEnded, None]:
        provider, tools = attempt.route.provider, request.target.tools
        if tools is None:
            return self._ask(provider, prompt)
        return call_with_tools(partial(self._ask, provider), prompt, tools)

    def _ask(self, provider: Provider, prompt: Prompt) -> AsyncGenerator[ReplyEvent, None]:
        return call_with_retry(
            partial(provider.ask, prompt),
            rules=self._retry,
            sleep=self._sleep,
            jitter=self._jitter,
        )

    async def _peek(self, request: TurnRequest, *, tail: Tail) -> StoredConversation | None:
        """Load the conversation without a lease; None if it does not exist yet."""
        policy = request.policy
        if policy.ref is None:
            return None
        if not isinstance(policy.preloaded, msgspec.UnsetType):
            return policy.preloaded
        try:
            return await self._store.load(policy.ref, owner=policy.owner, tail=tail)
        except ConversationNotFoundError:
            if policy.create is None or policy.read_only:
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
        if conversation is None or request.policy.window is None:
            return conversation
        # The messages of this turn can be stored already, after those that are loaded.
        new = 0 if lease is None else len(lease.turn.messages)
        while (first := find_first_sequence(conversation, model)) < conversation.first_sequence:
            tail = conversation.message_count + 1 - first + new
            conversation = await self._store.load(
                conversation.id, owner=request.policy.owner, tail=tail
            )
            if lease is not None:
                turns = tuple(turn for turn in conversation.turns if turn.id != lease.turn.id)
                conversation = msgspec.structs.replace(conversation, turns=turns)
        return conversation

    async def _begin_now(self, request: TurnRequest, model: str) -> Lease | None:
        """Take the lease; None if another turn has it and the request allows waiting."""
        try:
            return await self._begin(request, model, wait=0)
        except ConversationBusyError:
            if request.policy.wait == 0:
                raise
            return None

    async def _begin(self, request: TurnRequest, model: str, *, wait: float | None) -> Lease:
        policy = request.policy
        start = TurnStart(
            id=self._new_id(),
            messages=request.input.messages,
            model=model,
            place=policy.place,
            visible=policy.visible,
        )
        return await self._store.begin_turn(
            policy.ref or "",
            start,
            owner=policy.owner,
            create=policy.create,
            wait=wait,
            tail=policy.tail,
        )


def is_unavailable(conversation: StoredConversation, request: TurnRequest) -> bool:
    return request.policy.skip_preload and conversation.archived_at is not None


async def _check_prepared(attempt: Attempt, prepared: PreparedModels) -> None:
    """Prepare the provider of an attempt, or raise the error of the first try."""
    if attempt.model not in prepared:
        await attempt.route.provider.prepare()
    elif (error := prepared[attempt.model]) is not None:
        raise error


def _cost(reply: ReplyFinished, price: Price) -> float | None:
    return None if reply.usage is None else price(reply.usage)

"""One turn, the same for every surface: load, assemble, ask, keep.

The engine knows ports, not what stands behind them, and prints nothing: what a person should see
comes out as events.
"""

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from functools import partial

import msgspec

from cllm.assembly.system import (
    NO_CONTEXT,
    Context,
    SystemChoice,
    choose_system,
    gather_context,
    plan_context,
    under_prefix,
)
from cllm.core.context import CommandOutcome, ContextCommand
from cllm.core.conversation import LOCAL_OWNER, Conversation, StandingSummary
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
from cllm.engine.compacting import Compactor, SummaryEvent
from cllm.engine.keep import Keeper, Unkept, total_cost
from cllm.engine.log import Served, first_needed
from cllm.engine.prompt_builder import model_of, windowed_prompt
from cllm.engine.request import (
    Attempt,
    Price,
    Route,
    TurnBegan,
    TurnEnded,
    TurnEvent,
    TurnRequest,
    TurnWaits,
    unknown_price,
    unknown_window,
)
from cllm.engine.retry import Readiness, RetryRules, Sleep, ask_patiently, fell_back, may_fall_back
from cllm.engine.rounds import RoundEnded, ToolBox, ask_in_rounds
from cllm.engine.summary_plan import summarises

RunCommands = Callable[[Sequence[ContextCommand]], Awaitable[Sequence[CommandOutcome]]]


class Engine:
    """Takes turns. Everything it uses from outside is given to it."""

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

        A turn without `ref` is stateless: nothing is loaded and nothing is saved. What takes long
        happens before the conversation is locked. `ReplyFinished` comes before the turn is saved,
        `TurnEnded` after it.
        """
        conversation: Conversation | None = None
        if not request.policy.at_once:
            tail = request.policy.tail if request.policy.read_only else 0
            conversation = await self._peek(request, tail=tail)
        model = model_of(conversation, request)
        readiness = await self._prepare((model, *request.target.fallbacks))
        compacted: Noticed | None = None
        if conversation is not None and model in readiness.ready and summarises(request, model):
            compacted = await self._compactor().before_turn(conversation, request, model)
        keeper: Keeper | Unkept = Unkept()
        if request.policy.ref is not None and not request.policy.read_only:
            lease = await self._begin_now(request, model)
            if lease is None:
                yield TurnWaits(conversation=request.policy.ref)
                lease = await self._begin(request, model, wait=request.policy.wait)
            conversation = lease.conversation
            if is_gone(conversation, request):
                await self._store.drop_turn(lease)
                raise ConversationNotFoundError(conversation.id)
            model = model_of(conversation, request)
            keeper = Keeper(
                self._store, lease, clock=self._clock, on_interrupt=request.policy.on_interrupt
            )
        async with keeper:
            if compacted is not None:
                keeper.hear(compacted)
                yield compacted
            conversation = await self._reached(conversation, request, model, keeper.lease)
            first = await self._first(conversation, request)
            answer = self._try_models(first, conversation, request, keeper, readiness)
            async with aclosing(answer) as events:
                async for event in events:
                    yield event

    async def would_send(self, request: TurnRequest) -> tuple[Route, Prompt]:
        """Whom a turn would ask, and what, if it were taken now; it is not, and nothing is kept."""
        if isinstance(request.policy.found, Conversation):
            request = request.with_policy(found=msgspec.UNSET)
        conversation = await self._peek(request, tail=request.policy.tail)
        if conversation is not None and is_gone(conversation, request):
            raise ConversationNotFoundError(conversation.id)
        model = model_of(conversation, request)
        conversation = await self._reached(conversation, request, model, None)
        choice = choose_system(
            conversation, request.input.system, new_policy=request.policy.system, now=self._clock()
        )
        attempt = self._attempt(model, under_prefix(choice, request.input.prefix), NO_CONTEXT)
        prompt = windowed_prompt(conversation, request, attempt)
        return attempt.route, prompt

    async def compact(self, request: TurnRequest) -> AsyncGenerator[SummaryEvent, None]:
        """Put all but the newest turn of the request's conversation into a summary.

        The request is one as for a turn, of which nothing is said. UsageError if there is nothing
        to summarise; whatever goes wrong, nothing is changed before the summary is whole.
        """
        found = await self._peek(request.with_policy(create=None), tail=0)
        if found is None:
            raise UsageError("Say which conversation is to be summarised.")
        model = model_of(found, request)
        await self._find_route(model).provider.prepare()
        async with aclosing(self._compactor().compact(found, request, model)) as events:
            async for event in events:
                yield event

    async def undo_summary(self, ref: str, *, owner: str = LOCAL_OWNER) -> StandingSummary:
        """Go back to the summary before the one that stands, or to none; the one that is gone."""
        return await self._compactor().undo(ref, owner=owner)

    def _compactor(self) -> Compactor:
        return Compactor(
            store=self._store,
            clock=self._clock,
            new_id=self._new_id,
            ask=self._ask,
            attempt=self._attempt,
        )

    async def _prepare(self, models: tuple[str, ...]) -> Readiness:
        """Prepare the first provider that can be."""
        readiness = Readiness()
        for model in models:
            try:
                await readiness.prepare(model, self._find_route(model).provider)
            except CllmError as error:
                if not may_fall_back(error) or model == models[-1]:
                    raise
                readiness.failed[model] = error
            else:
                break
        return readiness

    async def _first(self, conversation: Conversation | None, request: TurnRequest) -> Attempt:
        """The model that is asked first, under the system prompt and the context of the turn."""
        context = await self._context(conversation, request)
        choice = choose_system(
            conversation,
            request.input.system,
            new_policy=request.policy.system,
            now=self._clock(),
            context=context,
        )
        model = model_of(conversation, request)
        return self._attempt(model, under_prefix(choice, request.input.prefix), context)

    async def _try_models(
        self,
        first: Attempt,
        conversation: Conversation | None,
        request: TurnRequest,
        keeper: Keeper | Unkept,
        readiness: Readiness,
    ) -> AsyncGenerator[TurnEvent, None]:
        """Call one model after the other until one answers, and save the turn with its reply."""
        attempt, is_started = first, False
        for following in (*request.target.fallbacks, None):
            is_answering = False
            provider = attempt.route.provider
            costs: list[float | None] = []
            try:
                if attempt.model not in readiness.ready:
                    await readiness.prepare(attempt.model, provider)
                prompt = windowed_prompt(conversation, request, attempt)
                keeper.send(prompt, attempt)
                if not is_started:
                    is_started = True
                    yield TurnBegan(
                        conversation=None if conversation is None else conversation.id,
                        model=attempt.model,
                        prompt=prompt,
                        lease=keeper.lease,
                    )
                async with aclosing(self._call(prompt, attempt, request.target.tools)) as events:
                    async for event in events:
                        if isinstance(event, ReplyFinished):
                            if request.policy.accept is not None:
                                request.policy.accept(event)
                            yield event
                            turn = await keeper.complete(event)
                            cost = total_cost([*costs, _cost(event, attempt.price)])
                            yield TurnEnded(reply=event, turn=turn, model=attempt.model, cost=cost)
                            return
                        if isinstance(event, RoundEnded):
                            costs.append(_cost(event.reply, attempt.price))
                        is_answering = is_answering or not isinstance(event, Noticed)
                        keeper.hear(event)
                        yield event
                raise BrokenStreamError(
                    f"Provider '{provider.name}' ended without an answer.", provider=provider.name
                )
            except CllmError as error:
                if is_answering or following is None or not may_fall_back(error):
                    raise
                notice = fell_back(attempt.model, following, error)
            keeper.hear(notice)
            yield notice
            attempt = self._attempt(following, first.choice, first.context)

    def _attempt(self, model: str, choice: SystemChoice, context: Context) -> Attempt:
        route = self._find_route(model)
        return Attempt(
            route=route,
            model=model,
            choice=choice,
            context=context,
            price=self._price(route),
            served=Served(
                model=model,
                provider=route.provider.name,
                context_window=partial(self._context_window, route),
                now=self._clock(),
            ),
        )

    async def _context(self, conversation: Conversation | None, request: TurnRequest) -> Context:
        """Run the context commands that this turn needs."""
        plan = plan_context(conversation, request.input.context, new_policy=request.policy.system)
        if not plan.commands or self._run_commands is None:
            return Context()
        return gather_context(plan, await self._run_commands(plan.commands))

    def _call(
        self, prompt: Prompt, attempt: Attempt, tools: ToolBox | None
    ) -> AsyncGenerator[ReplyEvent | RoundEnded, None]:
        """Call the model of an attempt, in rounds if it has tools."""
        ask = partial(self._ask, attempt.route.provider)
        return ask(prompt) if tools is None else ask_in_rounds(ask, prompt, tools)

    async def _peek(self, request: TurnRequest, *, tail: Tail) -> Conversation | None:
        """The conversation as it is stored now; None if there is none, or none yet."""
        if request.policy.ref is None:
            return None
        if not isinstance(request.policy.found, msgspec.UnsetType):
            return request.policy.found
        try:
            return await self._store.load(request.policy.ref, owner=request.policy.owner, tail=tail)
        except ConversationNotFoundError:
            if request.policy.create is None or request.policy.read_only:
                raise
            return None

    async def _reached(
        self,
        conversation: Conversation | None,
        request: TurnRequest,
        model: str,
        lease: Lease | None,
    ) -> Conversation | None:
        """The conversation, with what its window needs more of it than was loaded."""
        if conversation is None or request.policy.window is None:
            return conversation
        # What is said in this turn may be stored already, behind all that is to be loaded.
        said = 0 if lease is None else len(lease.turn.messages)
        while (first := first_needed(conversation, model)) < conversation.first_sequence:
            tail = conversation.message_count + 1 - first + said
            found = await self._store.load(conversation.id, owner=request.policy.owner, tail=tail)
            conversation = found if lease is None else without_turn(found, lease.turn.id)
        return conversation

    async def _begin_now(self, request: TurnRequest, model: str) -> Lease | None:
        """A lease, or None if the turn has to wait and may."""
        try:
            return await self._begin(request, model, wait=0)
        except ConversationBusyError:
            if request.policy.wait == 0:
                raise
            return None

    async def _begin(self, request: TurnRequest, model: str, *, wait: float | None) -> Lease:
        start = TurnStart(
            id=self._new_id(),
            messages=request.input.messages,
            model=model,
            place=request.policy.place,
            visible=request.policy.visible,
        )
        return await self._store.begin_turn(
            request.policy.ref or "",
            start,
            owner=request.policy.owner,
            create=request.policy.create,
            wait=wait,
            tail=request.policy.tail,
        )

    def _ask(self, provider: Provider, prompt: Prompt) -> AsyncGenerator[ReplyEvent, None]:
        return ask_patiently(
            lambda: provider.ask(prompt),
            rules=self._retry,
            sleep=self._sleep,
            jitter=self._jitter,
        )


def is_gone(conversation: Conversation, request: TurnRequest) -> bool:
    """Whether the conversation is not to be talked in any more."""
    return request.policy.at_once and conversation.archived_at is not None


def without_turn(conversation: Conversation, turn_id: str) -> Conversation:
    """The conversation without a turn that runs in it."""
    turns = tuple(turn for turn in conversation.turns if turn.id != turn_id)
    return msgspec.structs.replace(conversation, turns=turns)


def _cost(reply: ReplyFinished, price: Price) -> float | None:
    return None if reply.usage is None else price(reply.usage)

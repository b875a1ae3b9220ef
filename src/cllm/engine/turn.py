"""One turn, the same for every surface: load, assemble, ask, keep.

The engine knows ports, not what stands behind them, and prints nothing: what a person should see
comes out as events.
"""

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, aclosing
from functools import partial
from typing import Any

import msgspec

from cllm.assembly.assemble import assemble
from cllm.assembly.context import Context, gather_context, plan_context
from cllm.assembly.system import GivenPrompt, SystemChoice, choose_system
from cllm.assembly.window import Strategy
from cllm.core.context import CommandOutcome, ContextCommand
from cllm.core.conversation import LOCAL_OWNER, Conversation, Policy, Turn
from cllm.core.errors import (
    BrokenStreamError,
    CllmError,
    ConversationBusyError,
    ConversationNotFoundError,
)
from cllm.core.message import Dialect, Message
from cllm.core.notice import Notice
from cllm.core.ports import Clock, Lease, NewConversation, NewId, Provider, Store, TurnStart
from cllm.core.prompt import Original, Prompt
from cllm.core.reply import Noticed, ReplyDelta, ReplyEvent, ReplyFinished
from cllm.engine.fallback import Readiness, fell_back, may_fall_back
from cllm.engine.keep import (
    Keeper,
    OnInterrupt,
    Price,
    Sent,
    Unkept,
    total_cost,
    unknown_price,
)
from cllm.engine.renewal import renewed
from cllm.engine.retry import RetryRules, Sleep, ask_patiently
from cllm.engine.rounds import RoundEnded, ToolBox, ask_in_rounds
from cllm.engine.windowing import cut_to_window

RunCommands = Callable[[Sequence[ContextCommand]], Awaitable[Sequence[CommandOutcome]]]


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """Who serves a model: a provider, and the model's name there."""

    provider: Provider
    model: str


def unknown_window(_route: Route) -> int | None:
    """For whoever knows of no limits."""
    return None


class TurnRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A turn as a surface asks for it.

    Without `ref` there is no conversation and nothing is kept. With `create` a conversation that
    does not exist yet is made. `place` asks again in the place of that turn, which stays as a
    variant. `read_only` sends a conversation's history and keeps nothing.
    `visible` keeps the turn from its beginning, and keeps it as failed if it fails. While another
    turn runs in the conversation this one waits for `wait` seconds, None being for ever.
    `window` chooses, by the model, what of the conversation is sent; without it that is all.
    `tools` are used for the model when it asks for them.
    `context` are the commands whose output the model is to know, in the order of their blocks.
    `parameters` are in the words of `dialect`. `fallbacks` are models to ask, in this order, when
    the one before gives nothing. `strict` and `original` are the prompt's. `accept` looks at the
    reply before it is kept, and raises if it is not to be.
    """

    messages: tuple[Message, ...]
    model: str
    model_is_explicit: bool = False
    ref: str | None = None
    create: NewConversation | None = None
    owner: str = LOCAL_OWNER
    system: GivenPrompt = GivenPrompt()
    policy: Policy = "captured"
    context: tuple[ContextCommand, ...] = ()
    window: Callable[[str], Strategy] | None = None
    tools: ToolBox | None = None
    parameters: dict[str, Any] = msgspec.field(default_factory=dict)
    dialect: Dialect = "openai"
    fallbacks: tuple[str, ...] = ()
    strict: bool = False
    original: Original | None = None
    accept: Callable[[ReplyFinished], None] | None = None
    stream: bool = True
    place: str | None = None
    read_only: bool = False
    visible: bool = False
    wait: float | None = None
    on_interrupt: OnInterrupt = "keep"
    cache_key: str | None = None


class TurnWaits(msgspec.Struct, frozen=True, kw_only=True):
    """Another turn is running in the conversation; this one begins when that has ended."""

    conversation: str


class TurnBegan(msgspec.Struct, frozen=True, kw_only=True):
    """The provider is about to be asked with this prompt."""

    conversation: str | None
    model: str
    prompt: Prompt


class TurnEnded(msgspec.Struct, frozen=True, kw_only=True):
    """The reply is whole, and kept if there is a conversation to keep it in.

    `model` is the one that answered, `cost` in US dollars what its provider charges for all rounds
    of the turn, if known.
    """

    reply: ReplyFinished
    turn: Turn | None
    model: str
    cost: float | None = None


TurnEvent = TurnWaits | TurnBegan | Noticed | ReplyDelta | RoundEnded | TurnEnded


class _Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One model about to be asked: who serves it, under which prompt and context, at what price."""

    route: Route
    model: str
    choice: SystemChoice
    context: Context
    price: Price


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

    async def take_turn(self, request: TurnRequest) -> AsyncGenerator[TurnEvent, None]:
        """Load, assemble, ask, keep; the events of it as they happen.

        What takes long is prepared before the conversation is held, so that nobody waits for it.
        """
        conversation = await self._peek(request, tail=None if request.read_only else 0)
        model = _model(conversation, request)
        readiness = await self._prepare((model, *request.fallbacks))
        async with AsyncExitStack() as stack:
            keeper: Keeper | Unkept = Unkept()
            if request.ref is not None and not request.read_only:
                lease = await self._begin_now(request, model)
                if lease is None:
                    yield TurnWaits(conversation=request.ref)
                    lease = await self._begin(request, model, wait=request.wait)
                conversation = lease.conversation
                keeper = await self._keeper(lease, request, stack)
            answered = await stack.enter_async_context(
                aclosing(self._answered(conversation, request, keeper, readiness))
            )
            async for event in answered:
                yield event

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

    async def _answered(
        self,
        conversation: Conversation | None,
        request: TurnRequest,
        keeper: Keeper | Unkept,
        readiness: Readiness,
    ) -> AsyncGenerator[TurnEvent, None]:
        """Assemble, ask, keep; with the next model as long as nothing of an answer was seen."""
        context = await self._context(conversation, request)
        choice = choose_system(
            conversation,
            request.system,
            new_policy=request.policy,
            now=self._clock(),
            context=context,
        )
        models = (_model(conversation, request), *request.fallbacks)
        for model, following in zip(models, (*models[1:], None), strict=True):
            seen = False
            route = self._find_route(model)
            attempt = _Attempt(
                route=route,
                model=model,
                choice=choice,
                context=context,
                price=self._price(route),
            )
            try:
                if model not in readiness.ready:
                    await readiness.prepare(model, route.provider)
                asked = self._attempted(conversation, request, attempt, keeper)
                async with aclosing(asked) as events:
                    async for event in events:
                        seen = seen or not isinstance(event, Noticed | TurnBegan)
                        if isinstance(event, TurnBegan) and model != models[0]:
                            continue
                        yield event
            except CllmError as error:
                if seen or following is None or not may_fall_back(error):
                    raise
                notice = fell_back(model, following, error)
                keeper.hear(notice)
                yield notice
            else:
                return

    async def _context(self, conversation: Conversation | None, request: TurnRequest) -> Context:
        """Run the context commands that this turn needs."""
        plan = plan_context(conversation, request.context, new_policy=request.policy)
        if not plan.commands or self._run_commands is None:
            return Context()
        return gather_context(plan, await self._run_commands(plan.commands))

    async def _attempted(
        self,
        conversation: Conversation | None,
        request: TurnRequest,
        attempt: _Attempt,
        keeper: Keeper | Unkept,
    ) -> AsyncGenerator[TurnEvent, None]:
        """One model asked: its events, and the turn kept with its whole answer."""
        provider = attempt.route.provider
        prompt = self._prompt(conversation, request, attempt)
        keeper.send(
            Sent(
                prompt=prompt,
                model=attempt.model,
                provider=provider.name,
                opening=attempt.choice.opening,
                price=attempt.price,
            )
        )
        name = None if conversation is None else conversation.id
        yield TurnBegan(conversation=name, model=attempt.model, prompt=prompt)
        spent: list[float | None] = []
        rounds = ask_in_rounds(partial(self._ask, provider), prompt, request.tools)
        async with aclosing(rounds) as events:
            async for event in events:
                if isinstance(event, RoundEnded):
                    spent.append(_cost(event.reply, attempt.price))
                if isinstance(event, ReplyFinished):
                    if request.accept is not None:
                        request.accept(event)
                    turn = await keeper.complete(event)
                    cost = total_cost([*spent, _cost(event, attempt.price)])
                    yield TurnEnded(reply=event, turn=turn, model=attempt.model, cost=cost)
                    return
                keeper.hear(event)
                yield event
        raise BrokenStreamError(
            f"Provider '{provider.name}' ended without an answer.", provider=provider.name
        )

    def _prompt(
        self, conversation: Conversation | None, request: TurnRequest, attempt: _Attempt
    ) -> Prompt:
        """What is sent: assembled, and cut to its window if it has one."""
        prompt = _assemble(conversation, request, attempt)
        if request.window is None:
            return prompt
        return cut_to_window(
            prompt,
            conversation,
            request.window(attempt.model),
            without_place=request.place,
            model=attempt.model,
            provider=attempt.route.provider.name,
            context_window=partial(self._context_window, attempt.route),
            now=self._clock(),
        )

    async def _peek(self, request: TurnRequest, tail: int | None = None) -> Conversation | None:
        """The conversation as it is stored now; None if there is none, or none yet."""
        if request.ref is None:
            return None
        try:
            return await self._store.load(request.ref, owner=request.owner, tail=tail)
        except ConversationNotFoundError:
            if request.create is None or request.read_only:
                raise
            return None

    async def _begin_now(self, request: TurnRequest, model: str) -> Lease | None:
        """A lease, or None if the turn has to wait and may."""
        try:
            return await self._begin(request, model, wait=0)
        except ConversationBusyError:
            if request.wait == 0:
                raise
            return None

    async def _begin(self, request: TurnRequest, model: str, *, wait: float | None) -> Lease:
        start = TurnStart(
            id=self._new_id(),
            messages=request.messages,
            model=model,
            place=request.place,
            visible=request.visible,
        )
        return await self._store.begin_turn(
            request.ref or "", start, owner=request.owner, create=request.create, wait=wait
        )

    async def _keeper(self, lease: Lease, request: TurnRequest, stack: AsyncExitStack) -> Keeper:
        """A keeper that settles the turn when the stack is left, however it is left."""
        keeper = Keeper(self._store, lease, clock=self._clock, on_interrupt=request.on_interrupt)
        await stack.enter_async_context(keeper)
        await stack.enter_async_context(renewed(self._store, lease, clock=self._clock))
        return keeper

    def _ask(self, provider: Provider, prompt: Prompt) -> AsyncGenerator[ReplyEvent, None]:
        return ask_patiently(
            lambda: provider.ask(prompt),
            rules=self._retry,
            sleep=self._sleep,
            jitter=self._jitter,
        )


def _cost(reply: ReplyFinished, price: Price) -> float | None:
    return None if reply.usage is None else price(reply.usage)


def _model(conversation: Conversation | None, request: TurnRequest) -> str:
    """A conversation keeps the model it was created with."""
    stored = None if conversation is None else conversation.model
    return stored or request.model


def _assemble(conversation: Conversation | None, request: TurnRequest, attempt: _Attempt) -> Prompt:
    fixed = _fixed_model_notice(conversation, request)
    return assemble(
        conversation,
        request.messages,
        system=attempt.choice,
        context=attempt.context,
        notices=() if fixed is None else (fixed,),
        model=attempt.route.model,
        asked_model=attempt.model,
        said_to=_model(conversation, request),
        parameters=request.parameters,
        dialect=request.dialect,
        strict=request.strict,
        original=request.original,
        stream=request.stream,
        cache_key=request.cache_key,
        without_place=request.place,
    )


def _fixed_model_notice(conversation: Conversation | None, request: TurnRequest) -> Notice | None:
    if conversation is None or not request.model_is_explicit:
        return None
    if conversation.model in (None, request.model):
        return None
    return Notice(
        code="model_fixed",
        path="model",
        message=(
            f"Conversation uses model '{conversation.model}', but you specified "
            f"'{request.model}'. Using '{conversation.model}'."
        ),
    )

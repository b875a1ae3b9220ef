"""Putting the oldest turns of a conversation into a summary: load, plan, ask, keep.

Nothing is kept before every piece was answered: a summary that fails or is interrupted changes
nothing, and the messages that one stands for stay where they are.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

import msgspec

from cllm.assembly.system import (
    NO_CONTEXT,
    Context,
    GivenPrompt,
    SystemChoice,
    choose_system,
    under_prefix,
)
from cllm.assembly.tokens import weigh, weights_for
from cllm.assembly.window.summary import summary_turn
from cllm.core.conversation import Conversation, StandingSummary
from cllm.core.errors import BadReplyError, CllmError, ConversationBusyError, UsageError
from cllm.core.message import Message, Part, RedactedThinking, Thinking, ToolCall
from cllm.core.notice import Notice
from cllm.core.ports import Changes, Clock, NewId, Provider, Store, TurnStart
from cllm.core.prompt import Prompt
from cllm.core.reply import Noticed, ReplyEvent, ReplyFinished, StopReason
from cllm.engine.keep import total_cost, total_usage
from cllm.engine.request import Attempt, TurnRequest
from cllm.engine.summary_plan import (
    AROUND,
    LONGEST,
    SummaryPlan,
    check_fits,
    hides_prompt,
    material_of,
    no_summary,
    plan_for_turn,
    plan_now,
    summary_prompt,
)
from cllm.wire.translate import parts_of

SUMMARISED_CODE = "summarised"
MOST_UNDONE = 50
"""So many summaries can be undone one after another; older ones are not kept."""
WHOLE: tuple[StopReason, ...] = ("end", "stop_sequence", "unknown")
"""How an answer ends that may be a summary: it was not refused, filtered, or a call for a tool."""

Ask = Callable[[Provider, Prompt], AsyncGenerator[ReplyEvent, None]]
Attempted = Callable[[str, SystemChoice, Context], Attempt]


class Summarising(msgspec.Struct, frozen=True, kw_only=True):
    """A piece is about to be asked for: which of how many, and how many messages are in it."""

    piece: int
    pieces: int
    messages: int


class Summarised(msgspec.Struct, frozen=True, kw_only=True):
    """The summary is kept, and stands for so many turns more than the one before it."""

    summary: StandingSummary
    turns: int


SummaryEvent = Summarising | Summarised


class Compactor:
    """Asks for summaries, with the model of a conversation, and keeps them in its store.

    `ask` and `attempt` are the engine's own: how it calls, and what it knows of a model.
    """

    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        new_id: NewId,
        ask: Ask,
        attempt: Attempted,
    ) -> None:
        self._store = store
        self._clock = clock
        self._new_id = new_id
        self._ask = ask
        self._attempt = attempt

    async def compact(
        self, found: Conversation, request: TurnRequest, model: str
    ) -> AsyncGenerator[SummaryEvent, None]:
        """Summarise all but the newest turn; UsageError if there is nothing else."""
        conversation = await self._load(found, request)
        attempt = self._for_summary(conversation, request, model)
        plan = plan_now(material_of(conversation, request, attempt))
        async with aclosing(self._carried_out(plan, conversation, request, attempt)) as events:
            async for event in events:
                yield event

    async def before_turn(
        self, found: Conversation, request: TurnRequest, model: str
    ) -> Noticed | None:
        """Make the summary that a turn needs first, and say what came of it.

        A failure is told, and the turn goes on with what stands. WindowTooSmallError if it cannot
        be sent at all, and there is no other model to fall back to.
        """
        conversation = await self._load(found, request)
        attempt = self._for_summary(conversation, request, model)
        material = material_of(conversation, request, attempt)
        if not request.target.fallbacks:
            check_fits(material)
        try:
            plan = plan_for_turn(material)
            if plan is None:
                return None
            async with aclosing(self._carried_out(plan, conversation, request, attempt)) as events:
                async for event in events:
                    if isinstance(event, Summarised):
                        return summarised(event)
        except CllmError as error:
            return no_summary(error)
        return None

    async def undo(self, ref: str, *, owner: str) -> StandingSummary:
        """Go back to the summary before the one that stands, or to none; the one that is gone."""
        conversation = await self._store.load(ref, owner=owner, tail=0)
        undone = conversation.summary
        if undone is None:
            raise UsageError("No summary stands for anything in this conversation.")
        await self._store.update(conversation.id, Changes(summary=undone.before), owner=owner)
        return undone

    async def _load(self, found: Conversation, request: TurnRequest) -> Conversation:
        """The conversation from the first message that no summary stands for, and its pins."""
        through = 0 if found.summary is None else found.summary.through
        tail = found.message_count + 1 - min((through + 1, *found.pins))
        return await self._store.load(found.id, owner=request.policy.owner, tail=tail)

    def _for_summary(self, conversation: Conversation, request: TurnRequest, model: str) -> Attempt:
        """How a summary is asked for: as a turn is, but never under a client's own prompt."""
        given = GivenPrompt() if hides_prompt(conversation, request) else request.input.system
        choice = choose_system(
            conversation,
            given,
            new_policy=request.policy.system,
            now=self._clock(),
        )
        return self._attempt(model, under_prefix(choice, request.input.prefix), NO_CONTEXT)

    async def _carried_out(
        self, plan: SummaryPlan, conversation: Conversation, request: TurnRequest, attempt: Attempt
    ) -> AsyncGenerator[SummaryEvent, None]:
        """Ask for each piece, and keep the summary when the last was answered."""
        so_far = conversation.summary
        pieces: list[StandingSummary] = []
        for number, chunk in enumerate(plan.chunks, start=1):
            count = sum(stop - start for start, stop in chunk.spans)
            yield Summarising(piece=number, pieces=len(plan.chunks), messages=count)
            prompt = summary_prompt(plan.material, chunk, so_far)
            so_far = await self._answer(prompt, plan, attempt)
            pieces.append(so_far)
        before = conversation.summary
        made = msgspec.structs.replace(
            pieces[-1],
            usage=total_usage([one.usage for one in pieces if one.usage is not None]),
            cost=total_cost([one.cost for one in pieces]),
            made_at=self._clock(),
            before=None if before is None else _newest_of(before),
        )
        if plan.is_for_turn and not plan.leaves_room(made.tokens):
            raise BadReplyError(
                "The summary is so long that what is said now would not fit beside it.",
                provider=attempt.route.provider.name,
            )
        await self._keep(conversation, made, request)
        yield Summarised(summary=made, turns=plan.turns)

    async def _answer(self, prompt: Prompt, plan: SummaryPlan, attempt: Attempt) -> StandingSummary:
        provider = attempt.route.provider
        async with aclosing(self._ask(provider, prompt)) as events:
            async for event in events:
                if isinstance(event, ReplyFinished):
                    return _answered(event, plan, attempt)
        raise BadReplyError(
            f"Provider '{provider.name}' gave no summary; try again.", provider=provider.name
        )

    async def _keep(
        self, conversation: Conversation, made: StandingSummary, request: TurnRequest
    ) -> None:
        """Keep it when no turn runs, and if it still tells of what is there."""
        while True:
            await self._check_unchanged(conversation, made, request)
            try:
                changes = Changes(summary=made)
                await self._store.update(conversation.id, changes, owner=request.policy.owner)
            except ConversationBusyError:
                await self._turn_ends(conversation.id, request)
            else:
                return

    async def _check_unchanged(
        self, conversation: Conversation, made: StandingSummary, request: TurnRequest
    ) -> None:
        """UsageError if another summary stands by now, or other messages where these were."""
        seen = await self._store.load(conversation.id, owner=request.policy.owner, tail=0)
        if seen.summary != conversation.summary:
            raise UsageError(
                "Another summary was made meanwhile, and stands; this one was not kept."
            )
        tail = max(0, seen.message_count + 1 - conversation.first_sequence)
        seen = await self._store.load(conversation.id, owner=request.policy.owner, tail=tail)
        if _told(seen, made) != _told(conversation, made):
            raise UsageError(
                "The conversation was changed meanwhile; the summary of what it was is not kept."
            )

    async def _turn_ends(self, conversation_id: str, request: TurnRequest) -> None:
        """Wait until no turn runs, for as long as the request would wait with its own."""
        start = TurnStart(id=self._new_id(), messages=(), visible=False)
        lease = await self._store.begin_turn(
            conversation_id, start, owner=request.policy.owner, wait=request.policy.wait, tail=0
        )
        await self._store.drop_turn(lease)


def _newest_of(summary: StandingSummary) -> StandingSummary:
    """A summary with as many before it as are kept; the oldest has what those before it took."""
    chain = [summary]
    while (before := chain[-1].before) is not None:
        chain.append(before)
    kept, older = chain[:MOST_UNDONE], chain[MOST_UNDONE:]
    if not older:
        return summary
    last = [kept.pop(), *older]
    found = msgspec.structs.replace(
        last[0],
        usage=total_usage([one.usage for one in last if one.usage is not None]),
        cost=total_cost([one.cost for one in last]),
        before=None,
    )
    for one in reversed(kept):
        found = msgspec.structs.replace(one, before=found)
    return found


def _told(conversation: Conversation, summary: StandingSummary) -> tuple[Message, ...]:
    """The messages that a summary is of, and that the one before it was not."""
    first = 1 if summary.before is None else summary.before.through + 1
    return tuple(
        message
        for number, _, message in conversation.numbered_messages()
        if first <= number <= summary.through
    )


def summarised(event: Summarised) -> Noticed:
    """The notice that turns are in a summary now."""
    turns = "1 turn is" if event.turns == 1 else f"{event.turns} turns are"
    return Noticed(
        notice=Notice(
            code=SUMMARISED_CODE,
            path="messages",
            message=f"{turns} in a summary from now on, and still stored.",
        )
    )


def _answered(reply: ReplyFinished, plan: SummaryPlan, attempt: Attempt) -> StandingSummary:
    """Make a summary of a reply; BadReplyError if the reply is none, or is not complete."""
    most = LONGEST * plan.material.strategy.summary_tokens
    name = attempt.route.provider.name
    text = reply.message.text.strip()
    tokens = _tokens_of(text, reply, name)
    is_whole = reply.stop_reason in (*WHOLE, "length") and not _has(reply, ToolCall)
    if not text or not is_whole:
        raise BadReplyError(f"Model '{attempt.model}' answered without a summary.", provider=name)
    if reply.stop_reason == "length" or tokens > most + AROUND:
        raise BadReplyError(
            f"The summary is longer than {most} tokens; allow more with `window.summary_tokens`.",
            provider=name,
        )
    usage = reply.usage
    cost = None if usage is None else attempt.price(usage)
    return StandingSummary(
        text=text,
        through=plan.through,
        tokens=tokens,
        model=attempt.model,
        usage=usage,
        cost=cost,
    )


def _tokens_of(text: str, reply: ReplyFinished, provider: str) -> int:
    """What a summary takes in a prompt: as counted, unless that counts thinking too."""
    usage = reply.usage
    has_thought = _has(reply, Thinking) or _has(reply, RedactedThinking)
    if usage is None or usage.estimated or (has_thought and not usage.reasoning):
        usage = None
    if usage is not None and usage.output:
        return usage.output + AROUND
    weights = weights_for(provider)
    return sum(weigh(one, weights).tokens for one in summary_turn(text))


def _has(reply: ReplyFinished, kind: type[Part]) -> bool:
    return any(isinstance(part, kind) for part in parts_of(reply.message))

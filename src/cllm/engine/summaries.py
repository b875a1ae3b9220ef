"""Putting the oldest turns of a conversation into a summary: load, plan, call, save.

A summary that fails or is interrupted changes nothing. The messages in it stay in the store.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

import msgspec

from cllm.core.conversation import StandingSummary, StoredConversation
from cllm.core.errors import BadReplyError, CllmError, ConversationBusyError, UsageError
from cllm.core.message import Message, RedactedThinking, Thinking, ToolCall
from cllm.core.notice import Notice
from cllm.core.ports import Changes, Clock, NewId, Provider, Store, TurnStart
from cllm.core.prompt import Prompt
from cllm.core.reply import Noticed, ReplyEvent, ReplyFinished, StopReason
from cllm.engine.recorder import total_cost, total_usage
from cllm.engine.request import Attempt, TurnRequest
from cllm.engine.summary_plan import (
    MAX_LENGTH_FACTOR,
    SUMMARY_OVERHEAD,
    SummaryPlan,
    build_summary_input,
    build_summary_prompt,
    check_fits,
    has_unsaved_prompt,
    plan_for_turn,
    plan_on_request,
    summary_failed_notice,
)
from cllm.history.system_prompt import GivenPrompt
from cllm.window.summary import build_summary_messages
from cllm.window.tokens import estimate_message, weights_for
from cllm.wire.convert import parts_of

SUMMARISED_CODE = "summarised"
MAX_UNDO = 50
"""How many summaries can be undone one after another; older ones are not saved."""
COMPLETE_REASONS: tuple[StopReason, ...] = ("end", "stop_sequence", "unknown")
"""Stop reasons of a reply that can be a summary: not refused, filtered, or a tool call."""

CallModel = Callable[[Provider, Prompt], AsyncGenerator[ReplyEvent, None]]
FirstAttempt = Callable[[StoredConversation, TurnRequest, str], Attempt]


class SummaryStarted(msgspec.Struct, frozen=True, kw_only=True):
    """A piece is about to be requested."""

    piece: int
    pieces: int
    messages: int


class SummarySaved(msgspec.Struct, frozen=True, kw_only=True):
    """The summary is saved; `turns` are those that are new in it."""

    summary: StandingSummary
    turns: int


SummaryEvent = SummaryStarted | SummarySaved


class Summariser:
    """Requests summaries from the model of a conversation and saves them."""

    def __init__(
        self, *, store: Store, clock: Clock, new_id: NewId, ask: CallModel, attempt: FirstAttempt
    ) -> None:
        self._store = store
        self._clock = clock
        self._new_id = new_id
        self._ask = ask
        self._attempt = attempt

    async def compact(
        self, found: StoredConversation, request: TurnRequest, model: str
    ) -> AsyncGenerator[SummaryEvent, None]:
        """Summarise all but the newest turn; UsageError if there is no other."""
        conversation = await self._load(found, request)
        attempt = self._attempt_for(conversation, request, model)
        plan = plan_on_request(build_summary_input(conversation, request, attempt))
        async with aclosing(self._carry_out(plan, conversation, request, attempt)) as events:
            async for event in events:
                yield event

    async def before_turn(
        self, found: StoredConversation, request: TurnRequest, model: str
    ) -> Noticed | None:
        """Make the summary that a turn needs first; return a notice of it, also if it failed."""
        conversation = await self._load(found, request)
        attempt = self._attempt_for(conversation, request, model)
        material = build_summary_input(conversation, request, attempt)
        if not request.target.fallbacks:
            check_fits(material)
        try:
            plan = plan_for_turn(material)
            if plan is None:
                return None
            async with aclosing(self._carry_out(plan, conversation, request, attempt)) as events:
                async for event in events:
                    if isinstance(event, SummarySaved):
                        turns = "1 turn is" if event.turns == 1 else f"{event.turns} turns are"
                        message = f"{turns} in a summary from now on, and still stored."
                        notice = Notice(code=SUMMARISED_CODE, path="messages", message=message)
                        return Noticed(notice=notice)
        except CllmError as error:
            return Noticed(notice=summary_failed_notice(error))
        return None

    async def undo(self, ref: str, *, owner: str) -> StandingSummary:
        conversation = await self._store.load(ref, owner=owner, tail=0)
        undone = conversation.summary
        if undone is None:
            raise UsageError("No summary stands for anything in this conversation.")
        await self._store.update(conversation.id, Changes(summary=undone.before), owner=owner)
        return undone

    async def _load(self, found: StoredConversation, request: TurnRequest) -> StoredConversation:
        """Load the messages that are in no summary, and the pins."""
        through = 0 if found.summary is None else found.summary.through
        tail = found.message_count + 1 - min((through + 1, *found.pins))
        return await self._store.load(found.id, owner=request.policy.owner, tail=tail)

    def _attempt_for(
        self, conversation: StoredConversation, request: TurnRequest, model: str
    ) -> Attempt:
        """Return the attempt of a turn, without a prompt that is not saved."""
        if has_unsaved_prompt(conversation, request):
            request = request.with_input(system=GivenPrompt())
        return self._attempt(conversation, request, model)

    async def _carry_out(
        self,
        plan: SummaryPlan,
        conversation: StoredConversation,
        request: TurnRequest,
        attempt: Attempt,
    ) -> AsyncGenerator[SummaryEvent, None]:
        before = so_far = conversation.summary
        pieces: list[StandingSummary] = []
        for number, chunk in enumerate(plan.chunks, start=1):
            count = sum(stop - start for start, stop in chunk.spans)
            yield SummaryStarted(piece=number, pieces=len(plan.chunks), messages=count)
            prompt = build_summary_prompt(plan.material, chunk, so_far)
            so_far = await self._answer(prompt, plan, attempt)
            pieces.append(so_far)
        made = msgspec.structs.replace(
            pieces[-1],
            usage=total_usage([one.usage for one in pieces if one.usage is not None]),
            cost=total_cost([one.cost for one in pieces]),
            made_at=self._clock(),
            before=None if before is None else _with_newest(before),
        )
        if plan.is_for_turn and not plan.leaves_room(made.tokens):
            raise BadReplyError(
                "The summary is so long that what is said now would not fit beside it.",
                provider=attempt.route.provider.name,
            )
        await self._save(conversation, made, request)
        yield SummarySaved(summary=made, turns=plan.turns)

    async def _answer(self, prompt: Prompt, plan: SummaryPlan, attempt: Attempt) -> StandingSummary:
        provider = attempt.route.provider
        async with aclosing(self._ask(provider, prompt)) as events:
            async for event in events:
                if isinstance(event, ReplyFinished):
                    return _summary_of(event, plan, attempt)
        raise BadReplyError(
            f"Provider '{provider.name}' gave no summary; try again.", provider=provider.name
        )

    async def _save(
        self, conversation: StoredConversation, made: StandingSummary, request: TurnRequest
    ) -> None:
        """Save the summary when no turn runs, if its messages are unchanged."""
        while True:
            await self._check_unchanged(conversation, made, request)
            try:
                changes = Changes(summary=made)
                await self._store.update(conversation.id, changes, owner=request.policy.owner)
            except ConversationBusyError:
                await self._wait_for_turn(conversation.id, request)
            else:
                return

    async def _check_unchanged(
        self, conversation: StoredConversation, made: StandingSummary, request: TurnRequest
    ) -> None:
        stored = await self._store.load(conversation.id, owner=request.policy.owner, tail=0)
        if stored.summary != conversation.summary:
            raise UsageError(
                "Another summary was made meanwhile, and stands; this one was not kept."
            )
        tail = max(0, stored.message_count + 1 - conversation.first_sequence)
        stored = await self._store.load(conversation.id, owner=request.policy.owner, tail=tail)
        if _new_messages(stored, made) != _new_messages(conversation, made):
            raise UsageError(
                "The conversation was changed meanwhile; the summary of what it was is not kept."
            )

    async def _wait_for_turn(self, conversation_id: str, request: TurnRequest) -> None:
        start = TurnStart(id=self._new_id(), messages=(), visible=False)
        lease = await self._store.begin_turn(
            conversation_id, start, owner=request.policy.owner, wait=request.policy.wait, tail=0
        )
        await self._store.drop_turn(lease)


def _with_newest(summary: StandingSummary) -> StandingSummary:
    """Keep the newest MOST_UNDONE; the oldest gets the usage and cost of the others."""
    chain = [summary]
    while (before := chain[-1].before) is not None:
        chain.append(before)
    if len(chain) <= MAX_UNDO:
        return summary
    oldest = chain[MAX_UNDO - 1 :]
    found = msgspec.structs.replace(
        oldest[0],
        usage=total_usage([one.usage for one in oldest if one.usage is not None]),
        cost=total_cost([one.cost for one in oldest]),
        before=None,
    )
    for one in reversed(chain[: MAX_UNDO - 1]):
        found = msgspec.structs.replace(one, before=found)
    return found


def _new_messages(
    conversation: StoredConversation, summary: StandingSummary
) -> tuple[Message, ...]:
    """Return the messages in a summary that were not in the one before."""
    first = 1 if summary.before is None else summary.before.through + 1
    return tuple(
        message
        for number, _, message in conversation.numbered_messages()
        if first <= number <= summary.through
    )


def _summary_of(reply: ReplyFinished, plan: SummaryPlan, attempt: Attempt) -> StandingSummary:
    """Return the summary in a reply; BadReplyError if it is none, or incomplete."""
    most = MAX_LENGTH_FACTOR * plan.material.strategy.summary_tokens
    name = attempt.route.provider.name
    text = reply.message.text.strip()
    tokens = _tokens_of(text, reply, name)
    has_call = any(isinstance(part, ToolCall) for part in parts_of(reply.message))
    if not text or has_call or reply.stop_reason not in (*COMPLETE_REASONS, "length"):
        raise BadReplyError(f"Model '{attempt.model}' answered without a summary.", provider=name)
    if reply.stop_reason == "length" or tokens > most + SUMMARY_OVERHEAD:
        raise BadReplyError(
            f"The summary is longer than {most} tokens; allow more with `window.summary_tokens`.",
            provider=name,
        )
    return StandingSummary(
        text=text,
        through=plan.through,
        tokens=tokens,
        model=attempt.model,
        usage=reply.usage,
        cost=None if reply.usage is None else attempt.price(reply.usage),
    )


def _tokens_of(text: str, reply: ReplyFinished, provider: str) -> int:
    """Return the tokens as counted, unless that includes thinking."""
    usage = reply.usage
    if usage is not None and usage.output and not usage.estimated:
        parts = parts_of(reply.message)
        if usage.reasoning or not any(isinstance(p, Thinking | RedactedThinking) for p in parts):
            return usage.output + SUMMARY_OVERHEAD
    weights = weights_for(provider)
    return sum(estimate_message(one, weights).tokens for one in build_summary_messages(text))

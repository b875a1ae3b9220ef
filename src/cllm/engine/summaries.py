"""Summarises the oldest turns of a conversation: load, plan, call, save.

A summary that fails or is interrupted changes nothing. The summarised messages stay in the store.
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
"""The number of earlier summaries that are saved, to which a user can return."""
COMPLETE_REASONS: tuple[StopReason, ...] = ("end", "stop_sequence", "unknown")
"""Stop reasons of a reply that can be a summary: not refused, filtered or a tool call."""

CallModel = Callable[[Provider, Prompt], AsyncGenerator[ReplyEvent, None]]
FirstAttempt = Callable[[StoredConversation, TurnRequest, str], Attempt]


class SummaryStarted(msgspec.Struct, frozen=True, kw_only=True):
    """A chunk is about to be requested."""

    piece: int
    pieces: int
    messages: int


class SummarySaved(msgspec.Struct, frozen=True, kw_only=True):
    """The summary is saved; `turns` is the number of turns that are new in it."""

    summary: StandingSummary
    turns: int


SummaryEvent = SummaryStarted | SummarySaved


class Summariser:
    """Requests summaries from the model of a conversation and saves them."""

    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        new_id: NewId,
        call_model: CallModel,
        attempt: FirstAttempt,
    ) -> None:
        self._store = store
        self._clock = clock
        self._new_id = new_id
        self._call_model = call_model
        self._attempt = attempt

    async def compact(
        self, conversation: StoredConversation, request: TurnRequest, model: str
    ) -> AsyncGenerator[SummaryEvent, None]:
        """Summarise all but the newest turn; UsageError if there is no other."""
        conversation = await self._load(conversation, request)
        attempt = self._build_attempt(conversation, request, model)
        plan = plan_on_request(build_summary_input(conversation, request, attempt))
        async with aclosing(self._execute(plan, conversation, request, attempt)) as events:
            async for event in events:
                yield event

    async def summarise_before_turn(
        self, conversation: StoredConversation, request: TurnRequest, model: str
    ) -> Noticed | None:
        """Make the summary that a turn needs first; return a notice about it, also if it failed."""
        conversation = await self._load(conversation, request)
        attempt = self._build_attempt(conversation, request, model)
        source = build_summary_input(conversation, request, attempt)
        if not request.target.fallbacks:
            check_fits(source)
        try:
            plan = plan_for_turn(source)
            if plan is None:
                return None
            async with aclosing(self._execute(plan, conversation, request, attempt)) as events:
                async for event in events:
                    if isinstance(event, SummarySaved):
                        turns = "1 turn was" if event.turns == 1 else f"{event.turns} turns were"
                        message = (
                            f"{turns} summarised to fit the context window; all messages remain "
                            "stored."
                        )
                        notice = Notice(code=SUMMARISED_CODE, path="messages", message=message)
                        return Noticed(notice=notice)
        except CllmError as error:
            return Noticed(notice=summary_failed_notice(error))
        return None

    async def undo(self, ref: str) -> StandingSummary:
        conversation = await self._store.load(ref, tail=0)
        summary = conversation.summary
        if summary is None:
            raise UsageError("This conversation has no summary to undo.")
        await self._store.update(conversation.id, Changes(summary=summary.before))
        return summary

    async def _load(
        self, conversation: StoredConversation, request: TurnRequest
    ) -> StoredConversation:
        """Load the messages that are in no summary, and pinned messages."""
        through = 0 if conversation.summary is None else conversation.summary.through
        tail = conversation.message_count + 1 - min((through + 1, *conversation.pins))
        return await self._store.load(conversation.id, owner=request.storage.owner, tail=tail)

    def _build_attempt(
        self, conversation: StoredConversation, request: TurnRequest, model: str
    ) -> Attempt:
        """Return the attempt of a turn, without a system prompt that must not be saved."""
        if has_unsaved_prompt(conversation, request):
            request = request.with_input(system=GivenPrompt())
        return self._attempt(conversation, request, model)

    async def _execute(
        self,
        plan: SummaryPlan,
        conversation: StoredConversation,
        request: TurnRequest,
        attempt: Attempt,
    ) -> AsyncGenerator[SummaryEvent, None]:
        before = so_far = conversation.summary
        parts: list[StandingSummary] = []
        for number, chunk in enumerate(plan.chunks, start=1):
            count = sum(stop - start for start, stop in chunk.spans)
            yield SummaryStarted(piece=number, pieces=len(plan.chunks), messages=count)
            prompt = build_summary_prompt(plan.source, chunk, so_far)
            so_far = await self._request_part(prompt, plan, attempt)
            parts.append(so_far)
        summary = msgspec.structs.replace(
            parts[-1],
            usage=total_usage([part.usage for part in parts if part.usage is not None]),
            cost=total_cost([part.cost for part in parts]),
            made_at=self._clock(),
            before=None if before is None else _limit_chain(before),
        )
        if plan.is_for_turn and not plan.leaves_room(summary.tokens):
            raise BadReplyError(
                "The summary is too long to leave room for the new message in the context window.",
                provider=attempt.route.provider.name,
            )
        await self._save(conversation, summary, request)
        yield SummarySaved(summary=summary, turns=plan.turns)

    async def _request_part(
        self, prompt: Prompt, plan: SummaryPlan, attempt: Attempt
    ) -> StandingSummary:
        provider = attempt.route.provider
        async with aclosing(self._call_model(provider, prompt)) as events:
            async for event in events:
                if isinstance(event, ReplyFinished):
                    return _parse_summary(event, plan, attempt)
        raise BadReplyError(
            f"Provider '{provider.name}' returned no summary; try again.", provider=provider.name
        )

    async def _save(
        self, conversation: StoredConversation, summary: StandingSummary, request: TurnRequest
    ) -> None:
        """Save the summary while no turn runs, if its messages are unchanged."""
        while True:
            await self._check_unchanged(conversation, summary, request)
            try:
                changes = Changes(summary=summary)
                await self._store.update(conversation.id, changes, owner=request.storage.owner)
            except ConversationBusyError:
                await self._wait_for_turn(conversation.id, request)
            else:
                return

    async def _check_unchanged(
        self, conversation: StoredConversation, summary: StandingSummary, request: TurnRequest
    ) -> None:
        stored = await self._store.load(conversation.id, owner=request.storage.owner, tail=0)
        if stored.summary != conversation.summary:
            raise UsageError(
                "Another summary was saved in the meantime, so this one was discarded; try again."
            )
        tail = max(0, stored.message_count + 1 - conversation.first_sequence)
        stored = await self._store.load(conversation.id, owner=request.storage.owner, tail=tail)
        if _list_new_messages(stored, summary) != _list_new_messages(conversation, summary):
            raise UsageError(
                "The conversation changed in the meantime, so the summary was discarded; try again."
            )

    async def _wait_for_turn(self, conversation_id: str, request: TurnRequest) -> None:
        start = TurnStart(id=self._new_id(), messages=(), visible=False)
        lease = await self._store.begin_turn(
            conversation_id, start, owner=request.storage.owner, wait=request.storage.wait, tail=0
        )
        await self._store.drop_turn(lease)


def _limit_chain(summary: StandingSummary) -> StandingSummary:
    """Return the newest MAX_UNDO summaries; the oldest gets the usage and cost of the removed."""
    chain = [summary]
    while (before := chain[-1].before) is not None:
        chain.append(before)
    if len(chain) <= MAX_UNDO:
        return summary
    oldest = chain[MAX_UNDO - 1 :]
    newest = msgspec.structs.replace(
        oldest[0],
        usage=total_usage([one.usage for one in oldest if one.usage is not None]),
        cost=total_cost([one.cost for one in oldest]),
        before=None,
    )
    for one in reversed(chain[: MAX_UNDO - 1]):
        newest = msgspec.structs.replace(one, before=newest)
    return newest


def _list_new_messages(
    conversation: StoredConversation, summary: StandingSummary
) -> tuple[Message, ...]:
    """Return the messages in a summary that were not in the previous one."""
    first = 1 if summary.before is None else summary.before.through + 1
    return tuple(
        message
        for number, _, message in conversation.numbered_messages()
        if first <= number <= summary.through
    )


def _parse_summary(reply: ReplyFinished, plan: SummaryPlan, attempt: Attempt) -> StandingSummary:
    """Return the summary in a reply; BadReplyError if the reply is no complete summary."""
    max_tokens = MAX_LENGTH_FACTOR * plan.source.strategy.summary_tokens
    name = attempt.route.provider.name
    text = reply.message.text.strip()
    tokens = _count_tokens(text, reply, name)
    has_call = any(isinstance(part, ToolCall) for part in parts_of(reply.message))
    if not text or has_call or reply.stop_reason not in (*COMPLETE_REASONS, "length"):
        raise BadReplyError(
            f"The reply of model '{attempt.model}' is not a summary; try again.", provider=name
        )
    if reply.stop_reason == "length" or tokens > max_tokens + SUMMARY_OVERHEAD:
        raise BadReplyError(
            f"The summary is longer than {max_tokens} tokens; increase `window.summary_tokens`.",
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


def _count_tokens(text: str, reply: ReplyFinished, provider: str) -> int:
    """Return the reported tokens, or an estimate if the report includes thinking."""
    usage = reply.usage
    if usage is not None and usage.output and not usage.estimated:
        parts = parts_of(reply.message)
        if usage.reasoning or not any(isinstance(p, Thinking | RedactedThinking) for p in parts):
            return usage.output + SUMMARY_OVERHEAD
    weights = weights_for(provider)
    return sum(estimate_message(one, weights).tokens for one in build_summary_messages(text))

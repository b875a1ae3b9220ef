"""Saves a turn exactly once when it ends: complete, incomplete or failed."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from datetime import datetime
from types import TracebackType
from typing import Any, Self

import msgspec

from cllm.core.conversation import CANCELLATION, INTERRUPTION, Turn, TurnFailure, TurnState
from cllm.core.errors import (
    CllmError,
    ProviderError,
    ReplySchemaError,
    SchemaError,
    StaleLeaseError,
    StoreUnavailableError,
    StrictError,
    UnsendableError,
    WindowTooSmallError,
)
from cllm.core.message import Message, plain_message
from cllm.core.notice import NoticeCollector
from cllm.core.ports import Clock, Lease, Opening, OpeningStore, Store
from cllm.core.prompt import Prompt
from cllm.core.reply import (
    ModelReported,
    Noticed,
    RefusalDelta,
    ReplyDelta,
    ReplyFinished,
    StopReason,
    TextDelta,
    Usage,
    UsageReported,
    Verbatim,
)
from cllm.engine.request import Attempt, CountUsage, TurnStorage
from cllm.engine.tool_rounds import ToolRoundEnded
from cllm.window.tokens import estimate_usage, weights_for

MIN_PAUSE = 0.05
CUT_OFF_REASONS: tuple[StopReason, ...] = ("pause", "context_window")
# A tuple: a union in isinstance() would be built for every event.
TEXT_DELTAS = (TextDelta, RefusalDelta)


class LeaseRenewal:
    """Renews a lease when a third of its time has passed.

    A lost lease is not an error here: the store refuses to write with it. `on_lost` is called then.
    """

    def __init__(
        self,
        store: Store,
        lease: Lease,
        *,
        clock: Clock,
        on_lost: Callable[[], object] | None = None,
    ) -> None:
        self._store = store
        self._lease = lease
        self._clock = clock
        self._on_lost = on_lost
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self._lease.expires_at is not None:
            pause = _compute_pause(self._lease.expires_at, self._clock)
            self._timer = asyncio.get_running_loop().call_later(pause, self._start_task)

    async def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    def _start_task(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        try:
            await _renew(self._store, self._lease, self._clock)
        except StaleLeaseError:
            if self._on_lost is not None:
                self._on_lost()


async def _renew(store: Store, lease: Lease, clock: Clock) -> None:
    while lease.expires_at is not None:
        # If the store is unavailable, the next renewal tries again.
        with suppress(StoreUnavailableError):
            lease = await store.renew_lease(lease)
        if lease.expires_at is not None:
            await asyncio.sleep(_compute_pause(lease.expires_at, clock))


def _compute_pause(expires_at: datetime, clock: Clock) -> float:
    return max((expires_at - clock()).total_seconds() / 3, MIN_PAUSE)


async def finish_despite_cancel(work: Coroutine[Any, Any, None]) -> None:
    """Await work that ignores cancellation; the caller is cancelled after it completes."""
    task = asyncio.create_task(work)
    try:
        # Not `shield`, which reports an error of the work after a cancellation (Python 3.14).
        await asyncio.wait((task,))
    except asyncio.CancelledError:
        await asyncio.wait((task,))
        task.result()
        raise
    task.result()


RecordedEvent = Noticed | UsageReported | ModelReported | ReplyDelta | Verbatim | ToolRoundEnded


class PartialTurn:
    """The part of a turn that has arrived, in case it is interrupted."""

    def __init__(self) -> None:
        self._last_call: tuple[Prompt, Attempt] | None = None
        self._partial_text: list[str] = []
        self._rounds: list[ToolRoundEnded] = []
        self._reported_usage: Usage | None = None
        self._notices = NoticeCollector()

    @property
    def has_prompt(self) -> bool:
        """Whether the prompt for the first model was built."""
        return self._last_call is not None

    def on_prompt(self, prompt: Prompt, attempt: Attempt) -> None:
        self._last_call = prompt, attempt
        self._reported_usage = None

    def on_event(self, event: RecordedEvent) -> None:
        if isinstance(event, TEXT_DELTAS):
            self._partial_text.append(event.text)
        elif isinstance(event, ToolRoundEnded):
            self._rounds.append(event)
            self._partial_text.clear()
            self._reported_usage = None
        elif isinstance(event, UsageReported):
            self._reported_usage = event.usage
        elif isinstance(event, Noticed):
            self._notices.append(event.notice)

    @property
    def _has_reply(self) -> bool:
        return bool(self._rounds) or self._build_partial_reply() is not None

    def _build_partial_reply(self) -> Message | None:
        text = "".join(self._partial_text)
        return plain_message("assistant", text) if text else None

    def _estimate_usage(self) -> Usage | None:
        """Return the reported usage; the output tokens of a partial reply are estimated."""
        usage, reply = self._reported_usage, self._build_partial_reply()
        if usage is None or reply is None or self._last_call is None:
            return usage
        prompt, attempt = self._last_call
        estimate = estimate_usage(prompt, reply, weights_for(attempt.route.provider.name))
        if estimate.output <= usage.output:
            return usage
        return msgspec.structs.replace(usage, output=estimate.output, estimated=True)


class StatelessRecorder(PartialTurn):
    """The recorder of a turn that is not saved: counts its usage if it does not complete."""

    lease: None = None

    def __init__(self, count_usage: CountUsage | None = None) -> None:
        super().__init__()
        self._count_usage = count_usage
        self._is_complete = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._is_complete or self._last_call is None or self._count_usage is None:
            return
        attempt = self._last_call[1]
        usages = _list_usages(
            self._last_call, self._rounds, self._build_partial_reply(), self._estimate_usage()
        )
        usage = total_usage(usages)
        if usage is not None:
            cost = total_cost([attempt.price(one) for one in usages])
            self._count_usage(attempt.model, usage, cost)

    async def save_opening(self, _opening: Opening) -> None: ...

    async def complete(self, _reply: ReplyFinished) -> None:
        self._is_complete = True


class TurnRecorder(PartialTurn):
    """Context manager of a saved turn: renews its lease, and finishes the turn on exit.

    A cancellation saves it as incomplete, or as failed if no text of the reply has arrived. An
    error of the provider saves it as failed. An error before the request is sent deletes it, unless
    `storage` has `saves_unsent`. With its `optional_steps`, saving is optional: `count_unsaved`
    counts the usage of a reply that the store cannot save later.
    """

    def __init__(
        self,
        store: Store,
        lease: Lease,
        *,
        clock: Clock,
        storage: TurnStorage,
    ) -> None:
        super().__init__()
        self._store = store
        self._storage = storage
        self._steps = storage.optional_steps
        self.lease = lease
        self._clock = clock
        self._is_finished = False
        self._renewal = LeaseRenewal(store, lease, clock=clock, on_lost=storage.on_lost)

    async def save_opening(self, opening: Opening) -> None:
        """Save the captured system prompt and context before the model is called."""
        if isinstance(self._store, OpeningStore):
            self.lease = await self._store.save_opening(self.lease, opening)

    async def complete(self, reply: ReplyFinished) -> Turn | None:
        """Save the turn; a reply that is paused or fills the context window is incomplete.

        Returns None if it could not be saved and need not be. A turn that is optional can be saved
        later.
        """
        state: TurnState = "incomplete" if reply.stop_reason in CUT_OFF_REASONS else "complete"
        turn = self._end_turn(state, reply=reply.message, usage=reply.usage)
        if self._steps is None:
            return await self._save(turn)

        async def count_unless_saved(saved: Turn | None) -> None:
            count_usage = self._storage.count_unsaved
            if saved is None and turn.usage is not None and count_usage is not None:
                count_usage(turn.model or "", turn.usage, turn.cost)

        saved = await self._steps.run(self._save(turn), when_late=count_unless_saved)
        return turn if self._steps.is_late else saved

    async def __aenter__(self) -> Self:
        self._renewal.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        leave = self._leave(error)
        await (leave if self._steps is None else self._steps.run(leave))

    async def _leave(self, error: BaseException | None) -> None:
        try:
            await self._renewal.stop()
        finally:
            await self._settle(error)

    async def _settle(self, error: BaseException | None) -> None:
        if self._is_finished:
            return
        # The caller gets the first error, not the lost lease.
        with suppress(StaleLeaseError):
            if isinstance(error, asyncio.CancelledError | GeneratorExit):
                is_cancelled = error.args == (CANCELLATION.code,)
                await self._finish_interrupted(CANCELLATION if is_cancelled else INTERRUPTION)
                return
            if isinstance(error, Exception) and self._must_save(error):
                await self._finish_partial("failed", _describe_failure(error))
            else:
                await self._drop()

    def _must_save(self, error: Exception) -> bool:
        if self._storage.saves_unsent:
            return self._last_call is not None or not isinstance(error, WindowTooSmallError)
        return self._last_call is not None and is_saved_failure(error, has_reply=self._has_reply)

    async def _finish_interrupted(self, failure: TurnFailure) -> None:
        if self._last_call is None or self._storage.on_interrupt == "discard":
            await self._drop()
            return
        # The same states as in `settle_turn`, for a process that died.
        state: TurnState = "incomplete" if self._has_reply else "failed"
        await self._finish_partial(state, failure)

    async def _finish_partial(self, state: TurnState, failure: TurnFailure) -> None:
        reply, usage = self._build_partial_reply(), self._estimate_usage()
        await self._save(self._end_turn(state, reply=reply, usage=usage, failure=failure))

    async def _drop(self) -> None:
        self._is_finished = True
        await self._run_step(self._store.drop_turn(self.lease))

    def _end_turn(
        self,
        state: TurnState,
        *,
        reply: Message | None = None,
        usage: Usage | None = None,
        failure: TurnFailure | None = None,
    ) -> Turn:
        turn = msgspec.structs.replace(
            self.lease.turn, state=state, ended_at=self._clock(), failure=failure
        )
        if self._last_call is not None:
            turn = _add_results(turn, self._last_call, self._rounds, reply, usage)
        notices = NoticeCollector((*turn.notices, *self._notices))
        self._is_finished = True
        self._partial_text.clear()
        return msgspec.structs.replace(turn, notices=tuple(notices))

    async def _save(self, turn: Turn) -> Turn:
        opening = None if self._last_call is None else self._last_call[1].choice.opening
        await self._run_step(self._store.finish_turn(self.lease, turn, opening=opening))
        return turn

    async def _run_step(self, step: Coroutine[Any, Any, None]) -> None:
        is_safe = getattr(self._store, "ends_turns_whole", False)
        await (step if is_safe else finish_despite_cancel(step))


def _add_results(
    turn: Turn,
    call: tuple[Prompt, Attempt],
    rounds: Sequence[ToolRoundEnded],
    reply: Message | None,
    usage: Usage | None,
) -> Turn:
    """Return the turn with the messages, usage and cost of all rounds.

    `usage` is for the last call. The usage of calls without a count is estimated.
    """
    prompt, attempt = call
    provider = attempt.route.provider.name
    window = prompt.window
    if window is not None and usage is not None and usage.prompt and not usage.estimated:
        window = msgspec.structs.replace(window, counted=usage.prompt)
    if window is not None and turn.window is not None:
        window = msgspec.structs.replace(window, parameters=turn.window.parameters)
    usages = _list_usages(call, rounds, reply, usage)
    messages = [message for ended in rounds for message in ended.messages]
    messages += [] if reply is None else [reply]
    return msgspec.structs.replace(
        turn,
        model=attempt.model,
        provider=provider,
        notices=prompt.notices,
        window=window,
        messages=(*turn.messages, *messages),
        usage=total_usage(usages),
        cost=total_cost([attempt.price(one) for one in usages]),
    )


def _list_usages(
    call: tuple[Prompt, Attempt],
    rounds: Sequence[ToolRoundEnded],
    reply: Message | None,
    usage: Usage | None,
) -> list[Usage]:
    """Return the usage of each call; `usage` is for the last one."""
    prompt, attempt = call
    weights = weights_for(attempt.route.provider.name)
    usages = [
        ended.reply.usage or estimate_usage(prompt, ended.reply.message, weights)
        for ended in rounds
    ]
    if usage is None and reply is not None:
        usage = estimate_usage(prompt, reply, weights)
    return usages if usage is None else [*usages, usage]


def total_usage(usages: Sequence[Usage]) -> Usage | None:
    return sum(usages[1:], start=usages[0]) if usages else None


def total_cost(costs: Sequence[float | None]) -> float | None:
    """Return the sum; None if there is no cost or one is unknown."""
    known = [cost for cost in costs if cost is not None]
    return sum(known) if known and len(known) == len(costs) else None


def is_saved_failure(error: Exception, *, has_reply: bool) -> bool:
    """Whether a turn that has built its prompt is saved as failed with this error.

    Not if nothing was sent, or if the JSON schema does not accept the reply.
    """
    if isinstance(error, ReplySchemaError | SchemaError):
        return False
    if has_reply or not isinstance(error, CllmError):
        return True
    return isinstance(error, ProviderError) and not isinstance(error, UnsendableError | StrictError)


def _describe_failure(error: Exception) -> TurnFailure:
    text = (
        str(error)
        if isinstance(error, CllmError)
        else "cllm failed because of an internal error; please report it."
    )
    return TurnFailure(code=type(error).__name__, message=text)

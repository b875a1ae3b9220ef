"""The reply to a decoded request, in its protocol's voice: what all protocols have in common.

Sees to it that a request is answered once, that its turn is taken in the right place, and that an
error which comes before anything of the answer is told as one.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress

import msgspec
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from cllm.core.errors import CllmError, ConversationBusyError, ConversationNotFoundError
from cllm.core.ports import KeptResponse, NewConversation, RequestKey
from cllm.core.prompt import Prompt
from cllm.server.http.request_log import record_of
from cllm.server.http.sse import DisconnectWatch, SSEResponse
from cllm.server.serving import Serving, caller_of, serving_of
from cllm.server.turns.encoders import Voice
from cllm.server.turns.headers import CONVERSATION, PROVIDER, Begin, Wish, read_wish
from cllm.server.turns.idempotency import (
    NO_CLAIM,
    Claim,
    attempt,
    claim,
    hash_of,
    take_up,
    try_again,
)
from cllm.server.turns.prepare import PreparedTurn, prepare_turn
from cllm.server.turns.task import JSON, TurnTask
from cllm.wire.malformed import MalformedError

MakeVoice = Callable[[Prompt, Serving], Voice]


class _Ready(msgspec.Struct, frozen=True, kw_only=True):
    """A task about to start, and whether it may use a branch if the conversation is busy."""

    task: TurnTask
    may_branch: bool


async def reply_to(request: Request, prompt: Prompt, body: bytes, voice: MakeVoice) -> Response:
    """The response, or what was answered when the same request came before."""
    wish = read_wish(request.headers)
    claimed = await _claim(request, wish, body)
    if isinstance(claimed, KeptResponse):
        return Response(claimed.body, claimed.status, claimed.headers)
    ready = None
    try:
        ready = await _made_ready(request, prompt, wish, voice, claimed)
    finally:
        if ready is None:
            await claimed.drop()
    return await _answer(request, ready) if isinstance(ready, _Ready) else ready


async def _claim(request: Request, wish: Wish, body: bytes) -> Claim | KeptResponse:
    """The right to answer, by the client's key; by the request if its library says it retries."""
    if wish.idempotency_key is None and not _is_attempt(wish):
        return NO_CLAIM
    serving, owner = serving_of(request), caller_of(request).owner
    asked = _identity(request, body)
    if wish.idempotency_key is None:
        known = hash_of((b"attempt", *asked))
        attempted = RequestKey(owner=owner, key=known, body=known)
        return await attempt(serving.store, attempted, again=bool(wish.retries))
    return await claim(
        serving.store,
        owner=owner,
        key=wish.idempotency_key,
        asked=asked,
        lifetime=serving.settings.idempotency_seconds,
    )


def _is_attempt(wish: Wish) -> bool:
    """Whether a new conversation is asked for by a library that would ask again."""
    return wish.retries is not None and isinstance(wish.mode, Begin)


def _identity(request: Request, body: bytes) -> tuple[bytes, ...]:
    """All that makes a request the one it is."""
    named = [request.headers.get(name, "\0") for name in (CONVERSATION, PROVIDER)]
    return (request.url.path.encode(), *(name.encode() for name in named), body)


async def _made_ready(
    request: Request, prompt: Prompt, wish: Wish, make_voice: MakeVoice, claimed: Claim
) -> _Ready | Response:
    """The turn, in the place where it belongs; or the answer, if it needs none."""
    serving = serving_of(request)
    record = record_of(request)
    record.stream, record.messages = prompt.stream, len(prompt.messages)
    record.system_prompt = any(message.role == "system" for message in prompt.all_messages)
    prepared = await prepare_turn(prompt, wish, caller_of(request), serving)
    placed = await _placed(prepared, wish, claimed, serving)
    if isinstance(placed, KeptResponse):
        await claimed.keep(placed.headers, placed.body)
        return Response(placed.body, placed.status, placed.headers)
    voice = make_voice(prompt, serving)
    task = TurnTask(placed, voice, serving=serving, claim=claimed, record=record)
    return _Ready(task=task, may_branch=wish.on_conflict == "branch" and placed is prepared)


async def _answer(request: Request, ready: _Ready) -> Response:
    """The response of the turn. From its start on the task releases the claim."""
    task, response = ready.task, None
    try:
        await _run(request, task)
        if isinstance(task.failure, ConversationBusyError):
            if not ready.may_branch:
                raise await _by_whom(task.failure, task.prepared)
            task = task.with_turn(await _branched(task.prepared, serving_of(request)))
            await _run(request, task)
        response = await _response(request, task)
    finally:
        if response is None:
            await task.release()
    return response


async def _run(request: Request, task: TurnTask) -> None:
    """Run the turn until its stream starts, or until its whole reply is there."""
    task.start()
    if task.prepared.request.target.stream:
        await task.wait_until_started()
        return
    watch = DisconnectWatch(request.receive, task.leave)
    try:
        await task.wait()
    finally:
        watch.stop()


async def _response(request: Request, task: TurnTask) -> Response:
    try:
        if task.prepared.request.target.stream:
            return await _stream(task, serving_of(request))
        return _whole(task)
    except (CllmError, MalformedError):
        request.state.told_with = await _kept_at(task)
        raise


async def _placed(
    prepared: PreparedTurn, wish: Wish, claimed: Claim, serving: Serving
) -> PreparedTurn | KeptResponse:
    """The turn where it is to be taken: in the place of one that was begun for this request."""
    if claimed.before is not None:
        return await take_up(prepared, claimed, serving)
    return await try_again(prepared) if wish.retries else prepared


async def _kept_at(task: TurnTask) -> dict[str, str]:
    """The headers of an error: the conversation and the turn that hold the client's messages."""
    store, policy = task.prepared.store, task.prepared.request.policy
    is_nowhere = isinstance(task.failure, ConversationNotFoundError)
    if store is None or policy.ref is None or is_nowhere:
        return {}
    try:
        await store.load(policy.ref, owner=policy.owner, tail=0)
    except CllmError:
        return {}
    return task.headers()


async def _by_whom(busy: ConversationBusyError, prepared: PreparedTurn) -> ConversationBusyError:
    """The same error with the turn that runs, if it still does."""
    if busy.turn_id is not None or prepared.store is None:
        return busy
    found = await prepared.store.load(busy.ref, owner=prepared.request.policy.owner, tail=1)
    running = (turn.id for turn in (*found.turns, *found.variants) if turn.state == "running")
    return ConversationBusyError(busy.ref, turn_id=next(running, None))


async def _branched(prepared: PreparedTurn, serving: Serving) -> PreparedTurn:
    """The same turn in a branch of the conversation, which nobody else talks in."""
    store, ref = prepared.store, prepared.request.policy.ref
    assert store is not None  # noqa: S101 - only a kept turn finds its conversation busy
    assert ref is not None  # noqa: S101
    new = NewConversation(id=serving.new_id())
    branch = await store.branch(ref, new, owner=prepared.request.policy.owner)
    shown = (prepared.shown or "").replace(ref, branch.id)
    request = prepared.request.with_policy(ref=branch.id, found=branch)
    return replace(prepared, shown=shown, request=request)


async def _stream(task: TurnTask, serving: Serving) -> Response:
    """The response of a stream, or the error of a turn that fails before its first event.

    After a silence the response starts without an event.
    """
    silence = serving.settings.silence_seconds
    with suppress(TimeoutError):
        async with asyncio.timeout(silence):
            await task.queue.wait_until_readable()
    if task.queue.is_closed and not task.is_streaming:
        await task.wait()
        if task.failure is not None:
            raise task.failure
    return SSEResponse(task, silence_seconds=silence)


def _whole(task: TurnTask) -> Response:
    if task.failure is not None:
        raise task.failure
    return Response(task.body, headers=task.headers(), media_type=JSON)

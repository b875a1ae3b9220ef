"""Runs the turn of a decoded request of any protocol; sends the response as JSON or SSE."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol

import msgspec
from msgspec.structs import replace
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from cllm.core.conversation import find_running
from cllm.core.errors import (
    CllmError,
    ConversationBusyError,
    ConversationNotFoundError,
    ProviderError,
)
from cllm.core.ports import KeptResponse, NewConversation, RequestKey
from cllm.core.prompt import Prompt
from cllm.server.http.errors import JSON, SHOULD_RETRY
from cllm.server.http.request_log import OK
from cllm.server.state import ApiRequest, ServerState
from cllm.server.turns.headers import (
    CONVERSATION,
    PROVIDER,
    ContinueResponse,
    RequestHeaders,
    StartConversation,
    read_turn_headers,
)
from cllm.server.turns.idempotency import (
    NO_CLAIM,
    Claim,
    claim_idempotency_key,
    claim_retry,
    hash_request,
    resume_earlier_turn,
    retry_failed_turn,
)
from cllm.server.turns.prepare import PreparedTurn, prepare_turn
from cllm.server.turns.previous_response import branch_response
from cllm.server.turns.task import EVENT_STREAM, ResponseEncoder, TurnTask

WATCH_DELAY_SECONDS = 0.5
"""Most responses end earlier and need no task that waits for a disconnect."""
STREAM_HEADERS = {
    "Content-Type": EVENT_STREAM,
    "Cache-Control": "no-cache",
    "X-Accel-Buffering": "no",
}


MakeBranch = Callable[[PreparedTurn, ServerState], Awaitable[PreparedTurn]]


class BackgroundEncoder(Protocol):
    def encode_started(self) -> bytes:
        """Return the response of a turn that has started."""
        ...


async def handle_turn(
    request: ApiRequest,
    prompt: Prompt,
    body: bytes,
    encoder: ResponseEncoder,
    *,
    turn_headers: RequestHeaders | None = None,
    background: BackgroundEncoder | None = None,
    parameters: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET,
) -> Response:
    """`turn_headers`: those of the request, changed by parameters in its body.

    `background`: the turn outlives its client. Without a stream the response is that of a started
    turn. `parameters`: those of the request that are stored with the turn.
    """
    state, record = request.server, request.record
    if turn_headers is None:
        turn_headers = read_turn_headers(request.headers)
    claim = await _claim_request(request, turn_headers, body)
    if isinstance(claim, KeptResponse):
        return Response(claim.body, claim.status, claim.headers)
    task = None
    try:
        record.stream = prompt.stream
        record.record_prompt(prompt)
        prepared = await prepare_turn(
            prompt, turn_headers, request.caller, state, headers=request.headers
        )
        if parameters is not msgspec.UNSET:
            stored = prepared.request.with_storage(parameters=parameters)
            prepared = replace(prepared, request=stored)
        if background is not None:
            prepared = replace(prepared, is_background=True)
        turn = await _resume(prepared, claim, turn_headers, state)
        if isinstance(turn, KeptResponse):
            return Response(turn.body, turn.status, turn.headers)
        task = TurnTask(turn, encoder, state=state, claim=claim, record=record)
    finally:
        if task is None:
            await claim.release()
    branch = _choose_branch(turn_headers) if turn is prepared else None
    if background is not None and not prompt.stream:
        return await _respond_at_once(request, task, background, branch)
    return await _run_and_respond(request, task, branch)


async def _resume(
    prepared: PreparedTurn, claim: Claim, turn_headers: RequestHeaders, state: ServerState
) -> PreparedTurn | KeptResponse:
    """Return the turn, or the response, that an earlier attempt of the client started."""
    if claim.earlier is not None:
        resumed = await resume_earlier_turn(prepared, claim, state)
        if isinstance(resumed, KeptResponse):
            await claim.save_response(resumed.headers, resumed.body)
        return resumed
    return await retry_failed_turn(prepared) if turn_headers.retries else prepared


def _choose_branch(turn_headers: RequestHeaders) -> MakeBranch | None:
    """Return what makes a branch for a turn whose conversation is busy."""
    if isinstance(turn_headers.mode, ContinueResponse):
        return partial(_branch_response, turn_headers.mode)
    return _branch if turn_headers.on_conflict == "branch" else None


async def _respond_at_once(
    request: ApiRequest, task: TurnTask, encoder: BackgroundEncoder, branch: MakeBranch | None
) -> Response:
    """Start the turn and return; raise the error of a turn that does not start."""
    try:
        task.start()
        await task.wait_until_started()
        if isinstance(task.failure, ConversationBusyError) and branch is not None:
            task = await _replace_busy(request, task, branch)
            task.start()
            await task.wait_until_started()
    except BaseException:
        await task.release()
        raise
    if task.failure is not None:
        request.error_headers = await _error_headers(request, task)
        raise task.failure
    return Response(encoder.encode_started(), headers=task.headers(), media_type=JSON)


async def _claim_request(
    request: ApiRequest, turn_headers: RequestHeaders, body: bytes
) -> Claim | KeptResponse:
    """Claim the request by its Idempotency-Key, or by its content if the client counts retries."""
    starts = isinstance(turn_headers.mode, StartConversation)
    counts_retries = turn_headers.retries is not None and starts
    if turn_headers.idempotency_key is None and not counts_retries:
        return NO_CLAIM
    state, owner = request.server, request.caller.owner
    values = [request.headers.get(name, "\0") for name in (CONVERSATION, PROVIDER)]
    request_parts = (request.url.path.encode(), *(value.encode() for value in values), body)
    if turn_headers.idempotency_key is None:
        content = hash_request((b"attempt", *request_parts))
        key = RequestKey(owner=owner, key=content, body=content)
        return await claim_retry(state.store, key, is_retry=bool(turn_headers.retries))
    return await claim_idempotency_key(
        state.store,
        owner=owner,
        key=turn_headers.idempotency_key,
        request_parts=request_parts,
        lifetime=state.settings.idempotency_seconds,
    )


async def _run_and_respond(
    request: ApiRequest, task: TurnTask, branch: MakeBranch | None
) -> Response:
    """A started task releases the claim."""
    response = None
    # A branch replaces the task.
    watch = DisconnectWatch(request.receive, lambda: task.handle_disconnect())  # noqa: PLW0108
    try:
        await _run(task)
        if isinstance(task.failure, ConversationBusyError):
            if branch is None:
                raise await _add_running_turn(task.failure, task.prepared)
            task = await _replace_busy(request, task, branch)
            await _run(task)
        response = await _build_response(request, task)
    finally:
        watch.stop()
        if response is None:
            await task.release()
    return response


async def _replace_busy(request: ApiRequest, task: TurnTask, branch: MakeBranch) -> TurnTask:
    replaced = task.with_turn(await branch(task.prepared, request.server))
    # The busy turn has set it.
    request.record.outcome = OK
    return replaced


async def _run(task: TurnTask) -> None:
    """Run the turn until its stream starts, or until it ends."""
    task.start()
    if task.prepared.request.target.stream:
        await task.wait_until_started()
    else:
        await task.wait()


async def _build_response(request: ApiRequest, task: TurnTask) -> Response:
    """Raise the error of a turn that fails before its first event.

    After `silence_seconds` a stream starts without an event. Raise ClientDisconnect, at the end of
    the turn, if the client disconnects before the response starts.
    """
    if task.prepared.request.target.stream:
        silence = request.server.settings.silence_seconds
        await task.queue.wait_until_readable(silence)
    if task.queue.is_abandoned:
        await task.wait()
        raise ClientDisconnect
    if task.prepared.request.target.stream:
        if task.queue.is_closed and not task.is_streaming:
            await task.wait()
        if task.failure is None or task.is_streaming:
            return SSEResponse(task, silence_seconds=silence)
    if task.failure is not None:
        request.error_headers = await _error_headers(request, task)
        if isinstance(task.failure, ProviderError) and _has_retried(task.prepared, request.server):
            request.error_headers[SHOULD_RETRY] = "false"
        raise task.failure
    return Response(task.body, headers=task.headers(), media_type=JSON)


def _has_retried(prepared: PreparedTurn, state: ServerState) -> bool:
    """Whether the server itself repeats failed calls of the turn's provider."""
    return prepared.request.target.retries is None and state.app.settings.retries > 0


async def _error_headers(request: ApiRequest, task: TurnTask) -> dict[str, str]:
    """Return the IDs of conversation and turn, if the conversation exists."""
    store, storage = task.prepared.store, task.prepared.request.storage
    # A recorded turn has a conversation only after it starts.
    ref = storage.ref or request.record.conversation
    if store is None or ref is None or isinstance(task.failure, ConversationNotFoundError):
        return {}
    try:
        await store.load(ref, owner=storage.owner, tail=0)
    except CllmError:
        return {}
    return task.headers()


async def _add_running_turn(
    busy: ConversationBusyError, prepared: PreparedTurn
) -> ConversationBusyError:
    if busy.turn_id is not None or prepared.store is None:
        return busy
    newest = await prepared.store.load(busy.ref, owner=prepared.request.storage.owner, tail=1)
    running_ids = (turn.id for turn in find_running(newest))
    return ConversationBusyError(busy.ref, turn_id=next(running_ids, None))


async def _branch(prepared: PreparedTurn, state: ServerState) -> PreparedTurn:
    store, ref = prepared.store, prepared.request.storage.ref
    assert store is not None  # noqa: S101 - a stateless turn is never busy
    assert ref is not None  # noqa: S101
    new = NewConversation(id=state.new_id())
    branch = await store.branch(ref, new, owner=prepared.request.storage.owner)
    public_id = (prepared.public_id or "").replace(ref, branch.id)
    request = prepared.request.with_storage(ref=branch.id, preloaded=branch)
    history = request.storage.client_history
    if history is not None:
        request = request.with_storage(client_history=replace(history, conversation=branch.id))
    return replace(prepared, public_id=public_id, request=request)


async def _branch_response(
    mode: ContinueResponse, prepared: PreparedTurn, state: ServerState
) -> PreparedTurn:
    ref = prepared.request.storage.ref or ""
    branch = await branch_response(mode, owner=prepared.request.storage.owner, state=state)
    public_id = (prepared.public_id or "").replace(ref, branch)
    request = prepared.request.with_storage(
        ref=branch, expected_count=None, cache_key=state.app.cache_key(branch)
    )
    return replace(prepared, public_id=public_id, request=request)


class SSEResponse(Response):
    """Sends a turn's server-sent events, and keep-alive comments while it is silent."""

    def __init__(self, task: TurnTask, *, silence_seconds: float) -> None:
        super().__init__(headers={**STREAM_HEADERS, **task.headers()})
        del self.headers["content-length"]
        self._task = task
        self._silence_seconds = silence_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        watch = DisconnectWatch(receive, self._task.handle_disconnect)
        queue = self._task.queue
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            while data := await self._next_data():
                await send({"type": "http.response.body", "body": data, "more_body": True})
            if not queue.is_abandoned:
                await send({"type": "http.response.body", "body": b"", "more_body": False})
            # The client has everything and may disconnect.
            watch.stop()
            if self._task.result is None:
                await self._task.wait()
        finally:
            watch.stop()
            if not queue.is_closed:
                self._task.handle_disconnect()

    async def _next_data(self) -> bytes:
        queue = self._task.queue
        has_data = await queue.wait_until_readable(self._silence_seconds)
        return queue.take() if has_data else self._task.keep_alive


class DisconnectWatch:
    def __init__(self, receive: Receive, on_disconnect: Callable[[], object]) -> None:
        self._receive = receive
        self._on_disconnect = on_disconnect
        self._task: asyncio.Task[None] | None = None
        self._timer = asyncio.get_running_loop().call_later(WATCH_DELAY_SECONDS, self._start)

    def stop(self) -> None:
        self._timer.cancel()
        if self._task is not None:
            self._task.cancel()

    def _start(self) -> None:
        self._task = asyncio.create_task(self._wait())

    async def _wait(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._on_disconnect()

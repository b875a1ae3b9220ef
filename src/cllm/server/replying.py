"""The reply to a decoded request, in its protocol's voice: what all protocols have in common.

Sees to it that a request is answered once, that its turn is taken in the right place, and that an
error which comes before anything of the answer is told as one.
"""

from collections.abc import Callable

import msgspec
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from cllm.core.errors import CllmError, ConversationBusyError, ConversationNotFoundError
from cllm.core.ports import KeptResponse, NewConversation, RequestKey
from cllm.core.prompt import Prompt
from cllm.providers.relaying import offered
from cllm.server.asking import Asked, ask_for
from cllm.server.idempotency import NO_CLAIM, Claim, claim, hash_of
from cllm.server.leaving import Watch
from cllm.server.passing import pass_on
from cllm.server.request_log import record_of
from cllm.server.resuming import attempt, take_up, try_again
from cllm.server.running import JSON, RunningTurn
from cllm.server.serving import Serving, caller_of, serving_of
from cllm.server.streaming import EventStream, StreamRelay
from cllm.server.voices import Voice
from cllm.server.wish import CONVERSATION, PROVIDER, Begin, Wish, read_wish
from cllm.wire.malformed import MalformedError

MakeVoice = Callable[[Prompt, Serving], Voice]


class _Ready(msgspec.Struct, frozen=True, kw_only=True):
    """A turn about to be taken, and whether it may be in a branch if its place is not free.

    The relay is for one that nobody but the client has to hear.
    """

    turn: RunningTurn
    may_branch: bool
    relay: StreamRelay | None


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
    asked = await ask_for(prompt, wish, caller_of(request), serving)
    voice = make_voice(prompt, serving)
    if asked.request.ref is None and not prompt.stream:
        return await pass_on(
            asked,
            voice,
            serving=serving,
            claim=claimed,
            record=record,
            receive=request.receive,
        )
    placed = await _placed(asked, wish, claimed, serving)
    if isinstance(placed, KeptResponse):
        await claimed.keep(placed.headers, placed.body)
        return Response(placed.body, placed.status, placed.headers)
    turn = RunningTurn(placed, voice, serving=serving, claim=claimed, record=record)
    return _Ready(
        turn=turn,
        may_branch=wish.on_conflict == "branch" and placed is asked,
        relay=StreamRelay(turn, voice) if _is_relayed(placed, claimed) else None,
    )


def _is_relayed(asked: Asked, claimed: Claim) -> bool:
    """Whether nobody but the client has to hear what is said, and one model alone is asked."""
    request = asked.request
    return asked.store is None and request.ref is None and not (request.fallbacks or claimed.keeps)


async def _answer(request: Request, ready: _Ready) -> Response:
    """What the turn says. From its beginning on the claim is the turn's to give back."""
    turn, response = ready.turn, None
    try:
        await _run(request, turn, ready.relay)
        if isinstance(turn.failure, ConversationBusyError):
            if not ready.may_branch:
                raise await _by_whom(turn.failure, turn.asked)
            turn = turn.elsewhere(await _branched(turn.asked, serving_of(request)))
            await _run(request, turn, None)
        response = await _said(request, turn)
    finally:
        if response is None:
            await turn.let_go()
    return response


async def _run(request: Request, turn: RunningTurn, relay: StreamRelay | None) -> None:
    """Take the turn until there is something to say: a stream's beginning, or the whole answer."""
    with offered(relay):
        turn.start()
    if turn.asked.request.stream:
        await turn.begun()
        return
    watch = Watch(request.receive, serving_of(request).patience.leaving, turn.leave)
    try:
        await turn.finished()
    finally:
        watch.end()


async def _said(request: Request, turn: RunningTurn) -> Response:
    try:
        if turn.asked.request.stream:
            return await _stream(turn, serving_of(request))
        return _whole(turn)
    except (CllmError, MalformedError):
        request.state.told_with = await _kept_at(turn)
        raise


async def _placed(
    asked: Asked, wish: Wish, claimed: Claim, serving: Serving
) -> Asked | KeptResponse:
    """The turn where it is to be taken: in the place of one that was begun for this request."""
    if claimed.before is not None:
        return await take_up(asked, claimed, serving)
    return await try_again(asked) if wish.retries else asked


async def _kept_at(turn: RunningTurn) -> dict[str, str]:
    """The head of an error: where what was said is kept, to be asked again from there."""
    store, request = turn.asked.store, turn.asked.request
    is_nowhere = isinstance(turn.failure, ConversationNotFoundError)
    if store is None or request.ref is None or is_nowhere:
        return {}
    try:
        await store.load(request.ref, owner=request.owner, tail=0)
    except CllmError:
        return {}
    return turn.headers()


async def _by_whom(busy: ConversationBusyError, asked: Asked) -> ConversationBusyError:
    """The same error with the turn that runs, if it still does."""
    if busy.turn_id is not None or asked.store is None:
        return busy
    found = await asked.store.load(busy.ref, owner=asked.request.owner, tail=1)
    running = (turn.id for turn in (*found.turns, *found.variants) if turn.state == "running")
    return ConversationBusyError(busy.ref, turn_id=next(running, None))


async def _branched(asked: Asked, serving: Serving) -> Asked:
    """The same turn in a branch of the conversation, which nobody else talks in."""
    store, request = asked.store, asked.request
    assert store is not None  # noqa: S101 - only a kept turn finds its conversation busy
    assert request.ref is not None  # noqa: S101
    new = NewConversation(id=serving.new_id())
    branch = await store.branch(request.ref, new, owner=request.owner)
    shown = (asked.shown or "").replace(request.ref, branch.id)
    return replace(asked, shown=shown, request=replace(request, ref=branch.id, found=branch))


async def _stream(turn: RunningTurn, serving: Serving) -> Response:
    """The answer as it comes."""
    await turn.begun()
    await turn.pipe.ready()
    if turn.pipe.is_over and not turn.is_spoken:
        await turn.finished()
        if turn.failure is not None:
            raise turn.failure
    return EventStream(turn, leaving=serving.patience.leaving)


def _whole(turn: RunningTurn) -> Response:
    """The answer in one piece."""
    if turn.failure is not None:
        raise turn.failure
    return Response(turn.body, headers=turn.headers(), media_type=JSON)

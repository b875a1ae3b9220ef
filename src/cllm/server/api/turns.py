"""The turns endpoints: one turn, and its prompt."""

from starlette.responses import Response

from cllm.core.conversation import find_running, find_turn
from cllm.core.errors import ConversationBusyError, TurnNotFoundError
from cllm.engine.sent_prompt import read_sent_prompt
from cllm.server.api.conversation_ref import find_conversation, load_imported
from cllm.server.api.views import find_turn_view, json_response
from cllm.server.state import ApiRequest


async def get_turn(request: ApiRequest) -> Response:
    """GET /v1/conversations/{conversation_id}/turns/{turn_id}."""
    ref = await find_conversation(request)
    turn_id = request.path_params["turn_id"]
    conversation = await ref.store.load(ref.id, owner=ref.owner)
    view = find_turn_view(conversation, turn_id, await load_imported(ref))
    if view is None:
        raise TurnNotFoundError(ref.id, turn_id)
    request.record.turn = turn_id
    return json_response(view)


async def cancel_turn(request: ApiRequest) -> Response:
    """POST /v1/conversations/{conversation_id}/turns/{turn_id}/cancel."""
    ref = await find_conversation(request)
    turn_id = request.path_params["turn_id"]
    newest = await ref.store.load(ref.id, owner=ref.owner, tail=1)
    if any(turn.id == turn_id for turn in find_running(newest)):
        state = request.server
        is_cancelled = await state.turns.cancel((ref.owner, newest.id, turn_id))
        if not is_cancelled and ref.prefix:
            # The shell runs it: only the shell can stop it.
            raise ConversationBusyError(ref.public_id, turn_id=turn_id)
        if not is_cancelled:
            await state.store.cancel_turn(newest.id, turn_id, owner=ref.owner)
    return await get_turn(request)


async def get_prompt(request: ApiRequest) -> Response:
    """GET /v1/conversations/{conversation_id}/turns/{turn_id}/prompt."""
    ref = await find_conversation(request)
    conversation = await ref.store.load(ref.id, owner=ref.owner)
    turn_id = request.path_params["turn_id"]
    turn = find_turn(conversation, turn_id)
    if turn is None:
        raise TurnNotFoundError(conversation.id, turn_id)
    request.record.turn = turn_id
    view = await read_sent_prompt(ref.store, conversation, turn, owner=ref.owner, prefix=ref.prefix)
    return json_response(view)

"""Finds the stored turn of a response, and the conversation in which the next turn continues it."""

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from cllm.core.conversation import StoredConversation, Turn, find_turn
from cllm.core.errors import ConversationNotFoundError, TurnNotFoundError
from cllm.core.ports import NewConversation, Store
from cllm.server.http.errors import ApiError
from cllm.server.state import ServerState
from cllm.server.turns.headers import DELETED_RESPONSES, ContinueResponse
from cllm.wire.responses.ids import ResponseKey, make_response_id


class ResponseHistory(msgspec.Struct, frozen=True, kw_only=True):
    """The conversation to continue. `message_count`: its messages, if the turn is appended.

    `conversation` is the history of a turn that is not saved.
    """

    ref: str
    message_count: int | None = None
    conversation: StoredConversation | None = None


class StoredResponse(msgspec.Struct, frozen=True, kw_only=True):
    """The turn of a response, and its conversation."""

    conversation: StoredConversation
    turn: Turn


async def find_history(
    mode: ContinueResponse, *, owner: str, state: ServerState
) -> ResponseHistory:
    """Return where the next turn continues exactly this response.

    At the end of the conversation it is appended; elsewhere it gets a branch.
    """
    store = state.store
    found = await _load_previous(store, mode, owner=owner, tail=1 if mode.saves else None)
    conversation, turn = found.conversation, found.turn
    if not turn.is_history:
        raise ApiError(
            "invalid_request",
            f"The previous response has no reply to continue: its turn is {turn.state}; wait for "
            "its end, or continue another response.",
            param="previous_response_id",
        )
    if not mode.saves:
        path = _list_path(conversation, turn)
        return ResponseHistory(
            ref=conversation.id, conversation=replace(conversation, turns=path, variants=())
        )
    if not _is_last(conversation, turn):
        return ResponseHistory(ref=await _branch(found, owner=owner, state=state))
    if turn not in conversation.turns:
        conversation = await store.choose_variant(conversation.id, turn.id, owner=owner)
        # A store may return the newest messages only.
        conversation = await store.load(conversation.id, owner=owner, tail=1)
    return ResponseHistory(ref=conversation.id, message_count=conversation.message_count)


async def branch_response(mode: ContinueResponse, *, owner: str, state: ServerState) -> str:
    """Return a branch that ends with this response, for a turn whose conversation is busy."""
    found = await _load_previous(state.store, mode, owner=owner)
    return await _branch(found, owner=owner, state=state)


async def _load_previous(
    store: Store, mode: ContinueResponse, *, owner: str, tail: int | None = None
) -> StoredResponse:
    found = await load_response(store, mode.response, owner=owner, tail=tail)
    if found is None:
        response_id = make_response_id(mode.response.conversation, mode.response.turn)
        raise previous_response_error(response_id)
    return found


async def load_response(
    store: Store, key: ResponseKey, *, owner: str, tail: int | None = None
) -> StoredResponse | None:
    """Return the turn of a response; None if it does not exist, or is deleted.

    With `tail`, the whole conversation is loaded only for an older turn.
    """
    try:
        conversation = await store.load(key.conversation, owner=owner, tail=tail)
        if tail is not None and find_turn(conversation, key.turn) is None:
            conversation = await store.load(key.conversation, owner=owner)
    except (ConversationNotFoundError, TurnNotFoundError):
        return None
    return list_responses(conversation).get(key.turn)


def list_responses(conversation: StoredConversation) -> dict[str, StoredResponse]:
    """Return the responses of a conversation that are not deleted, by turn."""
    if conversation.archived_at is not None:
        return {}
    deleted = list_deleted(conversation)
    return {
        turn.id: StoredResponse(conversation=conversation, turn=turn)
        for turn in (*conversation.turns, *conversation.variants)
        if turn.id not in deleted
    }


def list_deleted(conversation: StoredConversation) -> Sequence[str]:
    """Return the turns whose responses are deleted."""
    deleted = conversation.metadata.get(DELETED_RESPONSES)
    return deleted if isinstance(deleted, list) else ()


def previous_response_error(response_id: str | None) -> ApiError:
    return ApiError(
        "previous_response_not_found",
        f"Previous response with id '{response_id}' not found.",
        param="previous_response_id",
    )


def _is_last(conversation: StoredConversation, turn: Turn) -> bool:
    """Whether the turn or a variant of it is the last one with a reply, and no later one runs."""
    later: list[Turn] = []
    for other in reversed(conversation.turns):
        if other.place == turn.place:
            break
        later.append(other)
    slot = [one for one in (*conversation.turns, *conversation.variants) if one.place == turn.place]
    runs = any(one.state == "running" for one in slot)
    return not runs and not any(one.is_history or one.state == "running" for one in later)


def _list_path(conversation: StoredConversation, turn: Turn) -> tuple[Turn, ...]:
    """Return the turns from the first one to this one."""
    places = [one.place for one in conversation.turns]
    end = places.index(turn.place) if turn.place in places else len(places)
    before = conversation.turns[:end]
    return (*(one for one in before if one.is_history), turn)


async def _branch(found: StoredResponse, *, owner: str, state: ServerState) -> str:
    store, conversation = state.store, found.conversation
    if conversation.first_sequence > 1:
        conversation = await store.load(conversation.id, owner=owner)
    path = _list_path(conversation, found.turn)
    branch = await store.branch(
        conversation.id,
        NewConversation(id=state.new_id()),
        at=sum(len(turn.messages) for turn in path),
        path=[turn.id for turn in path],
        owner=owner,
    )
    return branch.id

"""Finds the store of a conversation by the ID in a path.

An ID is a UUID, `files:ID` in the folder of files, or that of an existing conversation.
"""

from collections.abc import Sequence
from pathlib import PurePath

import msgspec
from starlette.responses import Response

from cllm.core.conversation import LOCAL_OWNER, check_id
from cllm.core.errors import ConversationNotFoundError, InvalidIdError
from cllm.core.notice import Notice
from cllm.core.ports import Store
from cllm.server.http.errors import ApiError
from cllm.server.state import ApiRequest
from cllm.server.turns.headers import FILES_PREFIX, NOTICE, UUID
from cllm.server.turns.task import encode_notices


class StoreRef(msgspec.Struct, frozen=True, kw_only=True):
    """An owner's conversations in a store; clients see the IDs with the prefix."""

    store: Store
    owner: str
    prefix: str = ""


class ConversationRef(StoreRef, frozen=True, kw_only=True):
    """One conversation, which need not exist."""

    id: str

    @property
    def shown(self) -> str:
        """The ID for clients."""
        return f"{self.prefix}{self.id}"


def find_store(name: str | None, request: ApiRequest) -> StoreRef:
    state = request.server
    if name is None:
        return StoreRef(store=state.store, owner=request.caller.owner)
    if state.files is None:
        raise ApiError("validation_error", "This server has no store of that name.", param="store")
    return StoreRef(store=state.files, owner=LOCAL_OWNER, prefix=FILES_PREFIX)


async def find_conversation(request: ApiRequest) -> ConversationRef:
    """Return the conversation of the path; raise InvalidIdError for an invalid ID."""
    ref, state, owner = (
        request.path_params["conversation_id"],
        request.server,
        request.caller.owner,
    )
    if ref.startswith(FILES_PREFIX):
        if state.files is None:
            raise ConversationNotFoundError(ref)
        id_ = check_id(ref.removeprefix(FILES_PREFIX))
        place = ConversationRef(store=state.files, owner=LOCAL_OWNER, prefix=FILES_PREFIX, id=id_)
    elif UUID.fullmatch(ref) is not None:
        place = ConversationRef(store=state.store, owner=owner, id=ref.lower())
    else:
        place = ConversationRef(store=state.store, owner=owner, id=check_id(ref))
        try:
            await place.store.summary(ref, owner=owner)
        except ConversationNotFoundError:
            raise InvalidIdError(ref) from None
    request.record.conversation = place.shown
    return place


def add_notices(response: Response, notices: Sequence[Notice], store_ref: StoreRef) -> Response:
    if notices:
        shown = [_hide_path(notice) for notice in notices] if store_ref.prefix else notices
        response.headers[NOTICE] = encode_notices(shown)
    return response


def _hide_path(notice: Notice) -> Notice:
    """Replace the path of a conversation file by its ID."""
    shown = f"{FILES_PREFIX}{PurePath(notice.path).stem}"
    return Notice(
        code=notice.code,
        path=shown,
        message=f"Conversation {shown!r} is in a file that cannot be read, and is not shown; mend "
        "the file, or take it away.",
    )

"""Resolves the conversation ID in a path to a store and an owner.

An ID is a UUID, `conv_` and its digits, `files:ID` for the folder of conversation files, or any ID
that exists.
"""

from collections.abc import Mapping, Sequence
from pathlib import PurePath

import msgspec
from starlette.responses import Response

from cllm.core.conversation import FILES_PREFIX, LOCAL_OWNER, check_id
from cllm.core.errors import ConversationNotFoundError, InvalidIdError
from cllm.core.notice import Notice
from cllm.core.ports import ImportedFields, ImportingStore, Store
from cllm.server.http.errors import ApiError
from cllm.server.state import ApiRequest, ServerState
from cllm.server.turns.headers import NOTICE, UUID
from cllm.server.turns.task import encode_notices
from cllm.wire.responses.ids import read_conversation_id


class StoreRef(msgspec.Struct, frozen=True, kw_only=True):
    """An owner's conversations in a store. Clients see IDs with the prefix."""

    store: Store
    owner: str
    prefix: str = ""


class ConversationRef(StoreRef, frozen=True, kw_only=True):
    """One conversation, which may not exist."""

    id: str

    @property
    def public_id(self) -> str:
        """The ID that clients see."""
        return f"{self.prefix}{self.id}"


def find_store(name: str | None, request: ApiRequest) -> StoreRef:
    state = request.server
    if name is None:
        return StoreRef(store=state.store, owner=request.caller.owner)
    if state.files is None:
        raise ApiError(
            "validation_error", "This server has no such store; omit `store`.", param="store"
        )
    return StoreRef(store=state.files, owner=LOCAL_OWNER, prefix=FILES_PREFIX)


async def find_conversation(request: ApiRequest) -> ConversationRef:
    """Return the conversation in the path."""
    path_id = request.path_params["conversation_id"]
    public_id = read_conversation_id(path_id) or path_id
    state, owner = request.server, request.caller.owner
    ref: ConversationRef | None
    if public_id.startswith(FILES_PREFIX):
        ref = _find_file(public_id.removeprefix(FILES_PREFIX), state)
        if ref is None:
            raise ConversationNotFoundError(public_id)
    elif UUID.fullmatch(public_id) is not None:
        ref = ConversationRef(store=state.store, owner=owner, id=public_id.lower())
    else:
        ref = ConversationRef(store=state.store, owner=owner, id=check_id(public_id))
        if not await _exists(ref):
            ref = _find_file(public_id, state)
            if ref is None or not await _exists(ref):
                raise InvalidIdError(public_id)
    request.record.conversation = ref.public_id
    return ref


def _find_file(file_id: str, state: ServerState) -> ConversationRef | None:
    """Return the conversation file, which may not exist; None if no files are served."""
    if state.files is None:
        return None
    return ConversationRef(
        store=state.files, owner=LOCAL_OWNER, prefix=FILES_PREFIX, id=check_id(file_id)
    )


async def _exists(ref: ConversationRef) -> bool:
    try:
        await ref.store.summary(ref.id, owner=ref.owner)
    except ConversationNotFoundError:
        return False
    return True


async def load_imported(ref: ConversationRef, after: int = 0) -> Mapping[str, ImportedFields]:
    """Return what an older deployment stored with the messages, by message ID."""
    if not isinstance(ref.store, ImportingStore):
        return {}
    return await ref.store.imported_fields(ref.id, owner=ref.owner, after=after)


def add_notices(response: Response, notices: Sequence[Notice]) -> Response:
    if notices:
        response.headers[NOTICE] = encode_notices(notices)
    return response


def hide_paths(notices: Sequence[Notice], store_ref: StoreRef) -> tuple[Notice, ...]:
    """Replace the paths of conversation files by their IDs."""
    return tuple(map(_hide_path, notices) if store_ref.prefix else notices)


def _hide_path(notice: Notice) -> Notice:
    public_id = f"{FILES_PREFIX}{PurePath(notice.path).stem}"
    return Notice(
        code=notice.code,
        path=public_id,
        message=f"Conversation {public_id!r} is not listed, because its file cannot be read; "
        "repair or remove the file.",
    )

"""Where a conversation is: an id as clients write it becomes a store, an owner and an id there.

Ids over HTTP are UUIDs. `files:ID` is a conversation of the mounted folder of files. An id that
another surface gave a conversation in the server's own store is good as well, if there is one.
"""

import re
from collections.abc import Sequence
from pathlib import PurePath

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from cllm.core.conversation import LOCAL_OWNER, check_id
from cllm.core.errors import ConversationNotFoundError, InvalidIdError
from cllm.core.notice import Notice
from cllm.core.ports import ServerStore, Store
from cllm.server.http.errors import RefusedError
from cllm.server.http.request_log import record_of
from cllm.server.serving import Caller, Serving, caller_of, serving_of
from cllm.server.turns.headers import NOTICE
from cllm.server.turns.task import encode_notices

FILES = "files"
PREFIX = f"{FILES}:"
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII | re.IGNORECASE)


class Shelf(msgspec.Struct, frozen=True, kw_only=True):
    """A store and whose conversations in it are meant; `prefix` stands before their ids."""

    store: Store
    owner: str
    prefix: str = ""

    def shown(self, conversation_id: str) -> str:
        """The id as clients know it."""
        return f"{self.prefix}{conversation_id}"


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """One conversation, which need not exist."""

    shelf: Shelf
    id: str

    @property
    def store(self) -> Store:
        return self.shelf.store

    @property
    def owner(self) -> str:
        return self.shelf.owner


def shelf_named(name: str | None, serving: Serving, caller: Caller) -> Shelf:
    """The server's own store, or `files` where that is mounted."""
    if name is None:
        return Shelf(store=serving.store, owner=caller.owner)
    if name != FILES or serving.files is None:
        raise RefusedError(
            "validation_error", "This server has no store of that name.", param="store"
        )
    return Shelf(store=serving.files, owner=LOCAL_OWNER, prefix=PREFIX)


async def find_place(ref: str, serving: Serving, caller: Caller) -> Place:
    """Where the conversation with this id is, or would be; RefusedError if it cannot be an id."""
    if ref.startswith(PREFIX):
        if serving.files is None:
            raise ConversationNotFoundError(ref)
        shelf = shelf_named(FILES, serving, caller)
        return Place(shelf=shelf, id=check_id(ref.removeprefix(PREFIX)))
    shelf = shelf_named(None, serving, caller)
    if UUID.fullmatch(ref) is not None:
        return Place(shelf=shelf, id=ref.lower())
    await _check_known(ref, shelf)
    return Place(shelf=shelf, id=ref)


async def _check_known(ref: str, shelf: Shelf) -> None:
    """An id that is no UUID is malformed, unless it is that of a conversation all the same."""
    check_id(ref)
    try:
        await shelf.store.summary(ref, owner=shelf.owner)
    except ConversationNotFoundError:
        raise InvalidIdError(ref) from None


async def place_of(request: Request) -> Place:
    """Where the conversation is that the request's path names."""
    serving, caller = serving_of(request), caller_of(request)
    place = await find_place(request.path_params["conversation_id"], serving, caller)
    record_of(request).conversation = place.shelf.shown(place.id)
    return place


def server_store(place: Place, serving: Serving) -> ServerStore | None:
    """The store that keeps streams as well; the folder of files does not."""
    return serving.store if not place.shelf.prefix else None


def with_notices(response: Response, notices: Sequence[Notice], shelf: Shelf) -> Response:
    """The answer with what the shelf's store could not read, by the ids that clients know."""
    if notices:
        response.headers[NOTICE] = encode_notices([_told(notice, shelf) for notice in notices])
    return response


def _told(notice: Notice, shelf: Shelf) -> Notice:
    """The notice; of the folder of files without the path that its files have on this machine."""
    if not shelf.prefix:
        return notice
    shown = shelf.shown(PurePath(notice.path).stem)
    return Notice(
        code=notice.code,
        path=shown,
        message=f"Conversation {shown!r} is in a file that cannot be read, and is not shown; mend "
        "the file, or take it away.",
    )

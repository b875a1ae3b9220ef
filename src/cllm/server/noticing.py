"""What a store could not read, told in the head of an answer that has all the rest.

No path of the machine is told to a client.
"""

from collections.abc import Sequence
from pathlib import PurePath

from starlette.responses import Response

from cllm.core.notice import Notice
from cllm.server.place import Shelf
from cllm.server.turn_task import encode_notices
from cllm.server.wish import NOTICE


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

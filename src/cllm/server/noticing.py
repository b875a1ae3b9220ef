"""What a store could not read, told in the head of an answer that has all the rest."""

from collections.abc import Sequence

from starlette.responses import Response

from cllm.core.notice import Notice
from cllm.server.running import encode_notices
from cllm.server.wish import NOTICE


def with_notices(response: Response, notices: Sequence[Notice]) -> Response:
    if notices:
        response.headers[NOTICE] = encode_notices(notices)
    return response

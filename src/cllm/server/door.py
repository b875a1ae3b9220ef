"""The door: who comes in, and how errors go out. Every route of the table is behind it."""

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response

from cllm.core.errors import CllmError
from cllm.server.auth import admit
from cllm.server.errors import report_error, to_anthropic, to_openai
from cllm.server.request_log import record_of
from cllm.server.routes import Protocol, Row
from cllm.wire.malformed import MalformedError

Endpoint = Callable[[Request], Awaitable[Response]]
TELLERS = {"openai": to_openai, "anthropic": to_anthropic}


def behind_door(row: Row, endpoint: Endpoint) -> Endpoint:
    """The endpoint for those who may call it, with errors told in its protocol's words."""

    async def answered(request: Request) -> Response:
        try:
            request.state.caller = admit(request, row)
            return await endpoint(request)
        except (CllmError, MalformedError) as error:
            record_of(request).outcome = report_error(error).code
            answer = told(error, row.protocol)
            answer.headers.update(getattr(request.state, "told_with", {}))
            return answer

    return answered


def told(error: CllmError | MalformedError, protocol: Protocol) -> Response:
    """An error as an answer."""
    status, headers, body = TELLERS[protocol](error)
    return Response(body, status, headers, media_type="application/json")

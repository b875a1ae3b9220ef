"""Stored responses of the Responses API: reading, following, deleting and cancelling them."""

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Annotated, Any, Literal

import msgspec
from starlette.responses import Response, StreamingResponse

from cllm.core.errors import ErrorReport
from cllm.core.ports import Changes
from cllm.server.api.conversation_ref import ConversationRef
from cllm.server.api.response_parameters import read_parameters
from cllm.server.api.response_views import encode_end, list_input, stream_response, view_response
from cllm.server.api.turn_events import STREAM_HEADERS, TurnFollower, events_not_stored
from cllm.server.http.errors import JSON, ApiError, openai_error_type
from cllm.server.http.parameters import read_query
from cllm.server.state import ApiRequest
from cllm.server.turns.headers import DELETED_RESPONSES
from cllm.server.turns.previous_response import (
    StoredResponse,
    list_deleted,
    load_response,
)
from cllm.server.turns.task import EVENT_STREAM
from cllm.wire.responses.ids import read_response_id
from cllm.wire.responses.passthrough import FRAME_END, read_sequence_number

ENDING = re.compile(rb"^event: (error|response\.(completed|failed|incomplete))$", re.MULTILINE)
EVENT_NAME = b"event: response."


class ResponseQuery(msgspec.Struct, frozen=True, kw_only=True):
    """`stream`: as events, those after the sequence number `starting_after`."""

    stream: bool = False
    starting_after: Annotated[int, msgspec.Meta(ge=-1, le=2**31 - 1)] | None = None


class InputItemsQuery(msgspec.Struct, frozen=True, kw_only=True):
    """`after`: the id of the last item of the page before."""

    after: str | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=100)] = 20
    order: Literal["asc", "desc"] = "desc"


async def get_response(request: ApiRequest) -> Response:
    """GET /v1/responses/{response_id}."""
    query = read_query(request, ResponseQuery)
    found = await find_response(request)
    if not query.stream:
        return json_body(view_response(found))
    ref = ConversationRef(
        store=request.server.store, owner=request.caller.owner, id=found.conversation.id
    )
    after = -1 if query.starting_after is None else query.starting_after
    turn = found.turn
    events = await request.server.store.events_after(ref.id, turn.id, 0, owner=ref.owner)
    # A turn of another API has the events of that API.
    is_own = bool(events) and EVENT_NAME in events[0].data
    if is_own or (turn.state == "running" and not events):
        errors = ErrorRecorder()
        follower = TurnFollower(ref, turn.id, request.server, encode_error=errors.record)
        frames = add_end(split_events(follower.stream(0)), errors, lambda: find_response(request))
        data = skip_events(frames, after)
        return StreamingResponse(data, media_type=EVENT_STREAM, headers=STREAM_HEADERS)
    if query.starting_after is not None or turn.state == "running":
        raise events_not_stored()
    return Response(stream_response(found), headers=STREAM_HEADERS, media_type=EVENT_STREAM)


async def split_events(stream: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield events one by one: a stored one can be several."""
    async for data in stream:
        for frame in data.split(FRAME_END)[:-1]:
            yield frame + FRAME_END


class ErrorRecorder:
    """Records the error that ends a stream: its event needs the next sequence number."""

    def __init__(self) -> None:
        self.report: ErrorReport | None = None

    def record(self, report: ErrorReport) -> bytes:
        self.report = report
        return b""


async def add_end(
    frames: AsyncIterator[bytes],
    errors: ErrorRecorder,
    load: Callable[[], Awaitable[StoredResponse]],
) -> AsyncIterator[bytes]:
    """Add the last events of a turn that failed: they are not stored.

    The stream of a turn that still runs ends with its error.
    """
    number, is_ended = -1, False
    async for frame in frames:
        number = max(number, read_sequence_number(frame) or 0)
        is_ended = is_ended or ENDING.search(frame) is not None
        yield frame
    if is_ended:
        return
    found = await load()
    if errors.report is not None and found.turn.state == "running":
        yield encode_error_event(errors.report, number + 1)
    else:
        yield encode_end(found, number + 1)


async def skip_events(frames: AsyncIterator[bytes], after: int) -> AsyncIterator[bytes]:
    """Yield the events with a greater sequence number; comments have none."""
    async for frame in frames:
        number = read_sequence_number(frame)
        if number is None or number > after:
            yield frame


def encode_error_event(report: ErrorReport, number: int) -> bytes:
    details = {"code": report.code, "message": report.message, "param": report.param}
    error = {"type": openai_error_type(report), **details}
    body = {"type": "error", "sequence_number": number, **details, "error": error}
    return b"event: error\ndata: %b\n\n" % msgspec.json.encode(body)


async def delete_response(request: ApiRequest) -> Response:
    """DELETE /v1/responses/{response_id}."""
    found = await find_response(request)
    conversation = found.conversation
    deleted = [*list_deleted(conversation), found.turn.id]
    changes = Changes(metadata={**conversation.metadata, DELETED_RESPONSES: deleted})
    await request.server.store.update(conversation.id, changes, owner=request.caller.owner)
    response_id = request.path_params["response_id"]
    return json_body({"id": response_id, "object": "response", "deleted": True})


async def cancel_response(request: ApiRequest) -> Response:
    """POST /v1/responses/{response_id}/cancel."""
    found = await find_response(request)
    if found.turn.state == "running":
        check_background(found)
        key = (request.caller.owner, found.conversation.id, found.turn.id)
        if not await request.server.turns.cancel(key):
            await cancel_elsewhere(found, request)
        found = await find_response(request)
    return json_body(view_response(found))


def check_background(found: StoredResponse) -> None:
    parameters = read_parameters(found.turn) or {}
    if parameters.get("background") is not True:
        raise ApiError(
            "invalid_request",
            "Only a response with `background: true` can be cancelled; disconnect, or wait for "
            "its end.",
            param="response_id",
        )


async def cancel_elsewhere(found: StoredResponse, request: ApiRequest) -> None:
    """Cancel a turn of another process, which then loses its lease."""
    store, owner = request.server.store, request.caller.owner
    await store.cancel_turn(found.conversation.id, found.turn.id, owner=owner)


async def list_input_items(request: ApiRequest) -> Response:
    """GET /v1/responses/{response_id}/input_items."""
    query = read_query(request, InputItemsQuery)
    items = list_input(await find_response(request))
    return json_body(page_items(items, query))


def page_items(items: list[Any], query: InputItemsQuery) -> dict[str, Any]:
    """Return one page of the items, which are in the order of the conversation."""
    items = items[::-1] if query.order == "desc" else items
    ids = [item["id"] for item in items]
    if query.after is not None:
        if query.after not in ids:
            raise ApiError(
                "item_not_found",
                f"Item with id '{query.after}' not found; send the id of an item in the list.",
                param="after",
            )
        items = items[ids.index(query.after) + 1 :]
    page = items[: query.limit]
    return view_page(page, has_more=len(items) > len(page))


def view_page(page: Sequence[Any], *, has_more: bool = False) -> dict[str, Any]:
    return {
        "object": "list",
        "data": page,
        "first_id": page[0]["id"] if page else None,
        "last_id": page[-1]["id"] if page else None,
        "has_more": has_more,
    }


async def find_response(request: ApiRequest) -> StoredResponse:
    """Return the response in the path."""
    response_id = request.path_params["response_id"]
    key = read_response_id(response_id)
    found = None
    if key is not None:
        found = await load_response(request.server.store, key, owner=request.caller.owner)
    if found is None:
        raise ApiError(
            "response_not_found",
            f"Response with id '{response_id}' not found.",
            param="response_id",
        )
    request.record.conversation, request.record.turn = found.conversation.id, found.turn.id
    return found


def json_body(body: object) -> Response:
    return Response(msgspec.json.encode(body), media_type=JSON)

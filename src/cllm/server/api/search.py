"""Searching what was said in one person's conversations."""

from starlette.requests import Request
from starlette.responses import Response

from cllm.server.api.stores import shelf_named, with_notices
from cllm.server.api.views import SearchView, view_hit
from cllm.server.http.parameters import SearchQuery, read_query
from cllm.server.http.responses import answer
from cllm.server.serving import caller_of, serving_of


async def search(request: Request) -> Response:
    """GET /v1/conversations/search."""
    query = read_query(request, SearchQuery)
    shelf = shelf_named(query.store, serving_of(request), caller_of(request))
    found = await shelf.store.search(
        query.q,
        owner=shelf.owner,
        archive_filter=query.archive_filter,
        limit=query.limit,
        offset=query.offset,
    )
    shown = SearchView(
        results=tuple(view_hit(hit, shelf.prefix) for hit in found.items),
        total=found.total,
        more=found.more,
        limit=query.limit,
        offset=query.offset,
    )
    return with_notices(answer(shown), found.notices, shelf)

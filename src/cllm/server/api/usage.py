"""What one person's calls used and cost, by day or by model."""

from starlette.requests import Request
from starlette.responses import Response

from cllm.server.api.views import view_sums
from cllm.server.http.parameters import UsageQuery, read_moment, read_query
from cllm.server.http.responses import answer
from cllm.server.serving import caller_of, serving_of


async def usage(request: Request) -> Response:
    """GET /v1/usage."""
    query = read_query(request, UsageQuery)
    serving = serving_of(request)
    await serving.calls.flush()
    sums = await serving.store.usage(
        owner=caller_of(request).owner,
        since=read_moment(query.since, field="from"),
        until=read_moment(query.until, field="to", end=True),
        by=query.by,
    )
    return answer(view_sums(sums, by=query.by))

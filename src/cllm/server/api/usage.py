"""The usage endpoint: tokens and costs by day or model."""

from collections.abc import Sequence

import msgspec
from starlette.responses import Response

from cllm.core.ports import UsageSum
from cllm.core.reply import Usage, sum_costs
from cllm.server.api.views import UsageView, json_response, token_fields
from cllm.server.http.parameters import UsageQuery, read_query, read_timestamp
from cllm.server.state import ApiRequest


class UsageSumView(UsageView, frozen=True, kw_only=True):
    """Usage of all calls of one day or one model.

    `cost` is in US dollars, without the `unpriced` calls, whose price is unknown; null if all are.
    """

    key: str
    calls: int
    cost: float | None
    unpriced: int


class UsageListView(msgspec.Struct, frozen=True, kw_only=True):
    by: str
    usage: tuple[UsageSumView, ...]
    total: UsageSumView


async def get_usage(request: ApiRequest) -> Response:
    """GET /v1/usage."""
    query = read_query(request, UsageQuery)
    state = request.server
    await state.usage_counter.flush()
    sums = await state.store.usage(
        owner=request.caller.owner,
        since=read_timestamp(query.since, field="from"),
        until=read_timestamp(query.until, field="to", end=True),
        by=query.by,
    )
    return json_response(_view_usage_list(sums, by=query.by))


def _view_usage_list(sums: Sequence[UsageSum], *, by: str) -> UsageListView:
    total = UsageSum(
        key="total",
        calls=sum(one.calls for one in sums),
        usage=sum((one.usage for one in sums), start=Usage()),
        cost=sum_costs(one.cost for one in sums),
        unpriced=sum(one.unpriced for one in sums),
    )
    usage = tuple(map(_view_usage_sum, sums))
    return UsageListView(by=by, usage=usage, total=_view_usage_sum(total))


def _view_usage_sum(one: UsageSum) -> UsageSumView:
    return UsageSumView(
        key=one.key,
        calls=one.calls,
        cost=one.cost,
        unpriced=one.unpriced,
        **token_fields(one.usage),
    )

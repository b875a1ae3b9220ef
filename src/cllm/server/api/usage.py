"""The usage endpoint: tokens and costs by day or model."""

from collections.abc import Sequence
from datetime import datetime

import msgspec
from starlette.responses import Response

from cllm.core.notice import Notice
from cllm.core.ports import UsageBy, UsageSum
from cllm.core.reply import Usage, sum_costs
from cllm.server.api.conversation_lists import find_stores, read_stores
from cllm.server.api.conversation_ref import StoreRef, add_notices
from cllm.server.api.views import UsageView, json_response, token_fields
from cllm.server.http.parameters import UsageQuery, read_query, read_timestamp
from cllm.server.state import ApiRequest
from cllm.stores.merged_lists import merge_usage


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
    """GET /v1/usage: of the stores that lists contain."""
    query = read_query(request, UsageQuery)
    sums, notices = await read_usage(
        request,
        since=read_timestamp(query.since, field="from"),
        until=read_timestamp(query.until, field="to", end=True),
        by=query.by,
    )
    return add_notices(json_response(_view_usage_list(sums, by=query.by)), notices)


async def read_usage(
    request: ApiRequest, *, since: datetime | None, until: datetime | None, by: UsageBy
) -> tuple[tuple[UsageSum, ...], tuple[Notice, ...]]:
    """Return the sums of the server's store, and of the conversation files if it lists them."""
    await request.server.usage_counter.flush()

    async def read(ref: StoreRef) -> tuple[UsageSum, ...]:
        return await ref.store.usage(owner=ref.owner, since=since, until=until, by=by)

    results, notices = await read_stores(find_stores(None, request), read)
    return merge_usage(one for result in results for one in result), notices


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

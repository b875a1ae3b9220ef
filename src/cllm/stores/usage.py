"""Sums of token usage and cost by day or by model."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

import msgspec

from cllm.core.conversation import StoredConversation
from cllm.core.ports import CallRecord, UsageBy, UsageSum
from cllm.core.reply import Usage, sum_costs

UNKNOWN_MODEL = "unknown"


def list_calls(conversation: StoredConversation) -> Iterator[CallRecord]:
    """Yield the turns with usage, including variants and failed turns, without those of the parent.

    A branch has copies of turns that ended before it was created.
    """
    parent = conversation.parent
    is_branch = parent is not None and parent.kind == "branch"
    for turn in conversation.turns + conversation.variants:
        if turn.usage is None or turn.ended_at is None:
            continue
        if not is_branch or turn.ended_at > conversation.created_at:
            model = turn.model or conversation.model or UNKNOWN_MODEL
            yield CallRecord(model=model, usage=turn.usage, cost=turn.cost, ended_at=turn.ended_at)


def sum_usage(
    calls: Iterable[CallRecord],
    *,
    since: datetime | None,
    until: datetime | None,
    by: UsageBy,
) -> tuple[UsageSum, ...]:
    sums: dict[str, UsageSum] = {}
    for call in calls:
        ended = call.ended_at.astimezone(UTC)
        if (since is not None and ended < since) or (until is not None and ended >= until):
            continue
        key = build_usage_key(f"{ended:%Y-%m-%d}", call.model, by)
        empty = UsageSum(key=key, calls=0, usage=Usage(), cost=None)
        sums[key] = _add_call(sums.get(key, empty), call)
    return tuple(sums[key] for key in sorted(sums))


def build_usage_key(day: str, model: str, by: UsageBy) -> str:
    if by == "day_model":
        return f"{day} {model}"
    return day if by == "day" else model


def _add_call(total: UsageSum, call: CallRecord) -> UsageSum:
    return msgspec.structs.replace(
        total,
        calls=total.calls + 1,
        usage=total.usage + call.usage,
        cost=sum_costs((total.cost, call.cost)),
        unpriced=total.unpriced + (call.cost is None),
    )

"""What a conversation used and cost, all of it. Adds up; prices nothing."""

from cllm.core.conversation import Conversation, StandingSummary
from cllm.core.ports import UsageSum
from cllm.core.reply import Usage
from cllm.stores.sums import calls_of


def total(conversation: Conversation) -> UsageSum:
    """What a conversation used in all; summaries that were replaced cost something as well."""
    spent = [(call.usage, call.cost) for call in calls_of(conversation)]
    summary: StandingSummary | None = conversation.summary
    while summary is not None:
        if summary.usage is not None:
            spent.append((summary.usage, summary.cost))
        summary = summary.before
    return UsageSum(
        key=conversation.id,
        calls=len(spent),
        usage=sum((usage for usage, _ in spent), start=Usage()),
        cost=sum(cost for _, cost in spent if cost is not None),
        unpriced=sum(cost is None for _, cost in spent),
    )

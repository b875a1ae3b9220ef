"""The ports: what the engine needs of a store and of a provider, and the values they pass.

A port is a protocol, not a base class. `cllm.testing` has the contract suite that every store
passes. There is a module for each of them; everything is imported from here.
"""

from cllm.core.ports.provider import (
    Clock,
    NewId,
    Provider,
    TokenCount,
    TokenCounter,
)
from cllm.core.ports.server_store import (
    UNANSWERED_KEPT,
    CallRecord,
    KeptResponse,
    RequestClaim,
    RequestKey,
    ServerStore,
    StreamEvent,
)
from cllm.core.ports.store import (
    ArchiveFilter,
    Changes,
    Hit,
    Hits,
    Lease,
    NewConversation,
    Opening,
    Outline,
    OutlinedStore,
    Page,
    Store,
    Tail,
    TurnPart,
    TurnStart,
    UsageBy,
    UsageSum,
)

__all__ = [
    "UNANSWERED_KEPT",
    "ArchiveFilter",
    "CallRecord",
    "Changes",
    "Clock",
    "Hit",
    "Hits",
    "KeptResponse",
    "Lease",
    "NewConversation",
    "NewId",
    "Opening",
    "Outline",
    "OutlinedStore",
    "Page",
    "Provider",
    "RequestClaim",
    "RequestKey",
    "ServerStore",
    "Store",
    "StreamEvent",
    "Tail",
    "TokenCount",
    "TokenCounter",
    "TurnPart",
    "TurnStart",
    "UsageBy",
    "UsageSum",
]

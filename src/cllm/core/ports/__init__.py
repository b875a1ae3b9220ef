"""The ports: protocols of stores and providers, and the values in their signatures.

A port is a `typing.Protocol`, not a base class. `cllm.testing` has the contract tests that every
store passes. Import everything from here.
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
    ImportedFields,
    ImportingStore,
    Lease,
    NewConversation,
    Opening,
    OpeningStore,
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
    "ImportedFields",
    "ImportingStore",
    "KeptResponse",
    "Lease",
    "NewConversation",
    "NewId",
    "Opening",
    "OpeningStore",
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

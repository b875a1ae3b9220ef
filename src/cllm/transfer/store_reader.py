"""All conversations of a store, one by one."""

import sys
from collections.abc import AsyncIterator

from cllm.core.conversation import LOCAL_OWNER, StoredConversation, Summary
from cllm.core.errors import ConversationNotFoundError, StoreError, StoreUnavailableError
from cllm.core.notice import Notice
from cllm.core.ports import Store
from cllm.stores.combined import CombinedStore


def list_stores(store: Store) -> tuple[Store, ...]:
    """Return the stores of a combined one, or the store."""
    return store.list_stores() if isinstance(store, CombinedStore) else (store,)


async def list_summaries(
    store: Store, *, owner: str = LOCAL_OWNER
) -> tuple[list[Summary], tuple[Notice, ...]]:
    """Return all conversations, oldest first: parents before their branches; and the notices."""
    page = await store.list_conversations(
        owner=owner, archive_filter="all", side=True, limit=sys.maxsize
    )
    ordered = sorted(page.items, key=lambda summary: (summary.created_at, summary.id))
    return ordered, page.notices


async def load_all(
    store: Store, summaries: list[Summary], *, owner: str = LOCAL_OWNER
) -> AsyncIterator[tuple[Summary, StoredConversation | StoreError]]:
    """Yield each conversation, or the error; one that was deleted meanwhile is left out."""
    for summary in summaries:
        try:
            yield summary, await store.load(summary.id, owner=owner)
        except ConversationNotFoundError:
            continue
        except StoreError as error:
            # A subclass is about one conversation.
            if type(error) is StoreUnavailableError:
                raise
            yield summary, error

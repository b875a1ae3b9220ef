"""Finds the conversation that a client has summarised.

Clients replace a long history by a summary. The request for the summary is stored as a side
conversation; a later request contains its reply.
"""

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from cllm.core.conversation import Branch, StoredConversation, Summary
from cllm.core.errors import ConversationNotFoundError
from cllm.core.message import Message
from cllm.core.ports import Store
from cllm.engine.request import ClientHistory, join_source

COMPACTION = "compaction"
MAX_COMPACTIONS = 10
MIN_LENGTH, MIN_LENGTH_IN_SESSION = 20, 5
"""Characters of a summary; a shorter text can be in a message by chance."""


class Compaction(msgspec.Struct, frozen=True, kw_only=True):
    """`parent` is the conversation that is summarised, `family` is its family."""

    parent: Branch
    family: str


async def find_compaction(
    store: Store,
    messages: Sequence[Message],
    history: ClientHistory,
    *,
    family: str | None,
    owner: str,
) -> Compaction | None:
    """Return the newest compaction whose summary is in one of the messages.

    Searches the family. Without a family: the newest compactions of the client.
    """
    if not messages:
        return None
    listed = await _list_compactions(store, history, family, owner=owner)
    texts = [_squeeze(message.text) for message in messages] if listed else []
    shortest = MIN_LENGTH if family is None else MIN_LENGTH_IN_SESSION
    for summary in listed:
        conversation = await store.load(summary.id, owner=owner)
        text = _read_summary_text(conversation)
        parent = conversation.parent
        if parent is None or len(text) < shortest or not any(text in one for one in texts):
            continue
        found = replace(parent, kind="compaction")
        if family is not None:
            return Compaction(parent=found, family=family)
        try:
            head = await store.load(parent.conversation, owner=owner, tail=0)
        except ConversationNotFoundError:
            continue
        return Compaction(parent=found, family=head.family_key)
    return None


async def _list_compactions(
    store: Store, history: ClientHistory, family: str | None, *, owner: str
) -> list[Summary]:
    if family is not None:
        known = await store.list_family(family, owner=owner)
        return [one for one in known if one.is_side and _is_compaction(one)]
    source = join_source(history.client, COMPACTION)
    page = await store.list_conversations(
        owner=owner, source=source, side=True, limit=MAX_COMPACTIONS
    )
    return list(page.items)


def _is_compaction(summary: Summary) -> bool:
    return (summary.source or "").rpartition(":")[2] == COMPACTION


def _read_summary_text(conversation: StoredConversation) -> str:
    """Return the last reply without what clients remove from a summary."""
    replies = [one for one in conversation.messages if one.role == "assistant"]
    text = replies[-1].text if replies else ""
    _, tag, inside = text.partition("<summary>")
    return _squeeze(inside.partition("</summary>")[0] if tag else text)


def _squeeze(text: str) -> str:
    return " ".join(text.split())

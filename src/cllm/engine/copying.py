"""A whole conversation into a store, turn by turn: variants, pins and summary come along.

The copy is new in its store: its id is given, and it does not know what it was copied from.
"""

from collections.abc import Iterator

import msgspec

from cllm.core.conversation import LOCAL_OWNER, Conversation, SystemRecord, Turn
from cllm.core.ports import Changes, NewConversation, Opening, Store, TurnStart


async def copy_into(
    store: Store, conversation: Conversation, ref: str, *, owner: str = LOCAL_OWNER
) -> None:
    """Keep it under that id, whole or not at all; ConversationExistsError if the id is taken."""
    new = NewConversation(
        id=ref,
        model=conversation.model,
        title=conversation.title,
        metadata=conversation.metadata,
    )
    await store.create(new, owner=owner, opening=_opening(conversation))
    try:
        for turn in conversation.turns:
            variants = list(_variants_of(conversation, turn))
            await _copy_place(store, ref, turn, variants, owner=owner)
        await store.update(ref, _changes(conversation), owner=owner)
    except BaseException:
        await store.delete(ref, owner=owner)
        raise


def _changes(conversation: Conversation) -> Changes:
    return Changes(
        title=conversation.title,
        archived=conversation.archived_at is not None,
        pins=conversation.pins,
        summary=conversation.summary,
    )


def _opening(conversation: Conversation) -> Opening | None:
    record = conversation.system_record
    if record is None and conversation.system is None:
        return None
    return Opening(
        system=conversation.system,
        system_record=record or SystemRecord(policy="captured"),
        context_record=conversation.context_record,
    )


def _variants_of(conversation: Conversation, turn: Turn) -> Iterator[Turn]:
    return (one for one in conversation.variants if one.place == turn.place)


async def _copy_place(
    store: Store, ref: str, chosen: Turn, variants: list[Turn], *, owner: str
) -> None:
    """All turns of one place. It has the id of the first, and the chosen one ends on the path."""
    first, *others = sorted([chosen, *variants], key=lambda turn: turn.id != turn.place)
    await _copy_turn(store, ref, first, place=None, owner=owner)
    for turn in others:
        await _copy_turn(store, ref, turn, place=first.id, owner=owner)
    if others and chosen.is_history:
        await store.choose_variant(ref, chosen.id, owner=owner)


async def _copy_turn(store: Store, ref: str, turn: Turn, *, place: str | None, owner: str) -> None:
    start = TurnStart(id=turn.id, messages=turn.asked, model=turn.model, place=place, visible=False)
    lease = await store.begin_turn(ref, start, owner=owner, tail=0)
    kept = msgspec.structs.replace(turn, place=lease.turn.place)
    if turn.state == "running":
        kept = msgspec.structs.replace(kept, state="failed")
    await store.finish_turn(lease, kept)

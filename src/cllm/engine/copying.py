"""A whole conversation into a store, in one step: variants, pins and summary come along.

The copy is new in its store: its id is given, and it does not know what it was copied from.
"""

import msgspec

from cllm.core.conversation import LOCAL_OWNER, Conversation, SystemRecord, Turn
from cllm.core.ports import Store


async def copy_into(
    store: Store, conversation: Conversation, ref: str, *, owner: str = LOCAL_OWNER
) -> None:
    """Keep it under that id, whole or not at all; ConversationExistsError if the id is taken."""
    await store.add(copy_of(conversation, ref), owner=owner)


def copy_of(conversation: Conversation, ref: str) -> Conversation:
    """The conversation under another id, with what a store can tell of it.

    The turns of a place have the id of one of them for it. Variants of places that are not on the
    path, and pins and a summary of messages that are not there, are left out.
    """
    named = {turn.place for turn in conversation.variants if turn.id == turn.place}
    places: dict[str, str] = {}
    turns: list[Turn] = []
    for turn in conversation.turns:
        is_named = turn.place in named and turn.place not in places
        place = turn.place if is_named else turn.id
        places.setdefault(turn.place, place)
        turns.append(_at(turn, place))
    variants = [
        _at(turn, places[turn.place]) for turn in conversation.variants if turn.place in places
    ]
    copy = msgspec.structs.replace(
        conversation,
        id=ref,
        name=None,
        parent=None,
        first_sequence=1,
        turns=tuple(turns),
        variants=tuple(variants),
        system_record=_system_record(conversation),
    )
    count, summary = copy.message_count, copy.summary
    return msgspec.structs.replace(
        copy,
        pins=tuple(pin for pin in copy.pins if pin <= count),
        summary=None if summary is None else summary.up_to(count),
    )


def _at(turn: Turn, place: str) -> Turn:
    return turn if turn.place == place else msgspec.structs.replace(turn, place=place)


def _system_record(conversation: Conversation) -> SystemRecord | None:
    """The record of the system prompt; one that is stored without a record was captured."""
    if conversation.system is None or conversation.system_record is not None:
        return conversation.system_record
    return SystemRecord(policy="captured")

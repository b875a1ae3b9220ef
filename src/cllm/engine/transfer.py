"""A whole conversation: copied into a store in one step, or read in parts.

A copy is new in its store: its ID is passed in, and it does not record what it was copied from.
Reading in parts shows the conversation as it was at one moment, and it can be larger than memory.
Messages added later are not included; if something is deleted meanwhile, reading raises an error.
"""

from collections.abc import AsyncIterator, Sequence

import msgspec

from cllm.core.conversation import LOCAL_OWNER, Conversation, SystemRecord, Turn
from cllm.core.errors import TurnNotFoundError
from cllm.core.message import Message
from cllm.core.ports import Outline, OutlinedStore, Store, TurnPart

MOST_BYTES = 256 * 1024
MOST_TURNS = 240


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


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """Messages of a turn that follow one another; with the last of them it `ends`."""

    turn: Turn
    messages: tuple[Message, ...]
    ends: bool = True


class Outlined:
    """The conversation: its turns and variants have no messages, they are read by `said_in`."""

    def __init__(self, store: OutlinedStore, outline: Outline, *, owner: str, most: int) -> None:
        self.conversation = outline.conversation
        self._counts = outline.counts
        self._store = store
        self._owner = owner
        self._most = most

    async def said_in(self, turns: Sequence[Turn]) -> AsyncIterator[Said]:
        """What was said in these turns, one after the other."""
        async for part in self.parts_of(turns):
            for said in part:
                yield said

    async def parts_of(self, turns: Sequence[Turn]) -> AsyncIterator[Sequence[Said]]:
        """What was said in these turns, as much at a time as is read at once."""
        at, start = 0, 0
        while at < len(turns):
            wanted = turns[at : at + MOST_TURNS]
            parts = [TurnPart(turn=turn.id) for turn in wanted]
            parts[0] = TurnPart(turn=wanted[0].id, start=start)
            found = await self._store.messages_from(
                self.conversation.id, parts, most=self._most, owner=self._owner
            )
            # Turns in which nothing was said can be missing at the end.
            found = found or ((),)
            part: list[Said] = []
            for place, (turn, messages) in enumerate(zip(wanted, found, strict=False), 1):
                said = self._said(turn, messages, start)
                if not said.ends and (place < len(found) or not messages):
                    raise TurnNotFoundError(self.conversation.ref, turn.id)
                part.append(said)
                at, start = (at + 1, 0) if said.ends else (at, start + len(said.messages))
            yield part

    def _said(self, turn: Turn, messages: tuple[Message, ...], start: int) -> Said:
        """As much of the messages as there was: of a turn that ran, more may have come."""
        left = self._counts[turn.id] - start
        return Said(turn=turn, messages=messages[:left], ends=len(messages) >= left)


class _Loaded:
    """A conversation that was loaded whole, in parts; for stores that have it no other way."""

    def __init__(self, conversation: Conversation) -> None:
        turns = (*conversation.turns, *conversation.variants)
        self._messages = {turn.id: turn.messages for turn in turns}
        self._conversation = conversation

    async def outline(self, ref: str, *, owner: str = LOCAL_OWNER) -> Outline:  # noqa: ARG002
        bare = msgspec.structs.replace(
            self._conversation,
            turns=tuple(map(_bare, self._conversation.turns)),
            variants=tuple(map(_bare, self._conversation.variants)),
        )
        counts = {turn: len(messages) for turn, messages in self._messages.items()}
        return Outline(conversation=bare, counts=counts)

    async def messages_from(
        self,
        ref: str,  # noqa: ARG002
        parts: Sequence[TurnPart],
        *,
        most: int,
        owner: str = LOCAL_OWNER,  # noqa: ARG002
    ) -> tuple[tuple[Message, ...], ...]:
        found: list[tuple[Message, ...]] = []
        for part in parts:
            if most <= 0:
                break
            messages = self._messages[part.turn][part.start :]
            found.append(messages)
            most -= sum(len(message.raw) for message in messages)
        return tuple(found)


def _bare(turn: Turn) -> Turn:
    return msgspec.structs.replace(turn, messages=())


async def open_outlined(
    store: Store, ref: str, *, owner: str = LOCAL_OWNER, most: int = MOST_BYTES
) -> Outlined:
    """The conversation as it is now; its parts have about `most` bytes."""
    parts: OutlinedStore
    if isinstance(store, OutlinedStore):
        parts = store
    else:
        parts = _Loaded(await store.load(ref, owner=owner))
    return Outlined(parts, await parts.outline(ref, owner=owner), owner=owner, most=most)

"""A whole conversation: copied into a store in one step, or read page by page.

Pages show the conversation at one moment, which can be larger than memory. Deleting messages
meanwhile raises TurnNotFoundError.
"""

from collections.abc import AsyncIterator, Sequence

import msgspec

from cllm.core.conversation import LOCAL_OWNER, StoredConversation, SystemRecord, Turn
from cllm.core.errors import TurnNotFoundError
from cllm.core.message import Message
from cllm.core.ports import Outline, OutlinedStore, Store, TurnPart

MAX_PAGE_BYTES = 256 * 1024
MAX_PAGE_TURNS = 240


async def copy_into(
    store: Store, conversation: StoredConversation, ref: str, *, owner: str = LOCAL_OWNER
) -> None:
    """Add a copy in one step; ConversationExistsError if the ID is taken."""
    await store.add(make_copy(conversation, ref), owner=owner)


def make_copy(conversation: StoredConversation, ref: str) -> StoredConversation:
    """Return the conversation under another ID, in a form that every store accepts.

    Leaves out variants off the path, and pins and summaries of missing messages.
    """
    first_turns = {turn.place for turn in conversation.variants if turn.id == turn.place}
    places: dict[str, str] = {}
    turns: list[Turn] = []
    for turn in conversation.turns:
        is_first_id = turn.place in first_turns and turn.place not in places
        place = turn.place if is_first_id else turn.id
        places.setdefault(turn.place, place)
        turns.append(_with_place(turn, place))
    variants = [
        _with_place(turn, places[turn.place])
        for turn in conversation.variants
        if turn.place in places
    ]
    copy = msgspec.structs.replace(
        conversation,
        id=ref,
        name=None,
        parent=None,
        family=None,
        is_side=False,
        path_start=None,
        first_sequence=1,
        turns=tuple(turns),
        variants=tuple(variants),
        system_record=_build_system_record(conversation),
    )
    count, summary = copy.message_count, copy.summary
    return msgspec.structs.replace(
        copy,
        pins=tuple(pin for pin in copy.pins if pin <= count),
        summary=None if summary is None else summary.up_to(count),
    )


def _with_place(turn: Turn, place: str) -> Turn:
    return turn if turn.place == place else msgspec.structs.replace(turn, place=place)


def _build_system_record(conversation: StoredConversation) -> SystemRecord | None:
    if conversation.system is None or conversation.system_record is not None:
        return conversation.system_record
    return SystemRecord(policy="captured")


class TurnMessages(msgspec.Struct, frozen=True, kw_only=True):
    """Consecutive messages of a turn; `is_complete`: they include its last message."""

    turn: Turn
    messages: tuple[Message, ...]
    is_complete: bool = True


class PagedConversation:
    """A conversation without its messages, and methods that read them page by page."""

    def __init__(self, store: OutlinedStore, outline: Outline, *, owner: str, most: int) -> None:
        self.conversation = outline.conversation
        self._counts = outline.counts
        self._store = store
        self._owner = owner
        self._most = most

    async def iter_messages(self, turns: Sequence[Turn]) -> AsyncIterator[TurnMessages]:
        async for page in self.iter_pages(turns):
            for messages in page:
                yield messages

    async def iter_pages(self, turns: Sequence[Turn]) -> AsyncIterator[Sequence[TurnMessages]]:
        """Yield the messages of these turns, in lists that are read with one query."""
        index, start = 0, 0
        while index < len(turns):
            wanted = turns[index : index + MAX_PAGE_TURNS]
            parts = [TurnPart(turn=turn.id) for turn in wanted]
            parts[0] = TurnPart(turn=wanted[0].id, start=start)
            loaded = await self._store.messages_from(
                self.conversation.id, parts, most=self._most, owner=self._owner
            )
            # Turns without messages can be missing at the end.
            loaded = loaded or ((),)
            page: list[TurnMessages] = []
            for count, (turn, messages) in enumerate(zip(wanted, loaded, strict=False), 1):
                # A turn that ran when the outline was made can have more messages by now.
                remaining = self._counts[turn.id] - start
                read = TurnMessages(
                    turn=turn, messages=messages[:remaining], is_complete=len(messages) >= remaining
                )
                if not read.is_complete and (count < len(loaded) or not messages):
                    raise TurnNotFoundError(self.conversation.ref, turn.id)
                page.append(read)
                index, start = (
                    (index + 1, 0) if read.is_complete else (index, start + len(read.messages))
                )
            yield page


class _LoadedConversation:
    """An OutlinedStore for a store that reads whole conversations only."""

    def __init__(self, conversation: StoredConversation) -> None:
        turns = (*conversation.turns, *conversation.variants)
        self._messages = {turn.id: turn.messages for turn in turns}
        self._conversation = conversation

    async def outline(self, ref: str, *, owner: str = LOCAL_OWNER) -> Outline:  # noqa: ARG002
        outline = msgspec.structs.replace(
            self._conversation,
            turns=tuple(map(_remove_messages, self._conversation.turns)),
            variants=tuple(map(_remove_messages, self._conversation.variants)),
        )
        counts = {turn: len(messages) for turn, messages in self._messages.items()}
        return Outline(conversation=outline, counts=counts)

    async def messages_from(
        self,
        ref: str,  # noqa: ARG002
        parts: Sequence[TurnPart],
        *,
        most: int,
        owner: str = LOCAL_OWNER,  # noqa: ARG002
    ) -> tuple[tuple[Message, ...], ...]:
        loaded: list[tuple[Message, ...]] = []
        for part in parts:
            if most <= 0:
                break
            messages = self._messages[part.turn][part.start :]
            loaded.append(messages)
            most -= sum(len(message.raw) for message in messages)
        return tuple(loaded)


def _remove_messages(turn: Turn) -> Turn:
    return msgspec.structs.replace(turn, messages=())


async def open_paged(
    store: Store, ref: str, *, owner: str = LOCAL_OWNER, most: int = MAX_PAGE_BYTES
) -> PagedConversation:
    parts: OutlinedStore = (
        store
        if isinstance(store, OutlinedStore)
        else _LoadedConversation(await store.load(ref, owner=owner))
    )
    return PagedConversation(parts, await parts.outline(ref, owner=owner), owner=owner, most=most)

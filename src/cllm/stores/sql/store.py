"""What the stores in SQLite and PostgreSQL share: values are checked, then stored or edited.

An edit is saved as the difference between the stored conversation and the edited one, in rows.
"""

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec

from cllm.core.conversation import LOCAL_OWNER, StoredConversation, Summary, Turn, check_id
from cllm.core.message import Message
from cllm.core.ports import Changes, NewConversation, Opening
from cllm.stores import edits
from cllm.stores.edits import Change, EditingStore
from cllm.stores.sql.validation import (
    check_conversation,
    check_json,
    check_new,
    check_opening,
    check_text,
    has_surrogates,
    invalid_text_error,
)


class SqlStore(EditingStore):
    """A store in a database, which takes no NUL characters and no halves of characters."""

    @abstractmethod
    async def _insert(
        self,
        new: StoredConversation,
        *,
        source: str | None = None,
        change: Change = lambda new: new,
    ) -> StoredConversation:
        """Store `new`, or what `change` makes of the conversation `source`, in one transaction.

        Raises ConversationExistsError if the id or name of `new` is taken, ConversationBusyError if
        a first turn is about to create it.
        """

    async def create(
        self, new: NewConversation, *, owner: str = LOCAL_OWNER, opening: Opening | None = None
    ) -> StoredConversation:
        return await self._insert(edits.with_opening(self._new(new, owner, opening), opening))

    async def add(self, conversation: StoredConversation, *, owner: str = LOCAL_OWNER) -> None:
        check_conversation(conversation)
        await self._insert(edits.prepare_conversation(conversation, owner=owner, now=self._clock()))

    async def branch(
        self,
        ref: str,
        new: NewConversation,
        *,
        at: int | None = None,
        opening: Opening | None = None,
        owner: str = LOCAL_OWNER,
    ) -> StoredConversation:
        check_id(ref)
        fresh = self._new(new, owner, opening)

        def change(source: StoredConversation) -> StoredConversation:
            return edits.build_branch(source, fresh, at=at, opening=opening)

        return await self._insert(fresh, source=ref, change=change)

    async def update(self, ref: str, changes: Changes, *, owner: str = LOCAL_OWNER) -> Summary:
        check_text(None if isinstance(changes.title, msgspec.UnsetType) else changes.title)
        check_json([each for each in (changes.metadata, changes.summary) if each])
        return await super().update(ref, changes, owner=owner)

    async def capture(
        self, ref: str, opening: Opening, *, owner: str = LOCAL_OWNER
    ) -> StoredConversation | None:
        check_opening(opening)
        return await super().capture(ref, opening, owner=owner)

    async def choose_variant(
        self, ref: str, turn_id: str, *, owner: str = LOCAL_OWNER
    ) -> StoredConversation:
        if has_surrogates(turn_id):
            raise invalid_text_error()
        return await super().choose_variant(ref, turn_id, owner=owner)

    def _new(self, new: NewConversation, owner: str, opening: Opening | None) -> StoredConversation:
        check_new(new)
        check_opening(opening)
        return edits.build_conversation(new, key=new.id, owner=owner, now=self._clock())


PLACEHOLDER = Message(role="user", raw=b"{}")
"""Stands for a message that an edit does not read; only their number counts."""


class StoredTurn(NamedTuple):
    number: int
    position: int | None


class TurnMove(NamedTuple):
    """A turn's new position, after `before` messages of the path; None: off the path."""

    number: int
    position: int | None
    before: int | None


class ConversationDiff(msgspec.Struct, frozen=True, kw_only=True):
    """What to write, by turn numbers. `cut`: how many messages a turn keeps."""

    deleted: tuple[int, ...]
    changed: tuple[tuple[int, Turn], ...]
    cut: tuple[tuple[int, int], ...]
    moved: tuple[TurnMove, ...]


def with_placeholders(turn: Turn, count: int) -> Turn:
    return msgspec.structs.replace(turn, messages=(PLACEHOLDER,) * count)


def diff_conversations(
    old: StoredConversation, new: StoredConversation, stored: Mapping[str, StoredTurn]
) -> ConversationDiff:
    """What changes the turns of `old` into those of `new`; `old` can be loaded in part.

    An edit adds no turn, and takes messages off a turn's end only.
    """
    were = {turn.id: turn for turn in old.turns + old.variants}
    are = {turn.id: turn for turn in new.turns + new.variants}
    positions = {turn.place: stored[turn.id].position for turn in old.turns}
    before = dict(_list_moves(old, positions, stored))
    after = dict(_list_moves(new, positions, stored))
    kept = [(stored[key].number, were[key], turn) for key, turn in are.items()]
    return ConversationDiff(
        deleted=tuple(stored[key].number for key in were if key not in are),
        changed=tuple(
            (number, turn)
            for number, was, turn in kept
            if with_placeholders(was, 0) != with_placeholders(turn, 0)
        ),
        cut=tuple(
            (number, len(turn.messages))
            for number, was, turn in kept
            if len(turn.messages) < len(was.messages)
        ),
        moved=tuple(after[key] for key in are if before[key] != after[key]),
    )


def _list_moves(
    conversation: StoredConversation,
    positions: Mapping[str, int | None],
    stored: Mapping[str, StoredTurn],
) -> Iterator[tuple[str, TurnMove]]:
    before = conversation.first_sequence - 1
    for turn in conversation.turns:
        yield turn.id, TurnMove(stored[turn.id].number, positions[turn.place], before)
        before += len(turn.messages)
    for turn in conversation.variants:
        yield turn.id, TurnMove(stored[turn.id].number, None, None)

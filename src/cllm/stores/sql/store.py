"""The base class of the SQLite and PostgreSQL stores: checks values before they are stored.

An edit is saved as the difference in rows between the stored and the edited conversation.
"""

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

from cllm.core.conversation import LOCAL_OWNER, StoredConversation, Summary, Turn, check_id
from cllm.core.message import Message
from cllm.core.ports import Changes, NewConversation, Opening
from cllm.stores import edits
from cllm.stores.editing_store import Change, EditingStore
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
    """A store in a database, which accepts no NUL characters and no unpaired surrogates."""

    @abstractmethod
    async def _insert(
        self,
        new: StoredConversation,
        *,
        source: str | None = None,
        change: Change = lambda new: new,
    ) -> StoredConversation:
        """Store `new`, or the result of `change` for the conversation `source`, in one transaction.

        Raises ConversationExistsError if the id or name of `new` exists, ConversationBusyError if
        a first turn is about to create it.
        """

    async def create(
        self, new: NewConversation, *, owner: str = LOCAL_OWNER, opening: Opening | None = None
    ) -> StoredConversation:
        return await self._insert(edits.with_opening(self._build_new(new, owner, opening), opening))

    async def add(
        self,
        conversation: StoredConversation,
        *,
        owner: str = LOCAL_OWNER,
        preserve_times: bool = False,
    ) -> str:
        now = None if preserve_times else self._clock()
        check_conversation(conversation)
        prepared = edits.prepare_conversation(conversation, owner=owner, now=now)
        return (await self._insert(prepared)).id

    async def branch(
        self,
        ref: str,
        new: NewConversation,
        *,
        at: int | None = None,
        path: Sequence[str] | None = None,
        opening: Opening | None = None,
        owner: str = LOCAL_OWNER,
    ) -> StoredConversation:
        check_id(ref)
        empty = self._build_new(new, owner, opening)

        def change(source: StoredConversation) -> StoredConversation:
            return edits.build_branch(source, empty, at=at, path=path, opening=opening)

        return await self._insert(empty, source=ref, change=change)

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

    def _build_new(
        self, new: NewConversation, owner: str, opening: Opening | None
    ) -> StoredConversation:
        check_new(new)
        check_opening(opening)
        return edits.build_conversation(new, key=new.id, owner=owner, now=self._clock())


PLACEHOLDER = Message(role="user", raw=b"{}")
"""A message that an edit does not read; only their number matters."""


class StoredTurn(NamedTuple):
    number: int
    position: int | None


class TurnMove(NamedTuple):
    """A turn's new position and the number of its first message; None: off the path."""

    number: int
    position: int | None
    first_sequence: int | None


def number_turns(conversation: StoredConversation) -> list[tuple[Turn, TurnMove]]:
    """Return the turns of a new conversation with their numbers: the path, then the variants."""
    moves: list[tuple[Turn, TurnMove]] = []
    before = 0
    for number, turn in enumerate(conversation.turns, 1):
        moves.append((turn, TurnMove(number, number, before + 1)))
        before += len(turn.messages)
    first = len(moves) + 1
    variants = enumerate(conversation.variants, first)
    return moves + [(turn, TurnMove(number, None, None)) for number, turn in variants]


class ConversationDiff(msgspec.Struct, frozen=True, kw_only=True):
    """The rows to write, by turn numbers. `truncated_turns`: how many messages of a turn remain."""

    deleted_turns: tuple[int, ...]
    changed_turns: tuple[tuple[int, Turn], ...]
    truncated_turns: tuple[tuple[int, int], ...]
    moved_turns: tuple[TurnMove, ...]


def with_placeholders(turn: Turn, count: int) -> Turn:
    return msgspec.structs.replace(turn, messages=(PLACEHOLDER,) * count)


def diff_conversations(
    old: StoredConversation, new: StoredConversation, stored: Mapping[str, StoredTurn]
) -> ConversationDiff:
    """Return the changes from `old`, which can be loaded in part, to `new`.

    An edit adds no turn, and removes messages only from a turn's end.
    """
    old_turns = {turn.id: turn for turn in old.turns + old.variants}
    new_turns = {turn.id: turn for turn in new.turns + new.variants}
    positions = {turn.place: stored[turn.id].position for turn in old.turns}
    old_moves = dict(_list_moves(old, positions, stored))
    new_moves = dict(_list_moves(new, positions, stored))
    pairs = [(stored[key].number, old_turns[key], turn) for key, turn in new_turns.items()]
    return ConversationDiff(
        deleted_turns=tuple(stored[key].number for key in old_turns if key not in new_turns),
        changed_turns=tuple(
            (number, after)
            for number, before, after in pairs
            if with_placeholders(before, 0) != with_placeholders(after, 0)
        ),
        truncated_turns=tuple(
            (number, len(after.messages))
            for number, before, after in pairs
            if len(after.messages) < len(before.messages)
        ),
        moved_turns=tuple(new_moves[key] for key in new_turns if old_moves[key] != new_moves[key]),
    )


def _list_moves(
    conversation: StoredConversation,
    positions: Mapping[str, int | None],
    stored: Mapping[str, StoredTurn],
) -> Iterator[tuple[str, TurnMove]]:
    before = conversation.first_sequence - 1
    for turn in conversation.turns:
        yield turn.id, TurnMove(stored[turn.id].number, positions[turn.place], before + 1)
        before += len(turn.messages)
    for turn in conversation.variants:
        yield turn.id, TurnMove(stored[turn.id].number, None, None)

"""What the stores in SQLite and PostgreSQL share: values are checked, then stored or edited."""

from abc import abstractmethod

import msgspec

from cllm.core.conversation import LOCAL_OWNER, Conversation, Summary, check_id
from cllm.core.ports import Changes, NewConversation, Opening
from cllm.stores import edits
from cllm.stores.edits import Change, EditingStore
from cllm.stores.sql.checks import (
    check_json,
    check_new,
    check_opening,
    check_text,
    check_whole,
    has_surrogates,
    unkeepable,
)


class SqlStore(EditingStore):
    """A store in a database, which takes no NUL characters and no halves of characters."""

    @abstractmethod
    async def _insert(
        self, new: Conversation, *, source: str | None = None, change: Change = lambda new: new
    ) -> Conversation:
        """Store `new`, or what `change` makes of the conversation `source`, in one transaction.

        Raises ConversationExistsError if the id or name of `new` is taken, ConversationBusyError if
        a first turn is about to create it.
        """

    async def create(
        self, new: NewConversation, *, owner: str = LOCAL_OWNER, opening: Opening | None = None
    ) -> Conversation:
        return await self._insert(edits.with_opening(self._new(new, owner, opening), opening))

    async def add(self, conversation: Conversation, *, owner: str = LOCAL_OWNER) -> None:
        check_whole(conversation)
        await self._insert(edits.added(conversation, owner=owner, now=self._clock()))

    async def branch(
        self,
        ref: str,
        new: NewConversation,
        *,
        at: int | None = None,
        opening: Opening | None = None,
        owner: str = LOCAL_OWNER,
    ) -> Conversation:
        check_id(ref)
        fresh = self._new(new, owner, opening)

        def change(source: Conversation) -> Conversation:
            return edits.branch_of(source, fresh, at=at, opening=opening)

        return await self._insert(fresh, source=ref, change=change)

    async def update(self, ref: str, changes: Changes, *, owner: str = LOCAL_OWNER) -> Summary:
        check_text(None if isinstance(changes.title, msgspec.UnsetType) else changes.title)
        check_json([each for each in (changes.metadata, changes.summary) if each])
        return await super().update(ref, changes, owner=owner)

    async def capture(
        self, ref: str, opening: Opening, *, owner: str = LOCAL_OWNER
    ) -> Conversation | None:
        check_opening(opening)
        return await super().capture(ref, opening, owner=owner)

    async def choose_variant(
        self, ref: str, turn_id: str, *, owner: str = LOCAL_OWNER
    ) -> Conversation:
        if has_surrogates(turn_id):
            raise unkeepable()
        return await super().choose_variant(ref, turn_id, owner=owner)

    def _new(self, new: NewConversation, owner: str, opening: Opening | None) -> Conversation:
        check_new(new)
        check_opening(opening)
        return edits.new_conversation(new, key=new.id, owner=owner, now=self._clock())

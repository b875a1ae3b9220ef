"""The edits of a store, by one method that applies a function on values. Writes nothing itself."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Literal

from cllm.core.conversation import LOCAL_OWNER, StoredConversation, Summary
from cllm.core.ports import Changes, Clock, Opening, Tail
from cllm.stores import edits
from cllm.stores.views import build_summary

Change = Callable[[StoredConversation], StoredConversation]
ReadScope = int | Literal["head", "whole"]
"""What an edit reads: no turns, everything, or the turns from that message on without messages."""


class EditingStore(ABC):
    """Implements the edits of a store by its `_edit` and its clock."""

    _clock: Clock

    @abstractmethod
    async def load(
        self, ref: str, *, owner: str = LOCAL_OWNER, tail: Tail = None
    ) -> StoredConversation: ...

    @abstractmethod
    async def _edit(
        self, ref: str, owner: str, change: Change, *, reads: ReadScope
    ) -> StoredConversation:
        """Apply a change to a conversation without a running turn and save it atomically.

        `change` gets at least the turns of `reads`.
        """

    async def update(self, ref: str, changes: Changes, *, owner: str = LOCAL_OWNER) -> Summary:
        def change(conversation: StoredConversation) -> StoredConversation:
            return edits.with_changes(conversation, changes, now=self._clock())

        return build_summary(await self._edit(ref, owner, change, reads="head"))

    async def capture(
        self, ref: str, opening: Opening, *, owner: str = LOCAL_OWNER
    ) -> StoredConversation | None:
        def change(conversation: StoredConversation) -> StoredConversation:
            return edits.with_captured_prompt(conversation, opening)

        if not edits.is_old(await self.load(ref, owner=owner)):
            return None
        captured = await self._edit(ref, owner, change, reads="whole")
        return captured if captured.system_record == opening.system_record else None

    async def delete_from(
        self,
        ref: str,
        sequence: int,
        *,
        owner: str = LOCAL_OWNER,
        unchanged: StoredConversation | None = None,
    ) -> None:
        def change(conversation: StoredConversation) -> StoredConversation:
            if unchanged is not None:
                edits.check_unchanged(conversation, unchanged)
            return edits.truncate_from(conversation, sequence, now=self._clock())

        await self._edit(ref, owner, change, reads=sequence)

    async def choose_variant(
        self, ref: str, turn_id: str, *, owner: str = LOCAL_OWNER
    ) -> StoredConversation:
        def change(conversation: StoredConversation) -> StoredConversation:
            return edits.with_chosen_variant(conversation, turn_id, now=self._clock())

        return await self._edit(ref, owner, change, reads="whole")

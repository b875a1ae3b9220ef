"""Changes that a store makes to a whole conversation: read as a value, changed, and kept again.

A store that can do that (`_edit`, while no turn runs) has all of them from here. Never knows where
conversations are kept.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable

from cllm.core.conversation import LOCAL_OWNER, Conversation, Summary
from cllm.core.ports import Changes, Clock, Opening, Tail
from cllm.stores import edits
from cllm.stores.changes import with_changes
from cllm.stores.views import summary_of

Change = Callable[[Conversation], Conversation]


class EditingStore(ABC):
    """The changes, for a store that has a clock."""

    _clock: Clock

    @abstractmethod
    async def load(
        self, ref: str, *, owner: str = LOCAL_OWNER, tail: Tail = None
    ) -> Conversation: ...

    @abstractmethod
    async def _edit(self, ref: str, owner: str, change: Change) -> Conversation:
        """Change a conversation in which no turn runs, in one step that a crash cannot part."""

    async def update(self, ref: str, changes: Changes, *, owner: str = LOCAL_OWNER) -> Summary:
        def change(conversation: Conversation) -> Conversation:
            return with_changes(conversation, changes, now=self._clock())

        return summary_of(await self._edit(ref, owner, change))

    async def capture(
        self, ref: str, opening: Opening, *, owner: str = LOCAL_OWNER
    ) -> Conversation | None:
        if not edits.is_old(await self.load(ref, owner=owner)):
            return None
        captured = await self._edit(ref, owner, lambda found: edits.with_captured(found, opening))
        return captured if captured.system_record == opening.system_record else None

    async def delete_from(self, ref: str, sequence: int, *, owner: str = LOCAL_OWNER) -> None:
        def change(conversation: Conversation) -> Conversation:
            return edits.cut_from(conversation, sequence, now=self._clock())

        await self._edit(ref, owner, change)

    async def choose_variant(
        self, ref: str, turn_id: str, *, owner: str = LOCAL_OWNER
    ) -> Conversation:
        def change(conversation: Conversation) -> Conversation:
            return edits.with_variant(conversation, turn_id, now=self._clock())

        return await self._edit(ref, owner, change)

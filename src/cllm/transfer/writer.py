"""Writes conversations of other programs and stores into a store.

A conversation is added in one step, so that an interrupted import leaves no part of one. One that
exists is never overwritten: it gets the new messages of its source, unless it was changed here.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime

import msgspec

from cllm.core.conversation import LOCAL_OWNER, StoredConversation, Turn
from cllm.core.errors import CllmError, ConversationNotFoundError, StoreUnavailableError, UsageError
from cllm.core.message import Message
from cllm.core.ports import Changes, Clock, Store, TurnStart
from cllm.transfer.import_plan import (
    IMPORTED,
    count_shared,
    digest_messages,
    make_id,
    path_messages,
    plan_import,
)
from cllm.transfer.message_tree import ImportedConversation
from cllm.transfer.report import ImportReport
from cllm.wire.conversation_file.messages import compact_messages

CHANGED_HERE = "it was changed here since it was imported; delete it here to import it again"
CHANGED_IN_SOURCE = (
    "an earlier message of it changed in the source; delete it here to import it again"
)
TOO_DEEP = "it is nested too deeply"
DIFFERS = "another conversation with this ID exists"
NO_MESSAGES = "it has no messages"
replace = msgspec.structs.replace
MessagePaths = dict[Message, "MessagePaths"]
"""Messages, each with those that follow it."""


class ImportWriter:
    """Adds conversations to a store and counts them in `report`. `dry_run`: only counts."""

    def __init__(
        self,
        store: Store,
        report: ImportReport,
        *,
        clock: Clock,
        owner: str = LOCAL_OWNER,
        dry_run: bool = False,
    ) -> None:
        self.report = report
        self._store = store
        self._clock = clock
        self._owner = owner
        self._dry_run = dry_run
        self._ids: dict[str, str] = {}
        """IDs of added conversations that the store changed."""

    async def add(self, item: ImportedConversation | StoredConversation) -> None:
        """Add a conversation with its branches, or continue it. Reports what cannot be stored."""
        try:
            if isinstance(item, StoredConversation):
                await self._add_stored(item)
            else:
                await self._add_imported(item, now=self._clock())
        except StoreUnavailableError:
            raise
        except RecursionError:
            self.report.skip(TOO_DEEP, damaged=True, id=item.id, title=item.title)
        except CllmError as error:
            self.report.skip(str(error).rstrip("."), damaged=True, id=item.id, title=item.title)

    async def _add_imported(self, imported: ImportedConversation, *, now: datetime) -> None:
        planned = await plan_import(imported, self._find, now=now)
        if not planned:
            self.report.skip(NO_MESSAGES, id=imported.id, title=imported.title)
        for number, conversation in enumerate(planned):
            stored = await self._find(conversation.id)
            if stored is not None:
                await self._continue(stored, conversation)
                continue
            await self._store_new(conversation)
            is_branch = number > 0
            self.report.branches += is_branch
            self.report.imported += not is_branch
            self.report.messages += count_own_messages(conversation)

    async def _continue(self, stored: StoredConversation, planned: StoredConversation) -> None:
        """Append the new messages of the source to a conversation that was imported earlier."""
        earlier, messages = path_messages(stored.turns), path_messages(planned.turns)
        recorded = stored.metadata.get(IMPORTED)
        fields = recorded if isinstance(recorded, dict) else {}
        count, now = fields.get("messages"), planned.metadata[IMPORTED]["digest"]
        # Conversations of older versions have no digest.
        if count == len(messages) and fields.get("digest", now) == now:
            self.report.unchanged += 1
            return
        shared = count_shared(earlier, messages)
        turns = list(remaining_turns(planned.turns, len(earlier)))
        if not isinstance(count, int) or len(earlier) < count or shared < len(earlier):
            is_same = count == len(earlier) and fields.get("digest") == digest_messages(earlier)
            turns = replace_last_turn(stored, planned, shared) if is_same else []
            if not turns:
                reason = CHANGED_IN_SOURCE if is_same else CHANGED_HERE
                self.report.skip(reason, id=stored.id, title=stored.title)
                return
        if not self._dry_run:
            for turn in turns:
                await self._append(stored.id, turn)
            metadata = {**stored.metadata, IMPORTED: planned.metadata[IMPORTED]}
            await self._store.update(stored.id, Changes(metadata=metadata), owner=self._owner)
        self.report.continued += 1
        self.report.messages += len(messages) - shared

    async def _append(self, ref: str, turn: Turn) -> None:
        place = turn.place if turn.place != turn.id else None
        start = TurnStart(
            id=turn.id, messages=turn.asked, model=turn.model, place=place, visible=False
        )
        lease = await self._store.begin_turn(ref, start, owner=self._owner, tail=0)
        await self._store.finish_turn(lease, turn)

    async def _add_stored(self, conversation: StoredConversation) -> None:
        """Add a conversation of a store with its ID, unless one with this ID exists."""
        stored = await self._find(conversation.ref)
        if stored is None:
            await self._store_new(conversation)
            self.report.imported += 1
            self.report.messages += conversation.message_count
        elif is_same_content(stored, conversation) or has_turns(stored, conversation):
            self._remember_id(conversation, stored.id)
            self.report.unchanged += 1
        elif has_turns(conversation, stored) and len(conversation.variants) == len(stored.variants):
            self._remember_id(conversation, stored.id)
            await self._continue_stored(stored, conversation)
        else:
            self.report.skip(DIFFERS, id=conversation.ref, title=conversation.title)

    async def _continue_stored(
        self, stored: StoredConversation, conversation: StoredConversation
    ) -> None:
        """Append the turns that the conversation has in the other store since."""
        turns = conversation.turns[len(stored.turns) :]
        if not self._dry_run:
            for turn in turns:
                await self._append(stored.id, replace(turn, place=turn.id))
        self.report.continued += 1
        self.report.messages += len(path_messages(turns))

    async def _store_new(self, conversation: StoredConversation) -> None:
        if self._dry_run:
            return
        mapped = map_parent(conversation, self._ids)
        key = await self._store.add(mapped, owner=self._owner, preserve_times=True)
        self._remember_id(conversation, key)

    def _remember_id(self, conversation: StoredConversation, key: str) -> None:
        if key != conversation.id:
            self._ids[conversation.id] = key

    async def _find(self, ref: str) -> StoredConversation | None:
        try:
            return await self._store.load(ref, owner=self._owner)
        except ConversationNotFoundError:
            return None
        except UsageError:
            return None


def map_parent(conversation: StoredConversation, ids: dict[str, str]) -> StoredConversation:
    """Refer to the parent and the family by their IDs in the target."""
    parent, family = conversation.parent, conversation.family
    if parent is not None and parent.conversation in ids:
        parent = replace(parent, conversation=ids[parent.conversation])
    if family in ids:
        family = ids[family]
    return replace(conversation, parent=parent, family=family)


def is_same_content(one: StoredConversation, other: StoredConversation) -> bool:
    """Whether two conversations are equal, except for IDs, owner and spacing of the store."""
    return _comparable(one) == _comparable(other)


def has_turns(one: StoredConversation, other: StoredConversation) -> bool:
    """Whether a conversation starts with all turns of another, and has all of its variants."""
    one, other = compact_messages(one), compact_messages(other)
    count = len(other.turns)
    known = {turn.id for turn in one.variants}
    return (
        count > 0
        and one.turns[:count] == other.turns
        and all(variant.id in known for variant in other.variants)
    )


def _comparable(conversation: StoredConversation) -> StoredConversation:
    parent = conversation.parent
    return replace(
        compact_messages(conversation),
        id=conversation.ref,
        name=None,
        owner=LOCAL_OWNER,
        parent=None if parent is None else replace(parent, conversation=""),
        family=None,
    )


def count_own_messages(conversation: StoredConversation) -> int:
    """Count the messages that are not copies of messages of the parent or of another variant."""
    parent = conversation.parent
    copied = parent.sequence if parent is not None and parent.kind == "branch" else 0
    slots: dict[str, MessagePaths] = {}
    turns = (*conversation.turns, *conversation.variants)
    count = sum(_add_path(slots.setdefault(turn.place, {}), turn.messages) for turn in turns)
    return max(0, count - copied)


def _add_path(paths: MessagePaths, messages: Sequence[Message]) -> int:
    """Add messages to the paths of a slot, and return how many of them are new."""
    count = 0
    for message in messages:
        count += message not in paths
        paths = paths.setdefault(message, {})
    return count


def replace_last_turn(
    stored: StoredConversation, planned: StoredConversation, shared: int
) -> list[Turn]:
    """Return the turns if only the last stored turn is longer or different in the source.

    The source was read while the reply was written. The new turn is a variant of the stored one.
    """
    if not stored.turns or len(stored.turns) > len(planned.turns):
        return []
    last = stored.turns[-1]
    start = len(path_messages(stored.turns)) - len(last.messages)
    index = len(stored.turns) - 1
    if shared < start or len(path_messages(planned.turns[:index])) != start:
        return []
    turn = planned.turns[index]
    turn_id = make_id(turn.id, digest_messages(turn.messages))
    return [replace(turn, id=turn_id, place=last.place), *planned.turns[index + 1 :]]


def remaining_turns(turns: Sequence[Turn], count: int) -> Iterator[Turn]:
    """Yield the turns after `count` messages; a part of a turn becomes a turn of its own."""
    for turn in turns:
        messages: tuple[Message, ...] = turn.messages[count:] if count > 0 else turn.messages
        if not messages:
            count -= len(turn.messages)
            continue
        if len(messages) < len(turn.messages):
            turn_id = make_id(turn.id, str(count))
            yield replace(turn, id=turn_id, place=turn_id, messages=messages)
        else:
            yield turn
        count -= len(turn.messages)

"""Checks that conversations are complete: messages, turns, sequence numbers and path digests."""

from collections.abc import Callable, Iterator, Sequence

from msgspec.structs import replace

from cllm.core.conversation import (
    LOCAL_OWNER,
    StoredConversation,
    Summary,
    Turn,
)
from cllm.core.errors import (
    CllmError,
    ConversationNotFoundError,
    StoreError,
    StoreUnavailableError,
)
from cllm.core.ports import Store
from cllm.core.ports.snapshot import FileStore, Snapshot, SnapshotStore, StoredFile, TurnRow
from cllm.terminal import pluralize
from cllm.transfer.importers.cllm_files import decode_file
from cllm.transfer.json_stream import DamagedFileError
from cllm.transfer.store_reader import list_stores, list_summaries, load_all
from cllm.wire.conversation_file.codec import (
    decode_conversation,
    decode_summary,
    encode_conversation,
    find_edited_turns,
)
from cllm.wire.conversation_file.messages import compact_messages
from cllm.wire.path_digest import digest_turns


class StoreCheck:
    """Checks a store; `counts` are the conversations of each of its stores.

    `problems` has one line for each damaged one. A database is read at one moment, so that turns
    that run meanwhile are no problems.
    """

    def __init__(self, store: Store, *, on_item: Callable[[], object] = lambda: None) -> None:
        self._store = store
        self._on_item = on_item
        self.counts: list[int] = []
        self.messages = 0
        self.problems: list[str] = []

    @property
    def count(self) -> int:
        return sum(self.counts)

    async def run(self) -> None:
        for store in list_stores(self._store):
            self.counts.append(0)
            if isinstance(store, FileStore):
                await self._check_files(store)
            elif isinstance(store, SnapshotStore):
                await self._check_database(store)
            else:
                await self._check_conversations(store)

    async def _check_database(self, store: SnapshotStore) -> None:
        async with store.open_snapshot() as snapshot:
            faults = await snapshot.find_faults()
            self.problems += faults
            try:
                for owner, key in await snapshot.list_keys():
                    await self._check_rows(snapshot, owner, key)
            except StoreUnavailableError as error:
                if not faults:
                    raise
                self.problems.append(str(error))

    async def _check_rows(self, snapshot: Snapshot, owner: str, key: str) -> None:
        ref = key if owner == LOCAL_OWNER else f"{key} (owner {owner})"
        try:
            summary = await snapshot.summary(key, owner=owner)
            conversation = await snapshot.load(key, owner=owner)
            rows = await snapshot.list_turn_rows(key, owner=owner)
        except StoreError as error:
            if type(error) is StoreUnavailableError:
                raise
            self._add(ref, None, [str(error).rstrip(".")])
            return
        ref = summary.ref if owner == LOCAL_OWNER else ref
        reasons = [*find_problems(conversation, summary), *find_row_problems(conversation, rows)]
        self._add(ref, conversation, reasons)

    async def _check_files(self, store: FileStore) -> None:
        for key in sorted(await store.list_files()):
            try:
                file = await store.read_file(key)
                conversation, reasons = check_file(key, file)
            except ConversationNotFoundError:
                continue
            except StoreError as error:
                self._add(key, None, [str(error).rstrip(".")])
                continue
            self._add(key, conversation, reasons)

    async def _check_conversations(self, store: Store) -> None:
        for owner in await store.list_owners():
            summaries, notices = await list_summaries(store, owner=owner)
            self.counts[-1] += len(notices)
            self.problems += (notice.message for notice in notices)
            async for summary, loaded in load_all(store, summaries, owner=owner):
                if isinstance(loaded, StoredConversation):
                    self._add(summary.ref, loaded, list(find_problems(loaded, summary)))
                else:
                    self._add(summary.ref, None, [str(loaded).rstrip(".")])

    def _add(
        self, ref: str, conversation: StoredConversation | None, reasons: Sequence[str]
    ) -> None:
        self._on_item()
        self.counts[-1] += 1
        self.messages += 0 if conversation is None else conversation.message_count
        if reasons:
            self.problems.append(f"{ref}: {'; '.join(reasons)}.")


def check_file(key: str, file: StoredFile) -> tuple[StoredConversation, list[str]]:
    """Return the conversation of a file and its problems; BrokenConversationError."""
    at = file.modified_at
    decoded = decode_conversation(file.data, conversation_id=key, path=file.path, modified_at=at)
    summary = decode_summary(file.data, conversation_id=key, path=file.path, modified_at=at)
    conversation = decoded.conversation
    reasons = list(find_problems(conversation, summary))
    edited, added = find_edited_turns(file.data, conversation)
    reasons += (
        f"the messages of turn {turn_id} were changed or deleted by another program"
        for turn_id in edited
    )
    if added and not edited:
        reasons.append(f"{pluralize(added, 'message')} of another program belong to no turn")
    return conversation, reasons


def find_problems(conversation: StoredConversation, summary: Summary) -> Iterator[str]:
    """Yield what is wrong with a conversation that can be loaded."""
    count = conversation.message_count
    if summary.message_count != count:
        yield f"it has {count} messages instead of {summary.message_count}"
    if conversation.first_sequence != 1:
        loaded = count + 1 - conversation.first_sequence
        yield f"it has {loaded} messages instead of {count}"
    yield from _find_turn_problems(conversation.turns, conversation.variants)
    if any(not 1 <= pin <= count for pin in conversation.pins):
        yield "a pin refers to a message that does not exist"
    standing = conversation.summary
    if standing is not None and not 1 <= standing.through <= count:
        yield "its summary ends after its last message"
    parent = conversation.parent
    if parent is not None and (parent.conversation == conversation.id or parent.sequence < 0):
        yield "its parent is not a message of another conversation"
    try:
        copy = decode_file(encode_conversation(conversation))
    except (DamagedFileError, CllmError, ValueError) as error:
        yield f"a copy of it cannot be read ({error})"
        return
    if copy != replace(compact_messages(conversation), owner=LOCAL_OWNER, first_sequence=1):
        yield "a copy of it differs"


def _find_turn_problems(turns: Sequence[Turn], variants: Sequence[Turn]) -> Iterator[str]:
    ids = [turn.id for turn in (*turns, *variants)]
    if len(set(ids)) != len(ids):
        yield "two turns have the same ID"
    places = [turn.place for turn in turns]
    if len(set(places)) != len(places):
        yield "two turns of the default path are in the same slot"
    for turn in (*turns, *variants):
        if turn.ended_at is not None and turn.ended_at < turn.started_at:
            yield f"turn {turn.id} ends before it starts"
        if turn.state == "complete" and not turn.messages:
            yield f"turn {turn.id} is complete and has no messages"


def find_row_problems(conversation: StoredConversation, rows: Sequence[TurnRow]) -> Iterator[str]:
    """Yield what is wrong with the numbers and path digests of the rows of a conversation."""
    yield from _find_number_problems(rows)
    expected = digest_turns(conversation)
    on_path = sorted((row for row in rows if row.position is not None), key=_get_position)
    for row in (*on_path, *(row for row in rows if row.position is None)):
        stored = [message.digest for message in row.messages]
        pairs = zip(stored, expected.get(row.id, ()), strict=False)
        different = [number for number, (one, other) in enumerate(pairs, 1) if one != other]
        if different:
            yield (
                f"the path digest of message {different[0]} of turn {row.id} differs: the message "
                "or one before it was changed, or its turn was moved"
            )
            # All later digests contain this one.
            return


def _find_number_problems(rows: Sequence[TurnRow]) -> Iterator[str]:
    first = 1
    for row in sorted((row for row in rows if row.position is not None), key=_get_position):
        if row.first_sequence != first:
            yield f"turn {row.id} starts at message {row.first_sequence} instead of {first}"
        first += len(row.messages)
    for row in rows:
        if row.position is None and row.first_sequence is not None:
            yield f"turn {row.id} has a message number and is not on the default path"
        if [message.ordinal for message in row.messages] != list(range(len(row.messages))):
            yield f"the message numbers of turn {row.id} have a gap"


def _get_position(row: TurnRow) -> int:
    return row.position or 0

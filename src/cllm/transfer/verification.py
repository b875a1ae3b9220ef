"""Checks that conversations are complete: turns, sequence numbers, path digests, and a copy."""

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from cllm.core.conversation import LOCAL_OWNER, StoredConversation, Summary, Turn
from cllm.core.errors import CllmError
from cllm.core.ports import MAX_MATCHES, Store
from cllm.transfer.importers.cllm_files import decode_file
from cllm.transfer.json_stream import DamagedFileError
from cllm.transfer.store_reader import list_summaries, load_all
from cllm.wire.conversation_file.codec import encode_conversation
from cllm.wire.path_digest import trace_paths


class StoreCheck:
    """Checks a store; `count` is the number of conversations, `problems` one line for each."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.count = 0
        self.messages = 0
        self.problems: list[str] = []

    async def run(self) -> None:
        for owner in await self._store.list_owners():
            summaries, notices = await list_summaries(self._store, owner=owner)
            self.count += len(notices)
            self.problems += (notice.message for notice in notices)
            async for summary, loaded in load_all(self._store, summaries, owner=owner):
                self.count += 1
                if not isinstance(loaded, StoredConversation):
                    self.problems.append(f"{summary.ref}: {loaded}")
                    continue
                self.messages += loaded.message_count
                reasons = list(find_problems(loaded, summary))
                reasons = reasons or await self._check_path(loaded, owner)
                if reasons:
                    self.problems.append(f"{summary.ref}: {'; '.join(reasons)}.")

    async def _check_path(self, conversation: StoredConversation, owner: str) -> list[str]:
        """Check that the store finds the conversation by the digest of its last message."""
        turns = [turn for turn in conversation.turns if turn.is_history and turn.messages]
        if not turns or conversation.archived_at is not None:
            return []
        digest = trace_paths(conversation).digests[turns[-1].id][-1]
        matches = await self._store.find_paths(
            [digest],
            owner=owner,
            family=conversation.family_key,
            side=conversation.is_side,
        )
        is_found = any(match.conversation == conversation.id for match in matches)
        if is_found or len(matches) >= MAX_MATCHES:
            return []
        return ["the path digest of its last message differs"]


def find_problems(conversation: StoredConversation, summary: Summary) -> Iterator[str]:
    """Yield what is wrong with a conversation that can be loaded."""
    count = conversation.message_count
    if summary.message_count != count:
        yield f"it has {count} messages instead of {summary.message_count}"
    yield from _find_turn_problems(conversation.turns, conversation.variants)
    if any(not 1 <= pin <= count for pin in conversation.pins):
        yield "a pin refers to a message that does not exist"
    standing = conversation.summary
    if standing is not None and not 1 <= standing.through <= count:
        yield "its summary ends after its last message"
    try:
        copy = decode_file(encode_conversation(conversation))
    except (DamagedFileError, CllmError, ValueError) as error:
        yield f"a copy of it cannot be read ({error})"
        return
    if copy != replace(conversation, owner=LOCAL_OWNER):
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

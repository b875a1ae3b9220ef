"""Messages of loaded conversations that have a path digest, for stores without SQL."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

from cllm.core.conversation import ITEMS_SOURCE, StoredConversation, Turn
from cllm.core.ports import MAX_MATCHES, PathMatch
from cllm.wire.path_digest import meaning_of

TurnDigests = Mapping[str, Sequence[bytes]]


def is_searched(conversation: StoredConversation, family: str | None, *, side: bool) -> bool:
    """Whether `find_paths` with these options searches the conversation."""
    return (
        conversation.archived_at is None
        and conversation.is_side == side
        and family in (None, conversation.family_key)
        and (family is not None or conversation.source != ITEMS_SOURCE)
    )


def select_newest(
    conversations: Iterable[tuple[StoredConversation, TurnDigests]],
    digest: bytes,
    position: int,
    *,
    any_ids: bool,
) -> tuple[PathMatch, ...]:
    """Return the first MAX_MATCHES messages with the digest, of conversations newest first."""
    matches = (
        match
        for conversation, turn_digests in conversations
        for match in _match_messages(conversation, turn_digests, digest, position, any_ids=any_ids)
    )
    return tuple(islice(matches, MAX_MATCHES))


def _match_messages(
    conversation: StoredConversation,
    turn_digests: TurnDigests,
    digest: bytes,
    position: int,
    *,
    any_ids: bool,
) -> Iterator[PathMatch]:
    """Yield the messages with the digest, newest first."""
    count = conversation.message_count
    meaning = meaning_of(digest)
    for turn, last in _list_turns(conversation):
        digests = turn_digests.get(turn.id, ())
        for ordinal in reversed(range(len(digests))):
            found = digests[ordinal]
            if found == digest or (any_ids and meaning_of(found) == meaning):
                yield PathMatch(
                    conversation=conversation.id,
                    turn=turn.id,
                    ordinal=ordinal,
                    position=position,
                    sequence=None if last is None else last - len(turn.messages) + ordinal + 1,
                    message_count=count,
                    state=turn.state,
                )


def _list_turns(conversation: StoredConversation) -> Iterator[tuple[Turn, int | None]]:
    """Yield the turns, newest first, with the number of their last message; None off the path."""
    last = conversation.message_count
    for turn in reversed(conversation.turns):
        yield turn, last
        last -= len(turn.messages)
    for turn in reversed(conversation.variants):
        yield turn, None

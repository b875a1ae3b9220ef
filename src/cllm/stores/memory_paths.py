"""The path digests and families of conversations in memory."""

from collections.abc import Iterator

from cllm.core.conversation import StoredConversation
from cllm.stores.path_matches import TurnDigests
from cllm.wire.path_digest import digest_turns, meaning_of

ConversationKey = tuple[str, str]
"""The owner and the ID."""


class TrackedConversations(dict[ConversationKey, StoredConversation]):
    """Conversations, and the keys of those that changed since their digests were computed."""

    def __init__(self) -> None:
        super().__init__()
        self.changed: set[ConversationKey] = set()

    def __setitem__(self, key: ConversationKey, conversation: StoredConversation) -> None:
        super().__setitem__(key, conversation)
        self.changed.add(key)

    def __delitem__(self, key: ConversationKey) -> None:
        super().__delitem__(key)
        self.changed.add(key)


class MemoryPathIndex:
    """Finds conversations by a digest or a family. A lookup first reads what changed."""

    def __init__(self, conversations: TrackedConversations) -> None:
        self._conversations = conversations
        self._digests: dict[ConversationKey, TurnDigests] = {}
        self._groups: dict[ConversationKey, list[tuple[str, str | bytes]]] = {}
        self._members: dict[tuple[str, str | bytes], set[ConversationKey]] = {}

    def find_family(self, family: str, *, owner: str) -> list[StoredConversation]:
        """Return the conversations of a family, newest first."""
        return [self._conversations[key] for key in self._find((owner, family))]

    def find_digest(
        self, digest: bytes, *, owner: str
    ) -> Iterator[tuple[StoredConversation, TurnDigests]]:
        """Yield the conversations that have the digest, with any call IDs, newest first."""
        for key in self._find((owner, meaning_of(digest))):
            yield self._conversations[key], self._digests[key]

    def _find(self, group: tuple[str, str | bytes]) -> list[ConversationKey]:
        while self._conversations.changed:
            self._update(self._conversations.changed.pop())
        keys = sorted(self._members.get(group, ()))
        keys.sort(key=lambda key: self._conversations[key].updated_at, reverse=True)
        return keys

    def _update(self, key: ConversationKey) -> None:
        for group in self._groups.pop(key, ()):
            members = self._members[group]
            members.discard(key)
            if not members:
                del self._members[group]
        self._digests.pop(key, None)
        conversation = self._conversations.get(key)
        if conversation is None:
            return
        digests = self._digests[key] = digest_turns(conversation)
        owner = conversation.owner
        meanings = {meaning_of(digest) for turn in digests.values() for digest in turn}
        self._groups[key] = [(owner, conversation.family_key)]
        self._groups[key] += [(owner, meaning) for meaning in meanings]
        for group in self._groups[key]:
            self._members.setdefault(group, set()).add(key)

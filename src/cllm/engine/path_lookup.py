"""Finds the stored messages that a client's whole history contains, by their path digests."""

from collections.abc import Iterator, Sequence
from itertools import islice

from msgspec.structs import replace

from cllm.core.conversation import StoredConversation
from cllm.core.errors import ConversationNotFoundError
from cllm.core.message import Message
from cllm.core.ports import PathMatch, Store
from cllm.wire.path_digest import (
    ROOT,
    MessageContent,
    digest_contents,
    find_injected,
    meaning_of,
)

MAX_LOOKUPS = 10
MAX_ANCESTORS = 100
FIRST_LOOKUPS = 8


class PathLookup:
    """The digests of a request's messages, and lookups of them in the store.

    `last_reply`: the index of the last reply, or -1.
    """

    def __init__(
        self,
        store: Store,
        messages: Sequence[Message],
        contents: Sequence[MessageContent],
        *,
        owner: str,
    ) -> None:
        self._store = store
        self._messages = messages
        self._contents = contents
        self._owner = owner
        self.digests = digest_contents(contents)
        self.last_reply = self._find_last_reply()

    def _find_last_reply(self) -> int:
        """Return the index of the last reply, or -1; a reply that a client added does not count."""
        before = [ROOT, *self.digests]
        replies = [
            index
            for index, one in enumerate(self._messages)
            if one.role == "assistant" and before[index] != before[index + 1]
        ]
        return replies[-1] if replies else -1

    async def find(
        self,
        *,
        family: str | None = None,
        any_ids: bool = False,
        side: bool = False,
        before: int | None = None,
        splits: bool = False,
    ) -> tuple[PathMatch, ...]:
        """Return the longest matches; `position` is the index of the last matching message."""
        stop = len(self.digests) if before is None else before
        lookups = self._list_lookups(stop, splits=splits)
        # Most histories match at their end.
        while batch := list(islice(lookups, FIRST_LOOKUPS)):
            if batch[0][1] < stop - 1:
                batch += lookups
            matches = await self._store.find_paths(
                [digest for digest, _ in batch],
                owner=self._owner,
                family=family,
                side=side,
                any_ids=any_ids,
            )
            if matches:
                position = self._skip_injected(batch[matches[0].position][1])
                return tuple(replace(one, position=position) for one in matches)
        return ()

    def _skip_injected(self, index: int) -> int:
        """Return the index of the last message up to this one that a client did not add itself.

        The messages that it added after the last stored one are new.
        """
        injected = find_injected(self._contents)
        while index in injected and index > 0:
            index -= 1
        return index

    def _list_lookups(self, stop: int, *, splits: bool) -> Iterator[tuple[bytes, int]]:
        """Yield the digests before `stop`, longest first, with the index of their last message.

        `splits`: also after each text of the messages after the last reply. A client that joins
        the messages after a cancelled reply sends the first of them as a part of a message.
        """
        # A message without content has the digest of the path before it.
        starts = (n for n, one in enumerate(self.digests) if one != ROOT)
        first = next(starts, len(self.digests))
        for index in range(stop - 1, first - 1, -1):
            yield self.digests[index], index
            tokens = self._contents[index].tokens
            if not splits or index <= self.last_reply or len(tokens) == 1:
                continue
            start = self.digests[index - 1] if index else ROOT
            parts = digest_contents([MessageContent((token,)) for token in tokens[:-1]], start)
            yield from ((digest, index - 1) for digest in reversed(parts))

    async def has_family(self, family: str) -> bool:
        return bool(await self._store.list_family(family, owner=self._owner, limit=1))

    async def find_in_family(
        self, family: str, *, side: bool = False, before: int | None = None
    ) -> tuple[PathMatch, ...]:
        """Return the longest matches in a family; a client can change the IDs of tool calls.

        If the first call has the ID of the stored one, all IDs must be equal: a repeated request
        can have the same calls again.
        """
        calls = [index for index, content in enumerate(self._contents) if content.calls]
        exact = await self.find(family=family, side=side, before=before, splits=True)
        if not calls or (exact and exact[0].position >= calls[0]):
            return exact
        return await self.find(family=family, any_ids=True, side=side, before=before, splits=True)

    async def find_descendant(self, head: StoredConversation) -> PathMatch | None:
        """Return the longest match in the conversation or in a branch of it."""
        before: int | None = None
        for _ in range(MAX_LOOKUPS):
            matches = await self.find_in_family(head.family_key, side=head.is_side, before=before)
            if not matches:
                return None
            own = [one for one in matches if await self._is_descendant(one.conversation, head)]
            if own:
                return choose_match(own)
            before = matches[0].position
        return None

    async def _is_descendant(self, conversation: str, ancestor: StoredConversation) -> bool:
        if conversation == ancestor.id or ancestor.parent is None:
            return True
        current: str | None = conversation
        for _ in range(MAX_ANCESTORS):
            if current is None or current == ancestor.id:
                break
            try:
                head = await self._store.load(current, owner=self._owner, tail=0)
            except ConversationNotFoundError:
                return False
            current = None if head.parent is None else head.parent.conversation
        return current == ancestor.id

    async def find_unique(self, *, before: int | None = None) -> PathMatch | None:
        """Return the match of a history without a session, unless several are possible."""
        matches = await self.find(before=before)
        if not matches or not (before or self.covers_replies(matches[0])):
            return None
        return await self.choose_unique(matches)

    async def choose_unique(self, matches: Sequence[PathMatch]) -> PathMatch | None:
        """Return a match if all are in one family."""
        families = {one.conversation for one in matches}
        if len(families) > 1:
            heads = [await self._store.load(one, owner=self._owner, tail=0) for one in families]
            families = {head.family_key for head in heads}
        return choose_match(matches) if len(families) == 1 else None

    def covers_replies(self, match: PathMatch) -> bool:
        """Whether all replies in the request are in the match."""
        return match.position >= self.last_reply

    def index_after(self, digest: bytes) -> int:
        """Return the index of the first message after the path with this digest."""
        meaning = meaning_of(digest)
        indexes = [n for n, one in enumerate(self.digests) if meaning_of(one) == meaning]
        return indexes[-1] + 1 if indexes else 0


def choose_match(matches: Sequence[PathMatch]) -> PathMatch:
    """Return the match at the end of a conversation, else the newest on a default path."""
    ends = [one for one in matches if one.sequence == one.message_count]
    on_path = [one for one in matches if one.sequence is not None]
    return (ends or on_path or list(matches))[0]

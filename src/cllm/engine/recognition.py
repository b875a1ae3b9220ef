"""Finds where a request that contains its whole history belongs.

The messages that are stored already are recognised by their path digests. The new ones continue
the conversation, become a variant of its last turn, or start a branch or another conversation.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from cllm.core.conversation import HISTORY_STATES, ITEMS_SOURCE, Branch
from cllm.core.errors import ConversationNotFoundError, HistoryDivergedError
from cllm.core.message import Message
from cllm.core.ports import NewConversation, NewId, PathMatch, Store
from cllm.engine.compactions import find_compaction
from cllm.engine.matched_turn import MatchedTurn
from cllm.engine.path_lookup import MAX_LOOKUPS, PathLookup, choose_match
from cllm.engine.placement import BranchPoint, CutReply, Placement, new_placement
from cllm.engine.request import ClientHistory
from cllm.wire.convert import has_user_input
from cllm.wire.path_digest import MessageContent, is_cut_short

MAX_REPEATS = 10
MAX_FAILED = 10
"""Messages of failed turns after a request that can be repeated."""


class HistorySearch:
    """Finds the conversation of a request; `messages` are without its system messages.

    Changes nothing in the store.
    """

    def __init__(
        self,
        store: Store,
        messages: Sequence[Message],
        contents: Sequence[MessageContent],
        history: ClientHistory,
        *,
        owner: str,
        new_id: NewId,
    ) -> None:
        self._store = store
        self._messages = tuple(messages)
        self._lookup = PathLookup(store, self._messages, contents, owner=owner)
        self._history = history
        self._owner = owner
        self._new_id = new_id

    async def place(self, create: NewConversation | None) -> Placement:
        """Return where the request is stored.

        `create`: the conversation to create if there is none with the ID or name in the history.
        """
        history = self._history
        if history.conversation is not None:
            return await self._place_in_conversation(history.conversation, create)
        if history.side is not None:
            return await self._place_side_request()
        if history.family is not None:
            return await self._place_in_session(history.family)
        return await self._place_by_messages()

    async def _place_in_conversation(self, ref: str, create: NewConversation | None) -> Placement:
        try:
            head = await self._store.load(ref, owner=self._owner, tail=0)
        except ConversationNotFoundError:
            if create is None:
                raise
            return Placement(ref=create.id, messages=self._messages, create=create)
        if head.archived_at is not None:
            raise ConversationNotFoundError(ref)
        match = await self._lookup.find_descendant(head)
        if match is not None:
            return self._check_strict(await self._place_after(match), head.id)
        if head.message_count == 0:
            return Placement(ref=head.id, messages=self._messages, message_count=0)
        return self._check_strict(await self._place_at_root(head.id, head.family_key), head.id)

    async def _place_in_session(self, family: str) -> Placement:
        # The first request of a session: a lookup of its messages would find other sessions.
        is_known = self._lookup.last_reply >= 0 or await self._lookup.has_family(family)
        matches = await self._lookup.find_in_family(family) if is_known else ()
        if matches:
            return await self._place_after(choose_match(matches))
        known = await self._store.list_family(family, owner=self._owner)
        newest = next((one for one in known if not one.is_side), None)
        if newest is not None:
            return await self._place_at_root(newest.id, family)
        # The same first message alone is no sign of a fork.
        fork = await self._lookup.find_unique() if self._lookup.last_reply >= 0 else None
        return self._start_new() if fork is None else await self._fork(fork)

    async def _place_by_messages(self) -> Placement:
        match = await self._find_by_item()
        if match is None and self._lookup.last_reply < 0:
            match = await self._find_first_request()
        elif match is None:
            match = await self._lookup.find_unique()
        if match is not None:
            return await self._place_after(match)
        continued = await self._place_after_compaction(self._messages, None)
        return continued or await self._place_after_cut_reply() or self._start_new()

    async def _find_by_item(self) -> PathMatch | None:
        """Return the match in the conversation of an item: others can have the same messages.

        A conversation whose client adds the messages itself is never continued.
        """
        ref = self._history.item_conversation
        if ref is None:
            return None
        try:
            head = await self._store.load(ref, owner=self._owner, tail=0)
        except ConversationNotFoundError:
            return None
        if head.archived_at is not None or head.source == ITEMS_SOURCE:
            return None
        return await self._lookup.find_descendant(head)

    async def _find_first_request(self) -> PathMatch | None:
        """Return the match if this repeats the only request of a conversation.

        Other conversations can have the same first message: several are possible, unless one
        request failed. A request that is repeated often is no retry: each starts a conversation.
        """
        found = await self._lookup.find()
        matches = [
            one
            for one in found
            if one.sequence is not None
            and one.message_count - one.sequence <= 1 + MAX_FAILED
            and one.position == len(self._messages) - 1
        ]
        if len(found) > MAX_REPEATS:
            return None
        same = [one for one in matches[:MAX_LOOKUPS] if await self._is_repeated(one)]
        failed = [one for one in same if one.state == "failed"]
        if failed:
            return failed[0]
        return same[0] if len(same) == 1 else None

    async def _is_repeated(self, match: PathMatch) -> bool:
        """Whether the match is the last request with a reply, of the same client and protocol."""
        conversation = await self._store.load(match.conversation, owner=self._owner)
        matched = MatchedTurn.find(conversation, match)
        return (
            matched is not None
            and len(matched.turn.messages) - match.ordinal <= 2  # noqa: PLR2004 - and its reply
            and all(turn.state == "failed" for turn in matched.later)
            and conversation.source == self._history.source
            and matched.turn.messages[match.ordinal].dialect == self._messages[-1].dialect
        )

    async def _place_after_cut_reply(self) -> Placement | None:
        """Return the placement of a request whose last reply is the beginning of the stored one."""
        if self._lookup.last_reply < 1:
            return None
        match = await self._lookup.find_unique(before=self._lookup.last_reply)
        if match is None or match.position != self._lookup.last_reply - 1:
            return None
        placement = await self._place_after(match)
        return placement if placement.cut_reply is not None else None

    async def _place_side_request(self) -> Placement:
        """Continue a side conversation of the same kind, or start one."""
        history = self._history
        matches = await self._lookup.find(
            family=history.family, any_ids=history.family is not None, side=True
        )
        match = await self._lookup.choose_unique(matches)
        if match is not None and self._lookup.covers_replies(match):
            head = await self._store.load(match.conversation, owner=self._owner, tail=0)
            if head.source == history.source:
                return await self._place_after(match)
            return self._start_side_after(match)
        is_agent = history.family is not None and history.parent_family is not None
        continued = None
        if is_agent:
            continued = await self._place_after_compaction(self._messages, history.family)
        return continued or await self._start_side()

    async def _place_after(self, match: PathMatch) -> Placement:
        rest = self._messages[match.position + 1 :]
        is_end = match.sequence == match.message_count and match.state in HISTORY_STATES
        if is_end and rest:
            return Placement(
                ref=match.conversation,
                messages=rest,
                recognised=match.position + 1,
                message_count=match.message_count,
                branch_if_busy=BranchPoint(conversation=match.conversation, at=match.message_count),
            )
        conversation = await self._store.load(match.conversation, owner=self._owner)
        matched = MatchedTurn.find(conversation, match)
        if matched is None:
            return await self._place_at_root(conversation.id, conversation.family_key)
        continued = await self._place_after_compaction(rest, conversation.family_key)
        if continued is not None:
            return continued
        if matched.is_whole:
            return self._continue_after_turn(matched, match, rest)
        return self._replace_turn(matched, match, rest)

    def _continue_after_turn(
        self, matched: MatchedTurn, match: PathMatch, rest: tuple[Message, ...]
    ) -> Placement:
        placement = Placement(
            ref=match.conversation,
            messages=rest,
            recognised=match.position + 1,
            message_count=match.message_count,
            branch_if_busy=BranchPoint(
                conversation=match.conversation,
                at=matched.messages_before + len(matched.turn.messages),
                path=matched.path,
            ),
        )
        if matched.is_slot and not matched.later:
            chosen = None if matched.is_on_path else matched.turn.id
            return replace(placement, chosen_variant=chosen)
        if matched.is_on_path and not matched.has_later_input(1):
            return replace(placement, place=matched.later[0].place, message_count=None)
        return self._branch(matched, matched.messages_before + len(matched.turn.messages), rest)

    def _replace_turn(
        self, matched: MatchedTurn, match: PathMatch, rest: tuple[Message, ...]
    ) -> Placement:
        """Return a variant of the turn whose first messages match, or a branch."""
        turn = matched.turn
        first = self._lookup.index_after(matched.start)
        own = self._messages[first:]
        dropped = turn.messages[match.ordinal + 1 :]
        is_cut = len(rest) > 1 and len(dropped) == 1 and _is_cut(rest[0], dropped[0])
        # Without a session, only a reply shows that the history is the same.
        if rest and not self._history.has_key and self._lookup.last_reply < 0:
            return self._start_new()
        if has_user_input(dropped[1:]):
            return self._branch(matched, matched.messages_before + match.ordinal + 1, rest)
        if not matched.is_slot or matched.has_later_input():
            return self._branch(matched, matched.messages_before, own)
        if is_cut:
            stop = match.position + 2
            cut = CutReply(place=turn.place, messages=self._messages[first:stop])
            return Placement(
                ref=match.conversation, messages=rest[1:], recognised=stop, cut_reply=cut
            )
        return Placement(ref=match.conversation, messages=own, recognised=first, place=turn.place)

    def _branch(self, matched: MatchedTurn, at: int, messages: tuple[Message, ...]) -> Placement:
        conversation = matched.conversation
        if at == 0:
            return self._start_branch_at_root(conversation.id, conversation.family_key)
        created = new_placement(
            messages, self._history, self._new_id(), family=conversation.family_key
        )
        point = BranchPoint(conversation=conversation.id, at=at, path=matched.path)
        recognised = len(self._messages) - len(messages)
        return replace(created, branch=point, recognised=recognised)

    async def _fork(self, match: PathMatch) -> Placement:
        """Return a branch for another session of a client that has the same history."""
        conversation = await self._store.load(match.conversation, owner=self._owner)
        matched = MatchedTurn.find(conversation, match)
        if matched is None:
            return self._start_new()
        at, first = matched.messages_before + match.ordinal + 1, match.position + 1
        if matched.is_whole:
            at = matched.messages_before + len(matched.turn.messages)
        if not matched.turn.is_history or first == len(self._messages):
            at, first = matched.messages_before, self._lookup.index_after(matched.start)
        if at == 0:
            return self._start_new()
        created = new_placement(self._messages[first:], self._history, self._new_id())
        point = BranchPoint(conversation=conversation.id, at=at, path=matched.path)
        return replace(created, branch=point, recognised=first)

    async def _place_at_root(self, conversation: str, family: str) -> Placement:
        continued = await self._place_after_compaction(self._messages, family)
        return (
            continued
            or await self._replace_only_turn(conversation)
            or self._start_branch_at_root(conversation, family)
        )

    async def _replace_only_turn(self, conversation: str) -> Placement | None:
        """Return a variant of the only turn of a conversation for a request without replies."""
        if self._lookup.last_reply >= 0:
            return None
        stored = await self._store.load(conversation, owner=self._owner)
        replied = [turn for turn in stored.turns if turn.state != "failed"]
        if stored.path_start is not None or replied[1:] or not stored.turns:
            return None
        turn = replied[0] if replied else stored.turns[0]
        return Placement(ref=stored.id, messages=self._messages, place=turn.place)

    def _start_branch_at_root(self, conversation: str, family: str) -> Placement:
        parent = Branch(conversation=conversation, sequence=0)
        return new_placement(
            self._messages, self._history, self._new_id(), parent=parent, family=family
        )

    def _start_new(self) -> Placement:
        return new_placement(self._messages, self._history, self._new_id())

    async def _place_after_compaction(
        self, messages: Sequence[Message], family: str | None
    ) -> Placement | None:
        """Return a conversation if the new messages contain the summary of a compaction."""
        compaction = await find_compaction(
            self._store, messages, self._history, family=family, owner=self._owner
        )
        if compaction is None:
            return None
        return new_placement(
            self._messages,
            self._history,
            self._new_id(),
            parent=compaction.parent,
            family=compaction.family,
        )

    async def _start_side(self) -> Placement:
        history = self._history
        if history.parent_family is not None:
            return await self._start_side_of(history.parent_family)
        matches = await self._lookup.find(family=history.family, any_ids=history.family is not None)
        match = await self._lookup.choose_unique(matches)
        if match is not None:
            return self._start_side_after(match)
        return self._start_new() if matches else await self._start_side_of(history.family)

    def _start_side_after(self, match: PathMatch) -> Placement:
        """Return a side conversation with the messages that its parent does not have."""
        shared = min(match.position, len(self._messages) - 2)
        sequence = match.sequence or 0
        if shared < 0:
            sequence = 0
        elif self._lookup.digests[shared] != self._lookup.digests[match.position]:
            sequence = max(sequence - 1, 0)
        return new_placement(
            self._messages[shared + 1 :],
            self._history,
            self._new_id(),
            parent=Branch(conversation=match.conversation, sequence=sequence, kind="side"),
            path_start=self._lookup.digests[shared] if shared >= 0 else None,
            recognised=shared + 1,
        )

    async def _start_side_of(self, family: str | None) -> Placement:
        """Return a side conversation of the newest conversation of a session, if any."""
        if family is None:
            return self._start_new()
        known = await self._store.list_family(family, owner=self._owner)
        main = next((one for one in known if not one.is_side), None)
        parent = None
        if main is not None:
            parent = Branch(conversation=main.id, sequence=main.message_count, kind="side")
        return new_placement(self._messages, self._history, self._new_id(), parent=parent)

    def _check_strict(self, placement: Placement, conversation: str) -> Placement:
        if self._history.strict and placement.diverged_from is not None:
            raise HistoryDivergedError(conversation, index=placement.recognised)
        return placement


def _is_cut(message: Message, reply: Message) -> bool:
    return message.role == "assistant" and is_cut_short(message, reply)

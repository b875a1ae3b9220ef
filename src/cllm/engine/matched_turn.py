"""A stored turn that has messages of a request."""

from collections.abc import Sequence

import msgspec

from cllm.core.conversation import StoredConversation, Turn
from cllm.core.message import Message
from cllm.core.ports import PathMatch
from cllm.wire.convert import is_plain_user
from cllm.wire.errors import MalformedError
from cllm.wire.path_digest import path_start_of, trace_paths


class MatchedTurn(msgspec.Struct, frozen=True, kw_only=True):
    """The turn of a match in its conversation.

    `start` is the digest before the turn, `messages_before` counts the messages before it, `later`
    are the following turns on the default path. `is_slot`: its slot is on the default path.
    `is_whole`: the match is the last message of a turn with a reply.
    """

    conversation: StoredConversation
    turn: Turn
    start: bytes
    messages_before: int
    later: tuple[Turn, ...]
    is_on_path: bool
    is_slot: bool
    is_whole: bool
    path: tuple[str, ...]

    @classmethod
    def find(cls, conversation: StoredConversation, match: PathMatch) -> "MatchedTurn | None":
        """Return None if the stored turn has changed."""
        turns = {turn.id: turn for turn in conversation.turns + conversation.variants}
        turn = turns.get(match.turn)
        if turn is None or match.ordinal >= len(turn.messages):
            return None
        paths = trace_paths(conversation)
        *before, _ = paths.path_to(turn.id)
        default = [each.id for each in conversation.turns]
        is_on_path = turn.id in default
        slots = [each.place for each in conversation.turns]
        is_slot = turn.place in slots
        own = paths.digests[turn.id]
        return cls(
            conversation=conversation,
            turn=turn,
            start=paths.digests[before[-1]][-1] if before else path_start_of(conversation),
            messages_before=sum(len(turns[each].messages) for each in before),
            later=conversation.turns[slots.index(turn.place) + 1 :] if is_slot else (),
            is_on_path=is_on_path,
            is_slot=is_slot,
            is_whole=turn.is_history and own[match.ordinal] == own[-1],
            path=(*before, turn.id),
        )

    def has_later_input(self, start: int = 0) -> bool:
        """Whether a user wrote a message of the following turns from that index on."""
        turns = [turn for turn in self.later[start:] if turn.state != "failed"]
        return have_user_input([one for turn in turns for one in turn.messages])


def have_user_input(messages: Sequence[Message]) -> bool:
    """Whether a user wrote one of the messages; an unreadable one counts."""
    try:
        return any(map(is_plain_user, messages))
    except MalformedError:
        return True

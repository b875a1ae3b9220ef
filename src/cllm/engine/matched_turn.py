"""The stored turn that contains the last recognised message."""

import msgspec

from cllm.core.conversation import StoredConversation, Turn
from cllm.core.ports import PathMatch
from cllm.wire.convert import has_user_input
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
        """Whether `later[start:]` contains a message that a user wrote."""
        turns = [turn for turn in self.later[start:] if turn.state != "failed"]
        return has_user_input([one for turn in turns for one in turn.messages])

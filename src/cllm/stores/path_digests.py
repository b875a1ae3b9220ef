"""The path digests of a conversation's turns, for every store."""

from cllm.core.conversation import StoredConversation
from cllm.history.path_digest import ROOT, digest_path


def digest_turns(conversation: StoredConversation) -> dict[str, list[bytes]]:
    """Return the digests of the messages of each turn, by its ID.

    The conversation is loaded from its start. A failed turn has digests and is not part of the path
    of later turns. A turn off the default path whose slot is not on it has none.
    """
    digests: dict[str, list[bytes]] = {}
    slot_starts: dict[str, bytes] = {}
    before = ROOT if conversation.path_start is None else conversation.path_start
    for turn in conversation.turns:
        slot_starts[turn.place] = before
        digests[turn.id] = digest_path(turn.messages, before)
        if turn.is_history and digests[turn.id]:
            before = digests[turn.id][-1]
    for turn in conversation.variants:
        if turn.place in slot_starts:
            digests[turn.id] = digest_path(turn.messages, slot_starts[turn.place])
    return digests

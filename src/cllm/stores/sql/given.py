"""What an operation is given to keep: checked before anything is asked of a database. Pure."""

from cllm.core.conversation import Conversation
from cllm.core.identity import check_id
from cllm.core.ports import NewConversation, Opening
from cllm.stores.sql.keepable import check_json, check_messages, check_text


def check_opening(opening: Opening | None) -> None:
    """UsageError if it has text that no database keeps."""
    if opening is not None:
        check_messages(() if opening.system is None else (opening.system,))
        check_json(opening.system_record, opening.context_record)


def check_new(new: NewConversation) -> None:
    """UsageError if it is under a name that cannot be, or has text that no database keeps."""
    for ref in {new.id, new.name or new.id}:
        check_id(ref)
    check_text(new.title, new.model)
    check_json(new.metadata)


def check_whole(conversation: Conversation) -> None:
    """UsageError if a conversation with its turns has text that no database keeps."""
    for ref in {conversation.id, conversation.name or conversation.id}:
        check_id(ref)
    system = conversation.system
    check_text(conversation.title, conversation.model)
    check_json(conversation.metadata, conversation.summary)
    check_json(conversation.system_record, conversation.context_record)
    check_messages(() if system is None else (system,))
    for turn in (*conversation.turns, *conversation.variants):
        check_text(turn.id, turn.place, turn.model, turn.provider)
        check_messages(turn.messages)

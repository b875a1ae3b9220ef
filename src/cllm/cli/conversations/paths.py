"""Names of paths: a conversation, or one of its variants such as `cats@3.1`."""

import re

import msgspec

from cllm.core.conversation import StoredConversation
from cllm.core.errors import UsageError
from cllm.core.message import Message
from cllm.core.ports import Store
from cllm.engine.conversation_tree import number_variants

VARIANT = re.compile(r"(?P<ref>.+)@(?P<first>\d{1,9})\.(?P<number>\d{1,9})")


class MessagePath(msgspec.Struct, frozen=True, kw_only=True):
    """The messages of a conversation from its first one to the end of a variant, or all."""

    label: str
    conversation: StoredConversation
    messages: tuple[Message, ...]


async def load_path(store: Store, name: str) -> MessagePath:
    """Load a conversation, or a variant with the messages before it. Raises UsageError."""
    match = VARIANT.fullmatch(name)
    conversation = await store.load(match["ref"] if match else name)
    messages = tuple(message for _, _, message in conversation.numbered_messages())
    if match is None:
        return MessagePath(label=conversation.ref, conversation=conversation, messages=messages)
    key = int(match["first"]), int(match["number"])
    turn = number_variants(conversation).get(key)
    if turn is None:
        raise UsageError(
            f"Conversation '{conversation.ref}' has no variant {key[0]}.{key[1]}; list them with: "
            f"cllm conversations tree {conversation.ref}"
        )
    before = messages[: key[0] - conversation.first_sequence]
    return MessagePath(label=name, conversation=conversation, messages=before + turn.messages)

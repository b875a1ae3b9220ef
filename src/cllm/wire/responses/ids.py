"""The ids of conversations, responses and items in OpenAI's format.

The id of a conversation is `conv_` and the digits of its UUID. The id of a response has the ids of
its conversation and turn, so that no index is needed. The id of an item has those of its response,
and its number among those of its kind, or `i` and its index in the input. An item of a provider
with the same API has its index, and the provider's id at the end: the provider needs it back.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any
from uuid import UUID

import msgspec

from cllm.core.message import Message

CONVERSATION_PREFIX = "conv_"
RESPONSE_PREFIX = "resp_"
# For the reasoning of other models, which OpenAI does not accept back.
GENERATED_REASONING = "rs_cllm"
HEX = r"([0-9a-f]{32})"
CONVERSATION_ID = re.compile(rf"conv_{HEX}", re.ASCII)
RESPONSE_ID = re.compile(rf"resp_{HEX}{HEX}", re.ASCII)
ITEM_ID = re.compile(
    rf"[a-z]+(?:_[a-z]+)*_{HEX}{HEX}_(i?)([0-9]{{1,9}})(?:_([\x21-\x7e]+))?", re.ASCII
)
ISSUED_ID = re.compile(rb'"id":\s*"[a-z_]+_[0-9a-f]{64}_')
"""In the JSON of an item: most items have no such id and need no decoding."""
PREFIX = re.compile(r"[a-z]+(?:_[a-z]+)*(?=_)", re.ASCII)
UUID_HEX = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}", re.ASCII)


class ResponseKey(msgspec.Struct, frozen=True, kw_only=True):
    """The IDs of a response's conversation and turn."""

    conversation: str
    turn: str


class ItemKey(msgspec.Struct, frozen=True, kw_only=True):
    response: ResponseKey
    index: int
    is_input: bool


def make_conversation_id(conversation: str) -> str:
    """Return the id in OpenAI's format; the ID of a file stays."""
    if UUID_HEX.fullmatch(conversation) is None:
        return conversation
    return f"{CONVERSATION_PREFIX}{conversation}".replace("-", "")


def read_conversation_id(conversation_id: str) -> str | None:
    """Return the UUID; None if the id is not in OpenAI's format."""
    match = CONVERSATION_ID.fullmatch(conversation_id)
    return None if match is None else str(UUID(match[1]))


def make_response_id(conversation: str, turn: str) -> str | None:
    """Return the id of a response; None if an ID is not a UUID, as those of files."""
    if UUID_HEX.fullmatch(conversation) is None or UUID_HEX.fullmatch(turn) is None:
        return None
    return f"{RESPONSE_PREFIX}{conversation}{turn}".replace("-", "")


def read_response_id(response_id: str) -> ResponseKey | None:
    match = RESPONSE_ID.fullmatch(response_id)
    return None if match is None else _key(match[1], match[2])


def make_item_id(prefix: str, response_id: str, index: int | str, *, is_input: bool = False) -> str:
    kind = "i" if is_input else ""
    return f"{prefix}_{response_id.removeprefix(RESPONSE_PREFIX)}_{kind}{index}"


def make_relayed_id(provider_id: str, response_id: str, index: int | str) -> str:
    """Return the id of an item of a provider, with the provider's id."""
    prefix = PREFIX.match(provider_id)
    own = make_item_id("item" if prefix is None else prefix[0], response_id, index)
    return f"{own}_{provider_id}"


def read_provider_id(item_id: str) -> str | None:
    """Return the provider's id of an item; None if this server generated the id."""
    match = ITEM_ID.fullmatch(item_id)
    if match is not None:
        return match[5]
    return None if item_id.startswith(GENERATED_REASONING) else item_id


def read_item_id(item_id: str) -> ItemKey | None:
    match = ITEM_ID.fullmatch(item_id)
    if match is None:
        return None
    key = _key(match[1], match[2])
    return ItemKey(response=key, index=int(match[4]), is_input=bool(match[3]))


def find_item_conversation(messages: Sequence[Message]) -> str | None:
    """Return the conversation in the last id of an item that this server can have issued."""
    for message in reversed(messages):
        if ISSUED_ID.search(message.raw) is not None:
            keys = [read_item_id(item_id) for item_id in _iterate_ids(message)]
            found = [key.response.conversation for key in keys if key is not None]
            if found:
                return found[-1]
    return None


def _iterate_ids(message: Message) -> Iterator[str]:
    fields = message.json()
    content = fields.get("content")
    has_items = message.role in ("assistant", "tool") and isinstance(content, list)
    items: Any = content if has_items else [fields]
    for item in items:
        if isinstance(item, dict) and isinstance(item.get("id"), str):
            yield item["id"]


def is_generated_id(item_id: str) -> bool:
    """Whether this server generated the id of an item: OpenAI does not know it."""
    return read_provider_id(item_id) is None


def _key(conversation: str, turn: str) -> ResponseKey:
    return ResponseKey(conversation=str(UUID(conversation)), turn=str(UUID(turn)))

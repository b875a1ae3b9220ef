"""Checks values before they are stored: no database takes NUL or a lone surrogate.

The JSON of a message is stored unchanged and escapes NUL, so messages need no check.
"""

import re
from typing import Any

import msgspec

from cllm.core.conversation import StoredConversation, check_id
from cllm.core.errors import UsageError
from cllm.core.ports import NewConversation, Opening, TurnStart

_NUL_IN_JSON = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")


def check_text(*texts: str | None) -> None:
    for text in texts:
        if text is not None and ("\0" in text or has_surrogates(text)):
            raise invalid_text_error()


def check_json(*values: Any) -> None:
    for value in values:
        try:
            encoded = msgspec.json.encode(value)
        except UnicodeEncodeError as error:
            raise invalid_text_error() from error
        except (TypeError, ValueError, RecursionError) as error:
            raise UsageError(
                "The conversation's metadata is not plain JSON, or is nested too deeply; use text, "
                "numbers, lists and objects."
            ) from error
        if _NUL_IN_JSON.search(encoded):
            raise invalid_text_error()


def has_surrogates(text: str) -> bool:
    return not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text)


def invalid_text_error() -> UsageError:
    return UsageError(
        "The text has a NUL character or a lone surrogate, which no database stores; "
        "remove it and try again."
    )


def check_opening(opening: Opening | None) -> None:
    if opening is not None:
        check_json(opening.system_record, opening.context_record)


def check_new(new: NewConversation) -> None:
    """Check the id and name as well."""
    for ref in {new.id, new.name or new.id}:
        check_id(ref)
    check_text(new.title, new.model, new.family, new.source)
    check_text(None if new.parent is None else new.parent.conversation)
    check_json(new.metadata)
    check_opening(new.opening)


def check_start(start: TurnStart, create: NewConversation | None) -> None:
    if create is not None:
        check_new(create)
    check_text(start.id, start.place, start.model)
    if start.parameters is not msgspec.UNSET:
        check_json(start.parameters)


def check_conversation(conversation: StoredConversation) -> None:
    for ref in {conversation.id, conversation.name or conversation.id}:
        check_id(ref)
    check_text(conversation.title, conversation.model, conversation.family, conversation.source)
    check_text(None if conversation.parent is None else conversation.parent.conversation)
    check_json(conversation.metadata, conversation.summary)
    check_json(conversation.system_record, conversation.context_record)
    for turn in (*conversation.turns, *conversation.variants):
        check_json(turn.window)
        check_text(turn.id, turn.place, turn.model, turn.provider)

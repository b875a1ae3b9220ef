"""Searching with an index: the words of a message as it is indexed, and the order of what is found.

The index finds the newest messages that have all terms; only those are looked at for their rank.
Terms and snippets are those of `cllm.stores.lists`, so that every store finds the same.
"""

import hashlib
from collections.abc import Sequence
from datetime import datetime

import msgspec

from cllm.core.message import Message, Role
from cllm.core.ports import Hit, Hits
from cllm.stores.lists import Term, check_page, snippet_of, terms_of

NEWEST = 1000
INDEXED = 100_000
_SMOOTHING = 200


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A message that the index found."""

    conversation: str
    title: str | None
    sequence: int
    role: Role
    raw: str
    created_at: datetime


def owner_term(owner: str) -> str:
    """A term that every message of the owner has, and no text: another's are never walked."""
    return "_" + hashlib.blake2b(owner.encode(errors="surrogatepass"), digest_size=8).hexdigest()


def said_terms(message: Message) -> str:
    """The terms of a message, or nothing if nothing was said.

    Of a very long text it is the beginning: the rest of it would keep others waiting, and the
    terms of one message are at most a megabyte in PostgreSQL.
    """
    return " ".join(terms_of(_readable_text(message)[:INDEXED]))


def indexed_terms(message: Message, owner: str) -> str:
    """What goes into SQLite's index for a message, or nothing if nothing was said."""
    terms = said_terms(message)
    return f"{owner_term(owner)} {terms}" if terms else ""


def rank(found: Sequence[Found], words: Sequence[Term]) -> list[Found]:
    """The best first: those that name the words often for their length; then the newest.

    `found` comes newest first, and may have more than the newest that are ranked.
    """
    texts = [word.text for word in words]

    def weight(each: Found) -> float:
        said = each.raw.casefold()
        return -sum(map(said.count, texts)) / (len(said) + _SMOOTHING)

    return sorted(found[:NEWEST], key=weight)


def page_of_found(
    found: Sequence[Found], words: Sequence[Term], *, limit: int, offset: int
) -> Hits:
    """A page of the ranked messages; `found` may have one more than are ranked."""
    check_page(limit, "messages")
    first = max(offset, 0)
    page = rank(found, words)[first : first + limit]
    return Hits(
        items=tuple(_hit(each, words) for each in page),
        total=min(len(found), NEWEST),
        more=len(found) > NEWEST,
    )


def _hit(found: Found, words: Sequence[Term]) -> Hit:
    return Hit(
        conversation=found.conversation,
        title=found.title,
        sequence=found.sequence,
        role=found.role,
        snippet=snippet_of(_readable_text(Message(role=found.role, raw=found.raw.encode())), words),
        created_at=found.created_at,
    )


def _readable_text(message: Message) -> str:
    """The text of a message; none if its JSON is damaged, so that the others can be found."""
    try:
        return message.text
    except (msgspec.MsgspecError, UnicodeError):
        return ""

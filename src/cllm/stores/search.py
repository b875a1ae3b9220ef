"""The terms of a message in a search index, and the ranking of matches.

The index returns the newest matches; only those are ranked. Terms and snippets are those of
`cllm.stores.lists`, so that every store finds the same.
"""

import hashlib
from collections.abc import Sequence
from datetime import datetime

import msgspec

from cllm.core.message import Message, Role
from cllm.core.ports import Hit, Hits
from cllm.stores.lists import SearchTerm, build_snippet, check_page_size, extract_terms

NEWEST = 1000
MAX_INDEXED_CHARACTERS = 100_000
_SMOOTHING = 200


class SearchMatch(msgspec.Struct, frozen=True, kw_only=True):
    conversation: str
    title: str | None
    sequence: int
    role: Role
    raw: str
    created_at: datetime


def owner_term(owner: str) -> str:
    """A term of every message of the owner and of no text, so that no other owner's are scanned."""
    return "_" + hashlib.blake2b(owner.encode(errors="surrogatepass"), digest_size=8).hexdigest()


def message_terms(message: Message) -> str:
    """The terms of a message; of a very long text those of its start.

    Indexing the rest would delay other writes, and PostgreSQL takes at most 1 MB of terms.
    """
    return " ".join(extract_terms(_readable_text(message)[:MAX_INDEXED_CHARACTERS]))


def build_index_terms(message: Message, owner: str) -> str:
    terms = message_terms(message)
    return f"{owner_term(owner)} {terms}" if terms else ""


def rank_matches(found: Sequence[SearchMatch], words: Sequence[SearchTerm]) -> list[SearchMatch]:
    """Sort by frequency of the words in relation to the length, then newest first.

    `found` is sorted newest first.
    """
    texts = [word.text for word in words]

    def weight(each: SearchMatch) -> float:
        said = each.raw.casefold()
        return -sum(map(said.count, texts)) / (len(said) + _SMOOTHING)

    return sorted(found[:NEWEST], key=weight)


def build_ranked_hits(
    found: Sequence[SearchMatch], words: Sequence[SearchTerm], *, limit: int, offset: int
) -> Hits:
    """A page of the ranked messages; `found` may have one more than are ranked."""
    check_page_size(limit, "messages")
    first = max(offset, 0)
    page = rank_matches(found, words)[first : first + limit]
    return Hits(
        items=tuple(_build_hit(each, words) for each in page),
        total=min(len(found), NEWEST),
        more=len(found) > NEWEST,
    )


def _build_hit(found: SearchMatch, words: Sequence[SearchTerm]) -> Hit:
    return Hit(
        conversation=found.conversation,
        title=found.title,
        sequence=found.sequence,
        role=found.role,
        snippet=build_snippet(
            _readable_text(Message(role=found.role, raw=found.raw.encode())), words
        ),
        created_at=found.created_at,
    )


def _readable_text(message: Message) -> str:
    """The text of a message; "" if its JSON is damaged, so that others can be found."""
    try:
        return message.text
    except (msgspec.MsgspecError, UnicodeError):
        return ""

"""Search terms, snippets and ranking, the same for every store.

A text is split into terms: words, and pairs of characters in scripts without spaces. Stores without
an index compare the terms of every message (`find_hits`). A SQL index returns the newest matches;
only those are ranked (`build_ranked_hits`).
"""

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

import msgspec

from cllm.core.conversation import StoredConversation
from cllm.core.errors import UsageError
from cllm.core.message import Message, Role
from cllm.core.ports import Hit, Hits
from cllm.stores.pagination import check_page_size

SNIPPET_RADIUS = 60
MAX_TERM_LENGTH = 64
_JOINED = (
    "\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
    "\U00020000-\U0003ffff"
)
_RUN = re.compile(rf"(?P<joined>[{_JOINED}]+)|[^\W_{_JOINED}]+")
_PLAIN = bytes(ord(chr(code).lower()) if chr(code).isalnum() else 32 for code in range(128))
_PLAIN_WORDS = _PLAIN + bytes(128)
NEWEST = 1000
MAX_INDEXED_CHARACTERS = 100_000
_SMOOTHING = 200


class SearchTerm(msgspec.Struct, frozen=True):
    """A whole term to search for, or the start of one."""

    text: str
    prefix: bool = False

    def is_in(self, terms: Iterable[str]) -> bool:
        if self.prefix:
            return any(term.startswith(self.text) for term in terms)
        return self.text in terms


def extract_terms(text: str) -> tuple[str, ...]:
    """The distinct terms of a text in their order."""
    if text.isascii():
        words = text.encode("ascii").translate(_PLAIN_WORDS).decode("ascii").split()
        return tuple(dict.fromkeys([word[:MAX_TERM_LENGTH] for word in words]))
    found: dict[str, None] = {}
    for run in _RUN.finditer(_fold_case(text)):
        if run["joined"] is None:
            found[run[0][:MAX_TERM_LENGTH]] = None
        else:
            found.update(dict.fromkeys(_pairs(run[0], with_last=True)))
    return tuple(found)


def parse_query(query: str) -> tuple[SearchTerm, ...]:
    """The terms of a query; UsageError if there is none."""
    found: dict[SearchTerm, None] = {}
    for run in _RUN.finditer(_fold_case(query)):
        if run["joined"] is None:
            found[SearchTerm(run[0][:MAX_TERM_LENGTH])] = None
        elif len(run[0]) == 1:
            found[SearchTerm(run[0], prefix=True)] = None
        else:
            found.update(dict.fromkeys(map(SearchTerm, _pairs(run[0], with_last=False))))
    if not found:
        raise UsageError("Say what to look for: the search has no words.")
    return tuple(found)


def _fold_case(text: str) -> str:
    return text.casefold() if text.isascii() else unicodedata.normalize("NFKC", text).casefold()


def _pairs(run: str, *, with_last: bool) -> Iterator[str]:
    """Every two neighbours, and the last character, so that each one starts a term."""
    for at in range(len(run) - 1):
        yield run[at : at + 2]
    if with_last:
        yield run[-1]


def find_hits(conversation: StoredConversation, words: Sequence[SearchTerm]) -> Iterator[Hit]:
    for sequence, turn, message in conversation.numbered_messages():
        if not turn.is_history:
            continue
        text = message.text
        terms = frozenset(extract_terms(text))
        if all(word.is_in(terms) for word in words):
            yield Hit(
                conversation=conversation.id,
                title=conversation.title,
                sequence=sequence,
                role=message.role,
                snippet=build_snippet(text, words),
                created_at=turn.started_at,
            )


def build_snippet(text: str, words: Sequence[SearchTerm]) -> str:
    line = " ".join(text.split())
    folded = line.casefold()
    place = min((at for word in words if (at := folded.find(word.text)) >= 0), default=0)
    start, stop = max(place - SNIPPET_RADIUS, 0), place + SNIPPET_RADIUS
    return f"{'…' if start else ''}{line[start:stop]}{'…' if stop < len(line) else ''}"


def build_hits(hits: Iterable[Hit], *, limit: int, offset: int) -> Hits:
    check_page_size(limit, "messages")
    first = max(offset, 0)
    found = sorted(hits, key=lambda hit: (hit.created_at, hit.sequence), reverse=True)
    return Hits(items=tuple(found[first : first + limit]), total=len(found))


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

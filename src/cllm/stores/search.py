"""Search terms, snippets and ranking, the same for every store.

Terms are words, and pairs of characters in scripts without spaces. Stores without an index compare
every message; a SQL index returns the newest matches, which are ranked.
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
MAX_RANKED = 1000
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
    terms: dict[str, None] = {}
    for run in _RUN.finditer(_fold_case(text)):
        if run["joined"] is None:
            terms[run[0][:MAX_TERM_LENGTH]] = None
        else:
            terms.update(dict.fromkeys(_split_pairs(run[0], with_last=True)))
    return tuple(terms)


def parse_query(query: str) -> tuple[SearchTerm, ...]:
    """The terms of a query; UsageError if it has none."""
    terms: dict[SearchTerm, None] = {}
    for run in _RUN.finditer(_fold_case(query)):
        if run["joined"] is None:
            terms[SearchTerm(run[0][:MAX_TERM_LENGTH])] = None
        elif len(run[0]) == 1:
            terms[SearchTerm(run[0], prefix=True)] = None
        else:
            terms.update(dict.fromkeys(map(SearchTerm, _split_pairs(run[0], with_last=False))))
    if not terms:
        raise UsageError("The search query has no words; enter at least one word.")
    return tuple(terms)


def _fold_case(text: str) -> str:
    return text.casefold() if text.isascii() else unicodedata.normalize("NFKC", text).casefold()


def _split_pairs(run: str, *, with_last: bool) -> Iterator[str]:
    """Every pair of neighbours, and the last character: each character starts a term."""
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
    """One line of the text around the first match of a word."""
    line = " ".join(text.split())
    folded = line.casefold()
    first = min((at for word in words if (at := folded.find(word.text)) >= 0), default=0)
    start, stop = max(first - SNIPPET_RADIUS, 0), first + SNIPPET_RADIUS
    return f"{'…' if start else ''}{line[start:stop]}{'…' if stop < len(line) else ''}"


def build_hits(hits: Iterable[Hit], *, limit: int, offset: int) -> Hits:
    check_page_size(limit, "messages")
    first = max(offset, 0)
    newest = sorted(hits, key=lambda hit: (hit.created_at, hit.sequence), reverse=True)
    return Hits(items=tuple(newest[first : first + limit]), total=len(newest))


class SearchMatch(msgspec.Struct, frozen=True, kw_only=True):
    conversation: str
    title: str | None
    sequence: int
    role: Role
    raw: str
    created_at: datetime


def owner_term(owner: str) -> str:
    """A term of every message of the owner and of no text, so that a search scans one owner."""
    return "_" + hashlib.blake2b(owner.encode(errors="surrogatepass"), digest_size=8).hexdigest()


def message_terms(message: Message) -> str:
    """The terms of a message, up to MAX_INDEXED_CHARACTERS of its text.

    Indexing the rest would delay other writes, and PostgreSQL accepts at most 1 MB of terms.
    """
    return " ".join(extract_terms(_text_or_empty(message)[:MAX_INDEXED_CHARACTERS]))


def build_index_terms(message: Message, owner: str) -> str:
    terms = message_terms(message)
    return f"{owner_term(owner)} {terms}" if terms else ""


def rank_matches(matches: Sequence[SearchMatch], words: Sequence[SearchTerm]) -> list[SearchMatch]:
    """Sort by the frequency of the words relative to the length, then newest first.

    `matches` is sorted newest first.
    """
    texts = [word.text for word in words]

    def weight(match: SearchMatch) -> float:
        text = match.raw.casefold()
        return -sum(map(text.count, texts)) / (len(text) + _SMOOTHING)

    return sorted(matches[:MAX_RANKED], key=weight)


def build_ranked_hits(
    matches: Sequence[SearchMatch], words: Sequence[SearchTerm], *, limit: int, offset: int
) -> Hits:
    """A page of the ranked matches; `matches` may have one more than MAX_RANKED."""
    check_page_size(limit, "messages")
    first = max(offset, 0)
    page = rank_matches(matches, words)[first : first + limit]
    return Hits(
        items=tuple(_build_hit(match, words) for match in page),
        total=min(len(matches), MAX_RANKED),
        more=len(matches) > MAX_RANKED,
    )


def _build_hit(match: SearchMatch, words: Sequence[SearchTerm]) -> Hit:
    text = _text_or_empty(Message(role=match.role, raw=match.raw.encode()))
    return Hit(
        conversation=match.conversation,
        title=match.title,
        sequence=match.sequence,
        role=match.role,
        snippet=build_snippet(text, words),
        created_at=match.created_at,
    )


def _text_or_empty(message: Message) -> str:
    """The text of a message; "" if its JSON is damaged."""
    try:
        return message.text
    except (msgspec.MsgspecError, UnicodeError):
        return ""

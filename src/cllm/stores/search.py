"""Search terms, snippets and ranking, the same for every store.

Terms are words, and pairs of characters in scripts without spaces. A query also matches the other
forms of its English words; the index has the words as they are written. Stores without an index
compare every message; a SQL index returns the newest matches. The newest matches are ranked.
"""

import hashlib
import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime
from functools import cache
from os.path import commonprefix

import msgspec

from cllm.core.conversation import StoredConversation, make_message_id
from cllm.core.errors import UsageError
from cllm.core.message import Message, Role
from cllm.core.ports import Hit, Hits
from cllm.stores.pagination import check_page_size
from cllm.stores.stems import list_forms

SNIPPET_RADIUS = 60
MAX_TERM_LENGTH = 64
_JOINED = (
    "\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
    "\U00020000-\U0003ffff"
)
_PLAIN = bytes(ord(chr(code).lower()) if chr(code).isalnum() else 32 for code in range(128))
_PLAIN_WORDS = _PLAIN + bytes(128)
MAX_RANKED = 1000
MAX_INDEXED_CHARACTERS = 100_000
MIN_PREFIX_LENGTH = 3
"""Shorter starts of words match too many terms."""
MAX_EXPANDED_WORDS = 8
"""Later words of a query match only as they are written, to bound the work of a search."""
_SMOOTHING = 200
_PER_100_CHARACTERS = 100


class SearchTerm(msgspec.Struct, frozen=True):
    """A term to search for, whole with its other forms, or as the start of a term.

    `root` has the letters that all forms start with.
    """

    text: str
    prefix: bool = False
    forms: tuple[str, ...] = ()
    root: str = ""

    @property
    def alternatives(self) -> tuple[str, ...]:
        return (self.text, *self.forms)

    def is_in(self, terms: Collection[str]) -> bool:
        if self.prefix and any(term.startswith(self.text) for term in terms):
            return True
        return any(text in terms for text in self.alternatives)


# The patterns take 4 ms to compile, and a list needs none.
@cache
def _run_pattern() -> re.Pattern[str]:
    """Return the pattern of a word, or of characters in scripts without spaces."""
    return re.compile(rf"(?P<joined>[{_JOINED}]+)|[^\W_{_JOINED}]+")


@cache
def _word_character_pattern() -> re.Pattern[str]:
    return re.compile(rf"[^\W_{_JOINED}]")


def extract_terms(text: str) -> tuple[str, ...]:
    """Return the distinct terms of a text in their order."""
    if text.isascii():
        words = text.encode("ascii").translate(_PLAIN_WORDS).decode("ascii").split()
        return tuple(dict.fromkeys([word[:MAX_TERM_LENGTH] for word in words]))
    terms: dict[str, None] = {}
    for run in _run_pattern().finditer(_fold_case(text)):
        if run["joined"] is None:
            terms[run[0][:MAX_TERM_LENGTH]] = None
        else:
            terms.update(dict.fromkeys(_split_pairs(run[0], with_last=True)))
    return tuple(terms)


def parse_query(query: str) -> tuple[SearchTerm, ...]:
    """Return the terms of a query; UsageError if it has none. `word*` is the start of a term."""
    terms: dict[SearchTerm, None] = {}
    folded = _fold_case(query)
    for run in _run_pattern().finditer(folded):
        if run["joined"] is None:
            is_start = len(run[0]) >= MIN_PREFIX_LENGTH and folded.startswith("*", run.end())
            terms[SearchTerm(run[0][:MAX_TERM_LENGTH], prefix=is_start)] = None
        elif len(run[0]) == 1:
            terms[SearchTerm(run[0], prefix=True)] = None
        else:
            terms.update(dict.fromkeys(map(SearchTerm, _split_pairs(run[0], with_last=False))))
    if not terms:
        raise UsageError("The search query has no words; enter at least one word.")
    words = tuple(terms)
    return (*map(_expand, words[:MAX_EXPANDED_WORDS]), *words[MAX_EXPANDED_WORDS:])


def _expand(word: SearchTerm) -> SearchTerm:
    forms = list_forms(word.text)
    root = commonprefix((word.text, *forms))  # noqa: RUF071 - of letters, not of paths
    return SearchTerm(word.text, word.prefix, forms, root) if forms else word


def _fold_case(text: str) -> str:
    return text.casefold() if text.isascii() else unicodedata.normalize("NFKC", text).casefold()


def _split_pairs(run: str, *, with_last: bool) -> Iterator[str]:
    """Yield every pair of neighbours, and the last character: each character starts a term."""
    for at in range(len(run) - 1):
        yield run[at : at + 2]
    if with_last:
        yield run[-1]


class SearchMatch(msgspec.Struct, frozen=True, kw_only=True):
    conversation: str
    title: str | None
    turn: str
    ordinal: int
    sequence: int
    role: Role
    raw: str
    created_at: datetime


def find_matches(
    conversation: StoredConversation,
    words: Sequence[SearchTerm],
    candidates: Collection[int] | None = None,
) -> Iterator[SearchMatch]:
    """Yield the messages with all words; `candidates` are the numbers of those to compare."""
    sequence = conversation.first_sequence
    for turn in conversation.turns:
        for ordinal, message in enumerate(turn.messages):
            is_candidate = candidates is None or sequence in candidates
            if is_candidate and turn.is_history and _is_match(message, words):
                yield SearchMatch(
                    conversation=conversation.id,
                    title=conversation.title,
                    turn=turn.id,
                    ordinal=ordinal,
                    sequence=sequence,
                    role=message.role,
                    raw=message.raw.decode(errors="replace"),
                    created_at=turn.started_at,
                )
            sequence += 1


def _is_match(message: Message, words: Sequence[SearchTerm]) -> bool:
    terms = frozenset(extract_terms(message.text))
    return all(word.is_in(terms) for word in words)


def sort_newest(matches: Iterable[SearchMatch]) -> list[SearchMatch]:
    return sorted(matches, key=lambda one: (one.created_at, one.sequence), reverse=True)


def locate_words(text: str, words: Sequence[SearchTerm]) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each word in a text, in order."""
    folded = text.casefold()
    if len(folded) != len(text):
        folded = text
    terms = frozenset(term for word in words for term in word.alternatives)
    prefixes = tuple(word.text for word in words if word.prefix)
    starts = sorted({word.root or word.text for word in words}, key=len, reverse=True)
    for match in re.finditer("|".join(starts), folded):
        start, end = match.span()
        if not _starts_joined(match[0]):
            # Only the start of a word is followed to its end: a word can have many matches.
            if start > 0 and _word_character_pattern().match(folded, start - 1):
                continue
            end = _find_word_end(folded, end)
            found = folded[start:end][:MAX_TERM_LENGTH]
            if found not in terms and not found.startswith(prefixes):
                continue
        yield start, end


def _starts_joined(text: str) -> bool:
    run = _run_pattern().match(text)
    return run is not None and run["joined"] is not None


def _find_word_end(text: str, start: int) -> int:
    """Return the end of the word that continues at `start`; `start` if none does."""
    run = _run_pattern().match(text, start)
    return start if run is None or run["joined"] is not None else run.end()


def build_snippet(text: str, words: Sequence[SearchTerm]) -> str:
    """Return one line of the text around the first of the words."""
    line = " ".join(text[:MAX_INDEXED_CHARACTERS].split())
    first, _ = next(locate_words(line, words), (0, 0))
    start, stop = max(first - SNIPPET_RADIUS, 0), first + SNIPPET_RADIUS
    return f"{'…' if start else ''}{line[start:stop]}{'…' if stop < len(line) else ''}"


def highlight_words(snippet: str, words: Sequence[SearchTerm]) -> str:
    """Return the snippet as HTML, with the words in `<b>`."""
    from html import escape  # noqa: PLC0415 - a list needs no highlights

    parts: list[str] = []
    last = 0
    for start, end in locate_words(snippet, words):
        parts += (escape(snippet[last:start]), "<b>", escape(snippet[start:end]), "</b>")
        last = end
    return "".join((*parts, escape(snippet[last:])))


def build_match(words: Sequence[SearchTerm], *more: str) -> str:
    """Return the FTS5 query for all words and more terms. Terms contain no quotation marks."""
    return " AND ".join((*map(_quote_term, words), *(f'"{term}"' for term in more)))


def _quote_term(word: SearchTerm) -> str:
    first = f'"{word.text}"*' if word.prefix else f'"{word.text}"'
    quoted = " OR ".join((first, *(f'"{text}"' for text in word.forms)))
    return f"({quoted})" if word.forms else quoted


def owner_term(owner: str) -> str:
    """Return the term that marks every message of an owner, so that a search scans one owner.

    No text has this term.
    """
    return "_" + hashlib.blake2b(owner.encode(errors="surrogatepass"), digest_size=8).hexdigest()


def message_terms(message: Message) -> str:
    """Return the terms of a message, up to MAX_INDEXED_CHARACTERS of its text.

    Indexing the rest would delay other writes, and PostgreSQL accepts at most 1 MB of terms.
    """
    return " ".join(extract_terms(_text_or_empty(message)[:MAX_INDEXED_CHARACTERS]))


def build_index_terms(message: Message, owner: str) -> str:
    terms = message_terms(message)
    return f"{owner_term(owner)} {terms}" if terms else ""


def rank_match(match: SearchMatch, words: Sequence[SearchTerm]) -> float:
    """Return the frequency of the words relative to the length, from 0 to 1.

    A word as it is in the query counts twice as much as another form of it.
    """
    text = match.raw.casefold()
    count = sum(_count_word(text, word) for word in words)
    frequency = _PER_100_CHARACTERS * count / (len(text) + _SMOOTHING)
    return frequency / (frequency + 1)


def _count_word(text: str, word: SearchTerm) -> int:
    if not word.forms:
        return 2 * text.count(word.text)
    # A pattern that starts with letters is almost as fast as a search for the letters.
    return text.count(word.root) + len(re.findall(rf"{word.text}(?![^\W_])", text))


def build_ranked_hits(
    matches: Sequence[SearchMatch], words: Sequence[SearchTerm], *, limit: int, offset: int
) -> Hits:
    """Return a page of the ranked matches, which are sorted newest first.

    `matches` has one more than MAX_RANKED if there are more.
    """
    check_page_size(limit, "messages")
    first = max(offset, 0)
    ranked = [(rank_match(match, words), match) for match in matches[:MAX_RANKED]]
    ranked.sort(key=lambda one: -one[0])
    page = ranked[first : first + limit]
    return Hits(
        items=tuple(build_hit(match, words, relevance) for relevance, match in page),
        total=min(len(matches), MAX_RANKED),
        more=len(matches) > MAX_RANKED,
    )


def build_hit(match: SearchMatch, words: Sequence[SearchTerm], relevance: float) -> Hit:
    text = _text_or_empty(Message(role=match.role, raw=match.raw.encode()))
    snippet = build_snippet(text, words)
    return Hit(
        conversation=match.conversation,
        title=match.title,
        sequence=match.sequence,
        role=match.role,
        snippet=snippet,
        created_at=match.created_at,
        message_id=make_message_id(match.turn, match.ordinal),
        content=text,
        highlight=highlight_words(snippet, words),
        relevance=round(relevance, 6),
    )


def _text_or_empty(message: Message) -> str:
    """Return the text of a message; "" if its JSON is damaged."""
    try:
        return message.text
    except (msgspec.MsgspecError, UnicodeError):
        return ""

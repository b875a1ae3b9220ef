"""Searching what was said: how text and a query become terms, for every store. Pure.

A message is found if it has every term of the query, whatever their case; newest first. Chinese,
Japanese and Korean are not written with spaces between words, or not only: there every two
characters that follow one another are a term.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from cllm.core.conversation import Conversation
from cllm.core.errors import UsageError
from cllm.core.ports import Hit, Hits
from cllm.stores.pages import check_page

AROUND = 60
LONGEST_TERM = 64
_JOINED = (
    "\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
    "\U00020000-\U0003ffff"
)
_RUN = re.compile(rf"(?P<joined>[{_JOINED}]+)|[^\W_{_JOINED}]+")
_PLAIN = bytes(ord(chr(code).lower()) if chr(code).isalnum() else 32 for code in range(128))
_PLAIN_WORDS = _PLAIN + bytes(128)


class Term(msgspec.Struct, frozen=True):
    """Something to look for: a whole term, or how one begins."""

    text: str
    prefix: bool = False

    def is_in(self, terms: Iterable[str]) -> bool:
        if self.prefix:
            return any(term.startswith(self.text) for term in terms)
        return self.text in terms


def terms_of(text: str) -> tuple[str, ...]:
    """The terms of a text, each once, in the order in which they come up."""
    if text.isascii():
        words = text.encode("ascii").translate(_PLAIN_WORDS).decode("ascii").split()
        return tuple(dict.fromkeys([word[:LONGEST_TERM] for word in words]))
    found: dict[str, None] = {}
    for run in _RUN.finditer(_folded(text)):
        if run["joined"] is None:
            found[run[0][:LONGEST_TERM]] = None
        else:
            found.update(dict.fromkeys(_pairs(run[0], with_last=True)))
    return tuple(found)


def query_terms(query: str) -> tuple[Term, ...]:
    """What to look for; UsageError if there is nothing."""
    found: dict[Term, None] = {}
    for run in _RUN.finditer(_folded(query)):
        if run["joined"] is None:
            found[Term(run[0][:LONGEST_TERM])] = None
        elif len(run[0]) == 1:
            found[Term(run[0], prefix=True)] = None
        else:
            found.update(dict.fromkeys(map(Term, _pairs(run[0], with_last=False))))
    if not found:
        raise UsageError("Say what to look for: the search has no words.")
    return tuple(found)


def _folded(text: str) -> str:
    return text.casefold() if text.isascii() else unicodedata.normalize("NFKC", text).casefold()


def _pairs(run: str, *, with_last: bool) -> Iterator[str]:
    """Every two neighbours; and the last character, so that each one is the beginning of a term."""
    for at in range(len(run) - 1):
        yield run[at : at + 2]
    if with_last:
        yield run[-1]


def hits_in(conversation: Conversation, words: Sequence[Term]) -> Iterator[Hit]:
    """The messages of the default path with all of these terms."""
    for sequence, turn, message in conversation.numbered_messages():
        if not turn.is_history:
            continue
        text = message.text
        terms = frozenset(terms_of(text))
        if all(word.is_in(terms) for word in words):
            yield Hit(
                conversation=conversation.id,
                title=conversation.title,
                sequence=sequence,
                role=message.role,
                snippet=snippet_of(text, words),
                created_at=turn.started_at,
            )


def snippet_of(text: str, words: Sequence[Term]) -> str:
    """One line around the first of the words that stands in the text."""
    line = " ".join(text.split())
    folded = line.casefold()
    place = min((at for word in words if (at := folded.find(word.text)) >= 0), default=0)
    start, stop = max(place - AROUND, 0), place + AROUND
    return f"{'…' if start else ''}{line[start:stop]}{'…' if stop < len(line) else ''}"


def page_of_hits(hits: Iterable[Hit], *, limit: int, offset: int) -> Hits:
    check_page(limit, "messages")
    first = max(offset, 0)
    found = sorted(hits, key=lambda hit: (hit.created_at, hit.sequence), reverse=True)
    return Hits(items=tuple(found[first : first + limit]), total=len(found))

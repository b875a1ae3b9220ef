"""What is told of one request while it is encoded, gathered: each thing once, and how often.

It knows no protocol: a codec says what became of something, in one of the codes of
docs/reference/notices.md. It never decides what is sent.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from cllm.core.notice import MAX_NOTICES, Notice, notices_left_out

Sentences = Mapping[str, tuple[str, str]]
"""What a codec has to tell again and again: reason → the notice's code and its sentence."""

NO_SENTENCES: Sentences = MappingProxyType({})
LONGEST_NAME = 128


class Notes:
    """The notices of one request: one for each thing, at the first place it stood.

    Of more than MAX_NOTICES things the first are told; the others are counted, each time.
    """

    def __init__(self, sentences: Sentences = NO_SENTENCES) -> None:
        self._sentences = sentences
        # The first path of each thing, and how often it happened.
        self._told: dict[tuple[str, str, str], tuple[str, int]] = {}
        self._left_out = 0

    def add(self, code: str, path: str, message: str, *, subject: str = "") -> None:
        """Tell of something; about another `subject` the same sentence is another notice."""
        key = (code, message, subject)
        first, count = self._told.get(key, (path, 0))
        if count or len(self._told) < MAX_NOTICES:
            self._told[key] = first, count + 1
        else:
            self._left_out += 1

    def tell(self, reason: str, path: str, *, subject: str = "") -> None:
        """Tell what the codec has a sentence for."""
        code, message = self._sentences[reason]
        self.add(code, path, message, subject=subject)

    def extend(self, notices: Iterable[Notice]) -> None:
        for notice in notices:
            self.add(notice.code, notice.path, notice.message)

    def notices(self) -> tuple[Notice, ...]:
        told = (
            Notice(code=code, path=path, message=message + _times(count))
            for (code, message, _), (path, count) in self._told.items()
        )
        return (*told, notices_left_out(self._left_out)) if self._left_out else tuple(told)


def shortened(name: str) -> str:
    """A name that a client chose, as it can stand in the path of many notices."""
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"


def _times(count: int) -> str:
    return "" if count == 1 else f" ({count} times)"

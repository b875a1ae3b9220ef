"""What is told of one request while it is encoded, gathered: each thing once, and how often.

It knows no protocol: a codec says what became of something, in one of the codes of
docs/reference/notices.md. It never decides what is sent.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from cllm.core.notice import Notice

Sentences = Mapping[str, tuple[str, str]]
"""What a codec has to tell again and again: reason → the notice's code and its sentence."""

NO_SENTENCES: Sentences = MappingProxyType({})


class Notes:
    """The notices of one request: one for each thing, at the first place it stood."""

    def __init__(self, sentences: Sentences = NO_SENTENCES) -> None:
        self._sentences = sentences
        self._places: dict[tuple[str, str, str], list[str]] = {}

    def __bool__(self) -> bool:
        """Whether there is something to tell."""
        return bool(self._places)

    def add(self, code: str, path: str, message: str, *, subject: str = "") -> None:
        """Tell of something; about another `subject` the same sentence is another notice."""
        self._places.setdefault((code, message, subject), []).append(path)

    def tell(self, reason: str, path: str, *, subject: str = "") -> None:
        """Tell what the codec has a sentence for."""
        code, message = self._sentences[reason]
        self.add(code, path, message, subject=subject)

    def extend(self, notices: Iterable[Notice]) -> None:
        for notice in notices:
            self.add(notice.code, notice.path, notice.message)

    def notices(self) -> tuple[Notice, ...]:
        return tuple(
            Notice(code=code, path=paths[0], message=message + _times(len(paths)))
            for (code, message, _), paths in self._places.items()
        )


def _times(count: int) -> str:
    return "" if count == 1 else f" ({count} times)"

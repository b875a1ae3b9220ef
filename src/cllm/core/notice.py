"""What a person should know about a turn that went well: something ignored, changed or left out.

One request can cause as many notices as its body has fields. `NoticeCollector` bounds them: it
keeps the first ones, each once, and counts the others with their repetitions.
"""

from collections.abc import Iterable, Iterator

import msgspec

MAX_NOTICES = 100
LEFT_OUT = "notices_left_out"


class Notice(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`code` for programs, `path` for the place it is about, `message` for people.

    `count` is the number of notices that a `notices_left_out` stands for, and 1 for any other.
    """

    code: str
    message: str
    path: str = ""
    count: int = 1


def notices_left_out(count: int) -> Notice:
    """The notice that stands for `count` notices after the first MAX_NOTICES."""
    more = "1 more is" if count == 1 else f"{count} more are"
    message = f"Only the first {MAX_NOTICES} notices are listed; {more} left out."
    return Notice(code=LEFT_OUT, message=message, count=count)


class NoticeCollector:
    """Collects the notices of one request: the first MAX_NOTICES, each once, and counts the rest.

    Adding a notice takes constant time. Iterating yields the kept notices and, if any were left
    out, one last notice that says how many. Collectors can be nested: a `notices_left_out` that is
    added is counted and not kept.
    """

    def __init__(self, notices: Iterable[Notice] = ()) -> None:
        self._kept: dict[Notice, None] = {}
        self._left_out = 0
        self.extend(notices)

    def append(self, notice: Notice) -> bool:
        """Add a notice. Returns True if it is kept, False if it is known or left out."""
        if notice in self._kept:
            return False
        if notice.code == LEFT_OUT or len(self._kept) == MAX_NOTICES:
            self._left_out += notice.count
            return False
        self._kept[notice] = None
        return True

    def extend(self, notices: Iterable[Notice]) -> None:
        for notice in notices:
            self.append(notice)

    @property
    def left_out(self) -> tuple[Notice, ...]:
        """The notice that says how many were left out, if any were."""
        return (notices_left_out(self._left_out),) if self._left_out else ()

    def __bool__(self) -> bool:
        return bool(self._kept) or self._left_out > 0

    def __iter__(self) -> Iterator[Notice]:
        yield from self._kept
        yield from self.left_out

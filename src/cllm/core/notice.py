"""Notices about a successful turn: something was ignored, changed or left out."""

from collections.abc import Iterable, Iterator

import msgspec

MAX_NOTICES = 100
LEFT_OUT = "notices_left_out"
REPLY_CUT = "reply_cut"


class Notice(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`count` is the number of notices that a `notices_left_out` replaces."""

    code: str
    message: str
    path: str = ""
    count: int = 1


def notices_left_out(count: int) -> Notice:
    more = "1 more is" if count == 1 else f"{count} more are"
    message = f"Only the first {MAX_NOTICES} notices are listed; {more} left out."
    return Notice(code=LEFT_OUT, message=message, count=count)


def reply_cut(reason: str) -> Notice:
    """Return the notice of a turn whose reply is incomplete, with the reason as its path."""
    message = "The reply is incomplete: the provider ended it early."
    return Notice(code=REPLY_CUT, path=reason, message=message)


class NoticeCollector:
    """Collects the first MAX_NOTICES notices, each once, and counts the rest.

    A request can cause as many notices as its body has fields. Collectors can be nested.
    """

    def __init__(self, notices: Iterable[Notice] = ()) -> None:
        self._notices: dict[Notice, None] = {}
        self._left_out = 0
        self.extend(notices)

    def append(self, notice: Notice) -> bool:
        """Add a notice; return False if it is a duplicate or left out."""
        if notice in self._notices:
            return False
        if notice.code == LEFT_OUT or len(self._notices) == MAX_NOTICES:
            self._left_out += notice.count
            return False
        self._notices[notice] = None
        return True

    def extend(self, notices: Iterable[Notice]) -> None:
        for notice in notices:
            self.append(notice)

    @property
    def left_out(self) -> tuple[Notice, ...]:
        return (notices_left_out(self._left_out),) if self._left_out else ()

    def __bool__(self) -> bool:
        return bool(self._notices) or self._left_out > 0

    def __iter__(self) -> Iterator[Notice]:
        yield from self._notices
        yield from self.left_out

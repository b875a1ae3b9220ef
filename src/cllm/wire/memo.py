"""What was found out once and may be asked again, kept within a number of bytes.

For things that follow from their key alone, so that it makes no difference who put them here. What
is kept must be frozen. What was used longest ago goes first. It is of one process, and is never
written anywhere.
"""

from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Memo(Generic[K, V]):
    """Answers by their keys, of no more than `limit` bytes together; one has at most half of it."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._size = 0
        # In the order in which they were used.
        self._kept: dict[K, tuple[V, int]] = {}

    def get(self, key: K) -> V | None:
        """The answer that was put here; None if it is not here, or no longer."""
        found = self._kept.pop(key, None)
        if found is None:
            return None
        self._kept[key] = found
        return found[0]

    def __contains__(self, key: K) -> bool:
        """Whether it is here; asking this is no use of it."""
        return key in self._kept

    def __len__(self) -> int:
        return len(self._kept)

    def put(self, key: K, answer: V, size: int) -> None:
        """Keep an answer that takes so many bytes, its key among them."""
        self.forget(key)
        if size > self._limit // 2:
            return
        self._kept[key] = answer, size
        self._size += size
        while self._size > self._limit:
            self.forget(next(iter(self._kept)))

    def forget(self, key: K) -> None:
        """Keep this answer no longer."""
        found = self._kept.pop(key, None)
        if found is not None:
            self._size -= found[1]

    def clear(self) -> None:
        """Keep nothing."""
        self._kept.clear()
        self._size = 0

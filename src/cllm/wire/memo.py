"""What was found out once and may be asked again, kept within a number of bytes.

For things that follow from their key alone, so that it makes no difference who put them here. What
is kept must be frozen. The least recently used goes first: one half is filled, and when it is full
the other, with what was not asked for since it was begun, is given up. It is of one process, and is
never written anywhere.
"""

from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Memo(Generic[K, V]):
    """Answers by their keys, of no more than `limit` bytes together."""

    def __init__(self, limit: int) -> None:
        self._half = limit // 2
        self._size = 0
        self._used: dict[K, tuple[V, int]] = {}
        self._older: dict[K, tuple[V, int]] = {}

    def get(self, key: K) -> V | None:
        """The answer that was put here; None if it is not here, or no longer."""
        found = self._used.get(key)
        if found is None:
            found = self._older.pop(key, None)
            if found is None:
                return None
            self.put(key, *found)
        return found[0]

    def __contains__(self, key: K) -> bool:
        """Whether it is here; asking this is no use of it."""
        return key in self._used or key in self._older

    def put(self, key: K, answer: V, size: int) -> None:
        """Keep an answer that takes so many bytes, its key among them."""
        self.forget(key)
        if size > self._half:
            return
        if self._size + size > self._half:
            self._older, self._used, self._size = self._used, {}, 0
        self._used[key] = answer, size
        self._size += size

    def forget(self, key: K) -> None:
        """Keep this answer no longer."""
        self._older.pop(key, None)
        found = self._used.pop(key, None)
        if found is not None:
            self._size -= found[1]

    def clear(self) -> None:
        """Keep nothing."""
        self._used, self._older, self._size = {}, {}, 0

"""New ids by the thousand: random UUIDs, made of randomness that is fetched for many at once."""

import os
from uuid import UUID

SIZE = 16
AT_ONCE = 256


class NewIds:
    """Called, it gives an id that nobody has had."""

    def __init__(self) -> None:
        self._random = b""
        self._used = 0
        # A copy of this process must not give the same ids.
        os.register_at_fork(after_in_child=self._forget)

    def __call__(self) -> str:
        if self._used >= len(self._random):
            self._random = os.urandom(SIZE * AT_ONCE)
            self._used = 0
        piece = self._random[self._used : self._used + SIZE]
        self._used += SIZE
        return str(UUID(bytes=piece, version=4))

    def _forget(self) -> None:
        self._random = b""

"""New ids by the thousand: random UUIDs, made of randomness that is fetched for many at once."""

import os
from collections import deque

SIZE = 16
AT_ONCE = 256
# The digit that says which kind of UUID it is, with the two bits of it that are random.
VARIANTS = {digit: "89ab"[int(digit, 16) % 4] for digit in "0123456789abcdef"}


class NewIds:
    """Called, it gives an id that nobody has had."""

    def __init__(self) -> None:
        self._random: deque[str] = deque()
        # A copy of this process must not give the same ids.
        os.register_at_fork(after_in_child=self._forget)

    def __call__(self) -> str:
        digits = self._sixteen_bytes()
        variant = VARIANTS[digits[16]]
        return (
            f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"
        )

    def _sixteen_bytes(self) -> str:
        """As hexadecimal digits; taking from a deque is safe in any thread."""
        while True:
            try:
                return self._random.popleft()
            except IndexError:
                fresh = os.urandom(SIZE * AT_ONCE).hex()
                length = 2 * SIZE
                self._random.extend(
                    fresh[place : place + length] for place in range(0, len(fresh), length)
                )

    def _forget(self) -> None:
        self._random.clear()

"""New ids by the thousand: random UUIDs, made of randomness that is fetched for many at once."""

import os

SIZE = 16
AT_ONCE = 256
# The digit that says which kind of UUID it is, with the two bits of it that are random.
VARIANTS = {digit: "89ab"[int(digit, 16) % 4] for digit in "0123456789abcdef"}


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
        digits = self._random[self._used : self._used + SIZE].hex()
        self._used += SIZE
        variant = VARIANTS[digits[16]]
        return (
            f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"
        )

    def _forget(self) -> None:
        self._random = b""

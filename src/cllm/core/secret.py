"""A text that must not be seen: it cannot be printed, logged or written by accident."""

from collections.abc import Iterable

import msgspec

SHORTEST = 6


def without_secrets(text: str, secrets: Iterable[str]) -> str:
    """The text with every one of these blotted out; what is too short to be one is left."""
    for secret in sorted({one for one in secrets if len(one) >= SHORTEST}, key=len, reverse=True):
        text = text.replace(secret, "***")
    return text


class Secret:
    """Holds a key. Only `reveal` gives it away, so every place that does can be found."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return "Secret('***')"

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __reduce__(self) -> str:
        raise TypeError("a secret is not written down")


class CallersKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key that a caller brings for one call; a `token` is sent as a bearer's.

    It is for one `provider` and goes to no other, also where another is asked in that one's place.
    """

    secret: Secret
    token: bool = False
    provider: str = ""

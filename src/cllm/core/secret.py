"""Secrets: texts that cannot be printed, logged or saved by accident."""

import re
from collections.abc import Iterable

import msgspec

MIN_SECRET_LENGTH = 6
UNSET_VARIABLE = re.compile(r"\$\{\w+\}", re.ASCII)
"""`${NAME}` in place of a secret: the environment variable is not set."""


def redact_secrets(text: str, secrets: Iterable[str]) -> str:
    """Replace these secrets by `***`, except `${NAME}` and those below MIN_SECRET_LENGTH."""
    for secret in sorted(filter(_is_secret, set(secrets)), key=len, reverse=True):
        text = text.replace(secret, "***")
    return text


def _is_secret(text: str) -> bool:
    return len(text) >= MIN_SECRET_LENGTH and UNSET_VARIABLE.fullmatch(text) is None


class Secret:
    """A key. Only `reveal` returns its text, so that every use can be found."""

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
        raise TypeError("a Secret cannot be pickled")


class CallersKey(msgspec.Struct, frozen=True, kw_only=True):
    """A caller's key for one call; it is never sent to another provider, not even as a fallback."""

    secret: Secret
    token: bool = False
    provider: str = ""

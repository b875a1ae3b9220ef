"""What an HTTP status other than success means: the error it stands for, and what to do about it.

Shared by all providers that speak HTTP. Looks at status and headers, never at an error's prose.
"""

import math
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from cllm.core.errors import (
    AuthenticationError,
    BadReplyError,
    InvalidRequestError,
    PermissionDeniedError,
    PromptTooLongError,
    ProviderError,
    RateLimitedError,
    UpstreamError,
)

Meaning = tuple[type[ProviderError], str]

TOO_LONG: Meaning = (
    PromptTooLongError,
    "Use a model with a larger window, or start a new conversation.",
)
BY_STATUS: dict[int, Meaning] = {
    401: (AuthenticationError, "Check the API key."),
    403: (PermissionDeniedError, "Check what the API key may do."),
    408: (UpstreamError, "It took too long; ask again."),
    424: (UpstreamError, "The trouble is on its side; ask again later."),
    404: (InvalidRequestError, "Check the model's name and api_base."),
    429: (RateLimitedError, "Wait a little and ask again."),
}
BY_HUNDRED: dict[int, Meaning] = {
    4: (InvalidRequestError, "Check the model's name and the request's settings."),
    5: (UpstreamError, "The trouble is on its side; ask again later."),
}
OTHERWISE: Meaning = (BadReplyError, "Check api_base.")
SHOWN_LENGTH = 300


def meaning_of(status: int) -> Meaning:
    """The error that a status stands for, and advice."""
    return BY_STATUS.get(status) or BY_HUNDRED.get(status // 100, OTHERWISE)


def check_key(key: str | None, *, provider: str) -> None:
    """Refuse a key that could not stand in a header, before it is taken for a bad address."""
    if key is not None and not (key.isascii() and key.isprintable()):
        raise AuthenticationError(
            f"The API key of provider '{provider}' has characters that no key has; check it.",
            provider=provider,
        )


def one_line(text: str, *, secrets: Iterable[str | None] = ()) -> str:
    """What a server said, short, on one line, and without our keys should it have said one."""
    line = " ".join(text.split())
    for secret in secrets:
        line = line.replace(secret, "***") if secret else line
    return line if len(line) <= SHOWN_LENGTH else line[: SHOWN_LENGTH - 1] + "…"


def retry_after(headers: Mapping[str, str], *, now: datetime) -> float | None:
    """The seconds a provider asks to wait, given as a number or as a date."""
    value = headers.get("Retry-After", "").strip()
    seconds = _as_number(value)
    if seconds is None:
        seconds = _as_date(value, now)
    if seconds is None or not math.isfinite(seconds):
        return None
    return max(seconds, 0.0)


def _as_number(value: str) -> float | None:
    try:
        return float(value)
    except ValueError:
        return None


def _as_date(value: str, now: datetime) -> float | None:
    try:
        when = parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    return ((when if when.tzinfo else when.replace(tzinfo=UTC)) - now).total_seconds()

"""What PostgreSQL and the way to it can say, as our errors: one sentence, told apart by type.

No sentence has an address, a user or a password in it, and nothing of what was to be stored.
"""

import ssl

import asyncpg

from cllm.core.errors import CllmError, StoreUnavailableError, UsageError

TOO_LARGE = "A number is too large to be kept; use a smaller one."
TOO_LONG = "This is more than PostgreSQL keeps in one piece; use a shorter text or name."
NOT_KEPT = (
    "The text has a NUL character or half of a character in it, which no database keeps; "
    "remove it and try again."
)

_LOST = (
    asyncpg.PostgresConnectionError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.IdleSessionTimeoutError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
)

ROLLED_BACK = (asyncpg.SerializationError, asyncpg.DeadlockDetectedError)
"""PostgreSQL has undone the transaction; the same one can be tried again."""

NOT_YET = (asyncpg.CannotConnectNowError, ConnectionError, FileNotFoundError)
"""No connection was made: the server starts, stops, or is not there."""

_UNREADABLE = (asyncpg.CharacterNotInRepertoireError, asyncpg.UntranslatableCharacterError)

FAILURES = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError, OSError)
"""Everything that goes wrong between us and a database; time-outs are OSErrors."""

_UNREACHABLE = (
    "PostgreSQL cannot be reached; check that it runs and that the store's URL is right, "
    "then ask again."
)
_SENTENCES: tuple[tuple[type[BaseException], str], ...] = (
    (
        asyncpg.InvalidAuthorizationSpecificationError,
        "PostgreSQL refuses the user or the password in the store's URL; correct them.",
    ),
    (
        asyncpg.InvalidCatalogNameError,
        "PostgreSQL has no database of the name in the store's URL; create it first.",
    ),
    (
        asyncpg.TooManyConnectionsError,
        "PostgreSQL has no connection left for us; make the pools smaller or allow more.",
    ),
    (
        asyncpg.DiskFullError,
        "The disk of the PostgreSQL server is full, and nothing was stored; make room on it.",
    ),
    (
        asyncpg.ReadOnlySQLTransactionError,
        "This PostgreSQL server can only be read; use the URL of the one that can be written.",
    ),
    (
        asyncpg.InsufficientPrivilegeError,
        "The user in the store's URL may not do that in the database; grant it the right.",
    ),
    (TimeoutError, "PostgreSQL did not answer in time; ask again, and look at what keeps it busy."),
    (
        asyncpg.QueryCanceledError,
        "PostgreSQL did not answer in time; ask again, and look at what keeps it busy.",
    ),
    (ssl.SSLError, "No secure connection to PostgreSQL could be made; check sslmode in the URL."),
    (asyncpg.CannotConnectNowError, "PostgreSQL is starting or stopping; ask again in a moment."),
    (
        asyncpg.ClientConfigurationError,
        "The store's URL is not one that PostgreSQL understands; write postgresql://HOST/DATABASE.",
    ),
)


def is_lost(error: BaseException | None) -> bool:
    """Whether the connection is gone: what was sent on it may have been done, or not.

    A value that cannot be sent is an InterfaceError as well, and a ValueError beside.
    """
    return isinstance(error, _LOST) and not isinstance(error, TimeoutError | ValueError)


def our_error(error: BaseException) -> CllmError:
    """The error of ours for one of `FAILURES`."""
    if isinstance(error, _UNREADABLE) or isinstance(error.__cause__, UnicodeEncodeError):
        return UsageError(NOT_KEPT)
    if isinstance(error.__cause__, OverflowError):
        return UsageError(TOO_LARGE)
    if isinstance(error, asyncpg.ProgramLimitExceededError):
        return UsageError(TOO_LONG)
    for kind, sentence in _SENTENCES:
        if isinstance(error, kind):
            return StoreUnavailableError(sentence)
    if is_lost(error):
        return StoreUnavailableError(_UNREACHABLE)
    state = getattr(error, "sqlstate", None) or type(error).__name__
    return StoreUnavailableError(
        f"PostgreSQL refused the operation ({state}), and nothing was stored; "
        "look into its log for the reason."
    )

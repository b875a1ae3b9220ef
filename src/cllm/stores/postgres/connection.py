"""Connections to PostgreSQL: opened when needed, replaced when lost.

A connection is used for one statement or one short transaction. Behind a pooler (PgBouncer in
transaction mode) statements are unnamed, since the next may reach another server process; on a
direct connection they are prepared once. After a lost connection only work is repeated that cannot
have been done, or that may be done twice.
"""

import asyncio
import ssl
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import asyncpg
import msgspec

from cllm.core.errors import CllmError, SettingsError, StoreUnavailableError, UsageError
from cllm.core.extras import require_extra
from cllm.core.ports import Clock
from cllm.stores.sql import HEAD, VERSION_TABLE

if TYPE_CHECKING:
    import sqlalchemy as sa

TOO_LARGE = "A number is too large to be kept; use a smaller one."
TOO_LONG = "This is more than PostgreSQL keeps in one piece; use a shorter text or name."
INVALID_TEXT = (
    "The text has a NUL character or half of a character in it, which no database keeps; "
    "remove it and try again."
)

_CONNECTION_LOST = (
    asyncpg.PostgresConnectionError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.IdleSessionTimeoutError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
)

ROLLED_BACK = (asyncpg.SerializationError, asyncpg.DeadlockDetectedError)
"""PostgreSQL has rolled back; the transaction can be repeated."""

NOT_CONNECTED = (asyncpg.CannotConnectNowError, ConnectionError, FileNotFoundError)
"""No connection was made: the server is starting, stopping or absent."""

_UNREADABLE = (asyncpg.CharacterNotInRepertoireError, asyncpg.UntranslatableCharacterError)

DRIVER_ERRORS = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
)
"""All errors of the driver; time-outs are OSErrors."""

_UNREACHABLE = (
    "PostgreSQL cannot be reached; check that it runs and that the store's URL is right, "
    "then ask again."
)
_MESSAGES: tuple[tuple[type[BaseException], str], ...] = (
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


def is_connection_lost(error: BaseException | None) -> bool:
    """Whether the connection is gone: what was sent may have been done, or not.

    A value that cannot be sent is an InterfaceError and a ValueError.
    """
    return isinstance(error, _CONNECTION_LOST) and not isinstance(error, TimeoutError | ValueError)


def postgres_error(error: BaseException) -> CllmError:
    if isinstance(error, _UNREADABLE) or isinstance(error.__cause__, UnicodeEncodeError):
        return UsageError(INVALID_TEXT)
    if isinstance(error.__cause__, OverflowError):
        return UsageError(TOO_LARGE)
    if isinstance(error, asyncpg.ProgramLimitExceededError):
        return UsageError(TOO_LONG)
    for kind, sentence in _MESSAGES:
        if isinstance(error, kind):
            return StoreUnavailableError(sentence)
    if is_connection_lost(error):
        return StoreUnavailableError(_UNREACHABLE)
    state = getattr(error, "sqlstate", None) or type(error).__name__
    return StoreUnavailableError(
        f"PostgreSQL refused the operation ({state}), and nothing was stored; "
        "look into its log for the reason."
    )


T = TypeVar("T")
Connection: TypeAlias = "asyncpg.pool.PoolConnectionProxy[asyncpg.Record]"
Work = Callable[[Connection], Awaitable[T]]

PREPARED_STATEMENTS: Final = 200
_MAX_ATTEMPTS: Final = 3
_PAUSE: Final = 0.1
MAX_PAUSE: Final = 0.1
"""Seconds between two attempts at a lease, each of which is a query."""


class PoolOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The maximum of connections, and times in seconds.

    `patience`: how long to wait for a server that was reachable before, for example while it
    restarts.
    """

    size: int = 5
    idle: float = 300.0
    timeout: float = 30.0
    patience: float = 10.0


def split_url(url: str) -> tuple[str, PoolOptions]:
    """The URL without our own parameters, and these."""
    parts = urlsplit(url)
    given = parse_qsl(parts.query, keep_blank_values=True)
    ours = {name[5:]: value for name, value in given if name.startswith("pool_")}
    try:
        options = msgspec.convert(ours, PoolOptions, strict=False)
    except msgspec.ValidationError as error:
        raise SettingsError("an option 'pool_…' of the store's URL is not a number.") from error
    unknown = set(ours) - set(PoolOptions.__struct_fields__)
    if unknown or options.size < 1:
        known = ", ".join(f"pool_{name}" for name in PoolOptions.__struct_fields__)
        raise SettingsError(f"the store's URL may have {known}, and pool_size is at least 1.")
    theirs = urlencode([(name, value) for name, value in given if not name.startswith("pool_")])
    return urlunsplit(parts._replace(query=theirs)), options


class PostgresPool:
    def __init__(self, url: str, options: PoolOptions) -> None:
        self._url = url
        self._options = options
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None
        self._opening = asyncio.Lock()
        self._direct: bool | None = None

    async def fetch(
        self, sql: str, arguments: Sequence[Any], *, idempotent: bool = False
    ) -> list[asyncpg.Record]:
        """Run one statement. `idempotent`: send it again after a lost connection."""

        async def work(connection: Connection) -> list[asyncpg.Record]:
            return await connection.fetch(sql, *arguments)

        return await self.run(work, idempotent=idempotent)

    async def run(self, work: Work[T], *, idempotent: bool = False) -> T:
        return await self._tried(work, lambda error: idempotent and is_connection_lost(error))

    async def transact(self, work: Work[T], *, frozen: bool = False) -> T:
        """Do the work in one transaction, again if the connection is lost before the commit.

        `frozen`: all reads see the snapshot of its start.
        """
        ending = False

        async def within(connection: Connection) -> T:
            nonlocal ending
            ending = False
            transaction = connection.transaction(isolation="repeatable_read" if frozen else None)
            await transaction.start()
            try:
                done = await work(connection)
            except BaseException:
                if not connection.is_closed():
                    await transaction.rollback()
                raise
            ending = True
            await transaction.commit()
            return done

        return await self._tried(within, lambda error: not ending and is_connection_lost(error))

    async def _tried(self, work: Work[T], may_repeat: Callable[[BaseException], bool]) -> T:
        for attempt in range(_MAX_ATTEMPTS):
            is_last = attempt + 1 == _MAX_ATTEMPTS
            try:
                async with self._connection() as connection:
                    return await work(connection)
            except asyncpg.UniqueViolationError:
                raise
            except ROLLED_BACK as error:
                if is_last:
                    raise postgres_error(error) from error
            except DRIVER_ERRORS as error:
                if is_last or not may_repeat(error):
                    raise postgres_error(error) from error
        raise AssertionError

    async def close(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.terminate()

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Connection]:
        pool = await self._opened()
        connection = await self._acquired(pool)
        try:
            yield connection
        except asyncpg.InternalClientError:
            # The server died in the middle of a message.
            connection.terminate()
            raise
        finally:
            await pool.release(connection)

    async def _acquired(self, pool: "asyncpg.Pool[asyncpg.Record]") -> Connection:
        loop = asyncio.get_running_loop()
        until = loop.time() + self._options.patience
        while True:
            try:
                return await pool.acquire(timeout=self._options.timeout)
            except NOT_CONNECTED as error:
                if self._direct is None or loop.time() > until:
                    raise postgres_error(error) from error
            await asyncio.sleep(_PAUSE)

    async def _opened(self) -> "asyncpg.Pool[asyncpg.Record]":
        if self._pool is None:
            async with self._opening:
                if self._pool is None:
                    self._pool = await asyncpg.create_pool(
                        self._url,
                        min_size=0,
                        max_size=self._options.size,
                        max_inactive_connection_lifetime=self._options.idle,
                        command_timeout=self._options.timeout,
                        timeout=self._options.timeout,
                        connect=self._connect,
                        reset=_skip_reset,
                    )
        return self._pool

    async def _connect(self, *arguments: Any, **options: Any) -> "asyncpg.Connection[Any]":
        named = 0 if self._direct is False else PREPARED_STATEMENTS
        connection: asyncpg.Connection[Any] = await asyncpg.connect(
            *arguments, statement_cache_size=named, **options
        )
        if self._direct is None:
            try:
                self._direct = await _is_direct(connection)
            except BaseException:
                connection.terminate()
                raise
            if not self._direct:
                await connection.close()
                return await self._connect(*arguments, **options)
        return connection


async def _is_direct(connection: "asyncpg.Connection[Any]") -> bool:
    """Whether the connected process is the one that works; a pooler's is not."""
    statement = await connection.prepare("SELECT pg_backend_pid()", name="")
    return bool(await statement.fetchval() == connection.get_server_pid())


async def _skip_reset(_connection: "asyncpg.Connection[Any]") -> None: ...


MIGRATION_LOCK = 0x636C6C6D


def run_in_postgres(url: str, work: "Callable[[sa.Connection], T]") -> T:
    """Do the work in one transaction that excludes other migrations.

    In its own event loop and thread, so that it can be called anywhere.
    """
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="cllm-migration") as pool:
        return pool.submit(lambda: asyncio.run(_run_in_postgres(url, work))).result()


async def _run_in_postgres(url: str, work: "Callable[[sa.Connection], T]") -> T:
    import sqlalchemy as sa  # noqa: PLC0415 - only migrations need it

    with require_extra("postgres", feature="A database in PostgreSQL"):
        import_module("greenlet")  # for SQLAlchemy's asyncio engine
        from sqlalchemy.ext.asyncio import create_async_engine  # noqa: PLC0415

    target, _ = split_url(url)
    engine = create_async_engine(
        "postgresql+asyncpg://",
        async_creator=lambda: asyncpg.connect(target, statement_cache_size=0),
        # Behind a pooler another client may use the same statement name.
        connect_args={"prepared_statement_name_func": lambda: f"cllm_{uuid.uuid4().hex}"},
        poolclass=sa.pool.NullPool,
    )
    try:
        async with engine.begin() as connection:
            await connection.execute(
                sa.text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": MIGRATION_LOCK}
            )
            return await connection.run_sync(work)
    except sa.exc.DBAPIError as error:
        raise postgres_error(getattr(error.orig, "__cause__", None) or error) from error
    except DRIVER_ERRORS as error:
        raise postgres_error(error) from error
    finally:
        await engine.dispose()


class PostgresBase:
    def __init__(self, url: str, *, clock: Clock) -> None:
        self._url, options = split_url(url)
        self._clock = clock
        self._connections = PostgresPool(self._url, options)
        self._preparing = asyncio.Lock()
        self._is_ready = False

    async def _ready(self) -> PostgresPool:
        if not self._is_ready:
            async with self._preparing:
                if not self._is_ready:
                    await self._prepare()
                    self._is_ready = True
        return self._connections

    async def _prepare(self) -> None:
        if await self._connections.run(_read_revision, idempotent=True) == HEAD:
            return
        from cllm.stores.sql import migrate  # noqa: PLC0415 - imports SQLAlchemy

        await asyncio.to_thread(run_in_postgres, self._url, migrate.prepare)

    async def close(self) -> None:
        await self._connections.close()


async def _read_revision(connection: Connection) -> str | None:
    try:
        rows = await connection.fetch(f'SELECT version_num FROM "{VERSION_TABLE}"')  # noqa: S608
    except asyncpg.UndefinedTableError:
        return None
    found: str | None = rows[0][0] if len(rows) == 1 else None
    return found

"""Connections to PostgreSQL: opened when needed, replaced when lost.

A connection is used for one statement or one short transaction. Behind a pooler (PgBouncer in
transaction mode) statements are unnamed, since the next one may reach another server process; on a
direct connection they are prepared once. After a lost connection, work is repeated only if it
cannot have been done or is idempotent.
"""

import asyncio
import ssl
import uuid
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit, urlunsplit

import asyncpg
import msgspec

from cllm.core.errors import CllmError, SettingsError, StoreUnavailableError, UsageError
from cllm.core.extras import require_extra
from cllm.core.ports import Clock
from cllm.stores.sql import HEAD, VERSION_TABLE
from cllm.stores.sql.validation import invalid_text_error

if TYPE_CHECKING:
    import sqlalchemy as sa

TOO_LARGE = "A number is too large to store; use a smaller one."
TOO_LONG = "The value is too long for PostgreSQL; use a shorter text or name."

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
"""PostgreSQL rolled back; the transaction can be repeated."""

NOT_CONNECTED = (asyncpg.CannotConnectNowError, ConnectionError, FileNotFoundError)
"""Not connected: the server is starting, stopping or not running."""

_WRONG_PARAMETER = (asyncpg.ClientConfigurationError, asyncpg.UndefinedObjectError)
"""The driver or PostgreSQL names the parameter; neither repeats a password."""

_UNREADABLE = (asyncpg.CharacterNotInRepertoireError, asyncpg.UntranslatableCharacterError)

DRIVER_ERRORS = (
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    OSError,
)
"""All errors of the driver; timeouts are OSErrors."""

_UNREACHABLE = (
    "PostgreSQL cannot be reached; check that it is running and that the store URL is correct, "
    "then try again."
)
_TIMED_OUT = "PostgreSQL did not respond in time; try again, and check the load of the server."
_MESSAGES: tuple[tuple[type[BaseException], str], ...] = (
    (
        asyncpg.InvalidAuthorizationSpecificationError,
        "PostgreSQL rejected the user or the password in the store URL; correct them.",
    ),
    (
        asyncpg.InvalidCatalogNameError,
        "PostgreSQL has no database with the name in the store URL; create it first.",
    ),
    (
        asyncpg.TooManyConnectionsError,
        "PostgreSQL has no free connection; lower pool_size, or raise max_connections.",
    ),
    (
        asyncpg.DiskFullError,
        "The disk of the PostgreSQL server is full, and nothing was stored; free some space.",
    ),
    (
        asyncpg.ReadOnlySQLTransactionError,
        "This PostgreSQL server is read-only; use the URL of the primary server.",
    ),
    (
        asyncpg.InsufficientPrivilegeError,
        "The user in the store URL lacks a privilege in the database; grant it.",
    ),
    (TimeoutError, _TIMED_OUT),
    (asyncpg.QueryCanceledError, _TIMED_OUT),
    (ssl.SSLError, "The TLS connection to PostgreSQL failed; check sslmode in the store URL."),
    (asyncpg.CannotConnectNowError, "PostgreSQL is starting or stopping; try again in a moment."),
)


INVALID_URL = (
    "the store URL is not a valid PostgreSQL URL; write "
    "postgresql://USER:PASSWORD@HOST:PORT/DATABASE, with special characters of the password "
    "percent-encoded, such as %23 for #."
)
MAX_PORT = 65_535
ENCODING = "UTF8"


def is_connection_lost(error: BaseException | None) -> bool:
    """Whether the connection is lost: the statement may have run.

    A value that cannot be sent is an InterfaceError and a ValueError.
    """
    return isinstance(error, _CONNECTION_LOST) and not isinstance(error, TimeoutError | ValueError)


def postgres_error(error: BaseException) -> CllmError:
    return _invalid_value_error(error) or StoreUnavailableError(_describe_error(error))


def _invalid_value_error(error: BaseException) -> CllmError | None:
    if isinstance(error, _UNREADABLE) or isinstance(error.__cause__, UnicodeEncodeError):
        return invalid_text_error()
    if isinstance(error.__cause__, OverflowError):
        return UsageError(TOO_LARGE)
    if isinstance(error, asyncpg.ProgramLimitExceededError):
        return UsageError(TOO_LONG)
    return None


def _describe_error(error: BaseException) -> str:
    if isinstance(error, _WRONG_PARAMETER):
        return f"A parameter of the store URL cannot be used ({_first_line(error)}); correct it."
    for kind, message in _MESSAGES:
        if isinstance(error, kind):
            return message
    if is_connection_lost(error):
        return _UNREACHABLE
    state = getattr(error, "sqlstate", None) or type(error).__name__
    return (
        f"PostgreSQL rejected the operation ({state}), and nothing was stored; "
        "see its log for the reason."
    )


def _first_line(error: BaseException) -> str:
    """Return the error without its hint."""
    return str(error).partition("\n")[0].rstrip(".")


T = TypeVar("T")
Connection: TypeAlias = "asyncpg.pool.PoolConnectionProxy[asyncpg.Record]"
Work = Callable[[Connection], Awaitable[T]]

PREPARED_STATEMENTS: Final = 200
_MAX_ATTEMPTS: Final = 3
_PAUSE: Final = 0.1
MAX_PAUSE: Final = 0.1
"""Seconds between two attempts at a lease, each a query."""


class PoolOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The maximum number of connections, and times in seconds.

    `patience`: how long to wait for a server that restarts.
    """

    size: int = 5
    idle: float = 300.0
    timeout: float = 30.0
    patience: float = 10.0


def split_url(url: str) -> tuple[str, PoolOptions]:
    """Return the URL as asyncpg accepts it, without the `pool_…` parameters, and these."""
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise SettingsError(INVALID_URL) from error
    query = parse_qsl(parts.query, keep_blank_values=True)
    _check_address(parts, query)
    pool = {name[5:]: value for name, value in query if name.startswith("pool_")}
    try:
        options = msgspec.convert(pool, PoolOptions, strict=False)
    except msgspec.ValidationError as error:
        raise SettingsError(_describe_invalid_option(pool)) from error
    unknown = set(pool) - set(PoolOptions.__struct_fields__)
    if unknown or options.size < 1:
        names = ", ".join(f"pool_{name}" for name in PoolOptions.__struct_fields__)
        raise SettingsError(f"the store URL can have {names}; pool_size must be at least 1.")
    others = urlencode([(name, value) for name, value in query if not name.startswith("pool_")])
    return urlunsplit(parts._replace(scheme="postgresql", query=others)), options


def _check_address(parts: SplitResult, query: Sequence[tuple[str, str]]) -> None:
    """Raise SettingsError for a port that is none; the message has no part of the URL."""
    ports = [port for name, value in query if name == "port" for port in value.split(",")]
    for host in parts.netloc.rpartition("@")[2].split(","):
        _, colon, port = host.rpartition("]")[2].partition(":")
        ports += [port] if colon else []
    is_valid = all(port.isdecimal() and 0 < int(port) <= MAX_PORT for port in ports)
    if parts.fragment or not is_valid:
        raise SettingsError(INVALID_URL)


def _describe_invalid_option(pool: Mapping[str, str]) -> str:
    """Return the error text for the first option that is not a number."""
    defaults = msgspec.structs.asdict(PoolOptions())
    for name, default in defaults.items():
        try:
            msgspec.convert(pool.get(name, default), type(default), strict=False)
        except msgspec.ValidationError:
            return (
                f"`pool_{name}={pool[name]}` in the store URL is not a number; use a number such "
                f"as pool_{name}={default:g}."
            )
    return "an option of the store URL is not a number; correct it."


class PostgresPool:
    def __init__(self, url: str, options: PoolOptions) -> None:
        self._url = url
        self._options = options
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None
        self._opening = asyncio.Lock()
        self._is_direct: bool | None = None

    async def fetch(
        self, sql: str, arguments: Sequence[Any], *, idempotent: bool = False
    ) -> list[asyncpg.Record]:
        """Run one statement. `idempotent`: repeat it after a lost connection."""

        async def work(connection: Connection) -> list[asyncpg.Record]:
            return await connection.fetch(sql, *arguments)

        return await self.run(work, idempotent=idempotent)

    async def run(self, work: Work[T], *, idempotent: bool = False) -> T:
        return await self._retry(work, lambda error: idempotent and is_connection_lost(error))

    async def transact(self, work: Work[T], *, snapshot: bool = False) -> T:
        """Run the work in one transaction; repeat it if the connection is lost before the commit.

        `snapshot`: REPEATABLE READ.
        """
        is_committing = False

        async def run(connection: Connection) -> T:
            nonlocal is_committing
            is_committing = False
            transaction = connection.transaction(isolation="repeatable_read" if snapshot else None)
            await transaction.start()
            try:
                result = await work(connection)
            except BaseException:
                if not connection.is_closed():
                    await transaction.rollback()
                raise
            is_committing = True
            await transaction.commit()
            return result

        return await self._retry(run, lambda error: not is_committing and is_connection_lost(error))

    @asynccontextmanager
    async def hold_snapshot(self) -> AsyncIterator[Connection]:
        """Yield a connection in one REPEATABLE READ transaction that cannot write."""
        try:
            async with self._connection() as connection:
                transaction = connection.transaction(isolation="repeatable_read", readonly=True)
                await transaction.start()
                try:
                    yield connection
                finally:
                    if not connection.is_closed():
                        await transaction.rollback()
        except DRIVER_ERRORS as error:
            raise postgres_error(error) from error

    async def _retry(self, work: Work[T], can_repeat: Callable[[BaseException], bool]) -> T:
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
                if is_last or not can_repeat(error):
                    raise postgres_error(error) from error
        raise AssertionError

    async def close(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.terminate()

    @asynccontextmanager
    async def _connection(self) -> AsyncIterator[Connection]:
        pool = await self._open_pool()
        connection = await self._acquire(pool)
        try:
            yield connection
        except asyncpg.InternalClientError:
            # The server died in the middle of a message.
            connection.terminate()
            raise
        finally:
            await pool.release(connection)

    async def _acquire(self, pool: "asyncpg.Pool[asyncpg.Record]") -> Connection:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._options.patience
        while True:
            try:
                return await pool.acquire(timeout=self._options.timeout)
            except NOT_CONNECTED as error:
                if self._is_direct is None or loop.time() > deadline:
                    raise postgres_error(error) from error
            await asyncio.sleep(_PAUSE)

    async def _open_pool(self) -> "asyncpg.Pool[asyncpg.Record]":
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
        cache_size = 0 if self._is_direct is False else PREPARED_STATEMENTS
        connection: asyncpg.Connection[Any] = await asyncpg.connect(
            *arguments, statement_cache_size=cache_size, **options
        )
        if self._is_direct is None:
            try:
                await check_encoding(connection)
                self._is_direct = await _is_direct(connection)
            except BaseException:
                connection.terminate()
                raise
            if not self._is_direct:
                await connection.close()
                return await self._connect(*arguments, **options)
        return connection


async def check_encoding(connection: "asyncpg.Connection[Any]") -> None:
    """Raise StoreUnavailableError if the database cannot store every text."""
    encoding = getattr(connection.get_settings(), "server_encoding", None)
    if encoding is None:
        # Not every pooler reports it.
        statement = await connection.prepare("SHOW server_encoding", name="")
        encoding = await statement.fetchval()
    if encoding != ENCODING:
        raise StoreUnavailableError(
            f"The database has the encoding {encoding}, and cllm needs {ENCODING}; create another "
            f"one with: createdb --encoding={ENCODING} --locale=C.UTF-8 --template=template0 NAME"
        )


async def _is_direct(connection: "asyncpg.Connection[Any]") -> bool:
    """Whether the connected process runs the statements; a pooler's process does not."""
    statement = await connection.prepare("SELECT pg_backend_pid()", name="")
    return bool(await statement.fetchval() == connection.get_server_pid())


async def _skip_reset(_connection: "asyncpg.Connection[Any]") -> None: ...


MIGRATION_LOCK = 0x636C6C6D


def run_in_postgres(url: str, work: "Callable[[sa.Connection], T]") -> T:
    """Run the work in one transaction that excludes other migrations.

    Uses a separate event loop and thread, so that it can be called anywhere.
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
        async_creator=lambda: _connect_for_migration(target),
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


async def _connect_for_migration(target: str) -> "asyncpg.Connection[Any]":
    connection = await asyncpg.connect(target, statement_cache_size=0)
    try:
        await check_encoding(connection)
    except BaseException:
        connection.terminate()
        raise
    return connection


class PostgresBase(ABC):
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

    @abstractmethod
    async def _settle_dead_turns(self, owner: str) -> PostgresPool:
        """End the owner's turns whose process died; return the pool."""

    async def _prepare(self) -> None:
        if await self._connections.run(read_revision, idempotent=True) == HEAD:
            return
        from cllm.stores.sql import migrate  # noqa: PLC0415 - imports SQLAlchemy

        await asyncio.to_thread(run_in_postgres, self._url, migrate.prepare)

    async def close(self) -> None:
        await self._connections.close()


async def read_revision(connection: Connection) -> str | None:
    try:
        rows = await connection.fetch(f'SELECT version_num FROM "{VERSION_TABLE}"')  # noqa: S608
    except asyncpg.UndefinedTableError:
        return None
    revision: str | None = rows[0][0] if len(rows) == 1 else None
    return revision

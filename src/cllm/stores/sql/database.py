"""A database by its store URL, for `cllm db`.

Converts errors of the engine to StoreError, without the password.
"""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from cllm.core.errors import StoreError, StoreUnavailableError, UsageError
from cllm.core.extras import require_extra
from cllm.stores.registry import SCHEME_ALIASES, normalize_url
from cllm.stores.sql.rows import UnreadableRowError
from cllm.stores.sqlite.connection import (
    check_regular_file,
    create_private_file,
    erase_deleted_rows,
    run_in_sqlite,
    sqlite_error,
)
from cllm.stores.sqlite.store import parse_location

T = TypeVar("T")

POSTGRES = "postgresql"


class Database:
    def __init__(self, url: str) -> None:
        scheme, _, location = normalize_url(url).partition(":")
        self._url = url
        self._path: Path | None = None
        if scheme == "sqlite":
            self._path = parse_location(location)[0]
        elif SCHEME_ALIASES.get(scheme, scheme) != POSTGRES:
            raise UsageError(
                f"The store '{scheme}:' is not a database; use --store sqlite:PATH or "
                "--store postgresql://…"
            )

    def run(self, work: Callable[[sa.Connection], T], *, create: bool = False) -> T:
        """Run the work in one transaction; `create` creates a missing file."""
        if self._path is not None:
            _check_file(self._path, create=create)
        try:
            if self._path is not None:
                return run_in_sqlite(self._path, work)
            with require_extra("postgres", feature="A database in PostgreSQL"):
                from cllm.stores.postgres.connection import run_in_postgres  # noqa: PLC0415
            return run_in_postgres(self._url, work)
        except sqlite3.Error as error:
            raise self._unavailable(error) from error
        except DBAPIError as error:
            raise self._unavailable(error.orig) from error
        except (OSError, SQLAlchemyError) as error:
            raise self._unavailable(error) from error
        except UnreadableRowError as error:
            raise StoreUnavailableError(
                f"The database has a row that cannot be read ({error.reason}); repair it and try "
                "again. The database was not changed."
            ) from error

    def erase_deleted_rows(self) -> None:
        """Erase deleted rows from an SQLite file; PostgreSQL does that itself."""
        if self._path is None:
            return
        try:
            erase_deleted_rows(self._path)
        except sqlite3.Error as error:
            raise self._unavailable(error) from error

    def _unavailable(self, error: BaseException | None) -> StoreError:
        if self._path is not None and isinstance(error, sqlite3.Error):
            return sqlite_error(self._path, error)
        return StoreUnavailableError(
            f"The database cannot be used ({type(error).__name__}); check the store URL, and that "
            "the server is running and accepts your user."
        )


def _check_file(path: Path, *, create: bool) -> None:
    if create:
        create_private_file(path)
    elif path.exists():
        check_regular_file(path)
    else:
        raise StoreUnavailableError(
            f"{path} does not exist; name another file with --store sqlite:PATH.", path=str(path)
        )

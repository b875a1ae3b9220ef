"""Write-ahead logging of an SQLite file that several processes open at the same time."""

import sqlite3
import time

PRIMARY_CODE = 0xFF
_PAUSE = 0.02


def enable_write_ahead_log(connection: sqlite3.Connection, seconds: float) -> None:
    """Switch to write-ahead logging; retry for `seconds` while another process does the same.

    SQLite does not wait for its busy timeout here.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            is_busy = error.sqlite_errorcode & PRIMARY_CODE == sqlite3.SQLITE_BUSY
            if not is_busy or time.monotonic() > deadline:
                raise
            time.sleep(_PAUSE)
        else:
            return

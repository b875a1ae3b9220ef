"""What can be wrong with an SQLite file, in our words."""

import sqlite3
from pathlib import Path

from cllm.core.errors import StoreError, StoreUnavailableError

PRIMARY_CODE = 0xFF
_SENTENCES = {
    sqlite3.SQLITE_FULL: "{path} cannot grow, the disk is full; free some space and ask again.",
    sqlite3.SQLITE_IOERR: "{path} cannot be read or written; check the disk and its free space.",
    sqlite3.SQLITE_READONLY: "{path} cannot be written; check its permissions and its folder's.",
    sqlite3.SQLITE_PERM: "{path} cannot be used; check its permissions and its folder's.",
    sqlite3.SQLITE_CANTOPEN: "{path} cannot be opened; check that its folder is there and yours.",
    sqlite3.SQLITE_BUSY: "{path} is locked by another program; wait for it, then ask again.",
    sqlite3.SQLITE_LOCKED: "{path} is locked by another program; wait for it, then ask again.",
    sqlite3.SQLITE_NOTADB: "{path} is not an SQLite database; name another file in the store URL.",
    sqlite3.SQLITE_CORRUPT: "{path} is damaged; bring back a copy of it.",
    sqlite3.SQLITE_TOOBIG: "This is more than {path} can hold in one piece; say it in parts.",
}
_OTHER = "{path} cannot be used ({reason}); check that it is a database of cllm."


def unavailable(path: Path, error: sqlite3.Error) -> StoreError:
    """What is wrong with the file, in our words."""
    code = getattr(error, "sqlite_errorcode", None)
    sentence = _OTHER if code is None else _SENTENCES.get(code & PRIMARY_CODE, _OTHER)
    return StoreUnavailableError(sentence.format(path=path, reason=error), path=str(path))

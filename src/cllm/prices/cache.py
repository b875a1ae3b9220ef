"""Files that spare the loading of genai-prices: one for each model that was looked up.

They only save time. A file that is missing, damaged, another's or of another version is ignored,
and a failure to write one fails nothing. A name is a hash, whatever the model is called, and a
file is replaced whole.
"""

import contextlib
import functools
import hashlib
import os
import stat
import zlib
from importlib.util import find_spec
from pathlib import Path

import msgspec

from cllm.prices.names import TableEntry
from cllm.prices.record import ModelRecord

PACKAGE = "genai_prices"
FORMAT = 2
"""To be raised when a record, or how one is made from the table, changes."""

SUFFIX = ".json"
UNFINISHED = ".tmp"
LARGEST_FILE = 64 * 1024
DEFAULT_MAX_FILES = 512


class _Kept(msgspec.Struct, frozen=True, kw_only=True):
    checksum: int
    record: msgspec.Raw


class RecordFiles(msgspec.Struct, frozen=True, kw_only=True):
    """The records in one folder, made from one version of the table; the oldest go first."""

    folder: Path
    version: str
    max_files: int = DEFAULT_MAX_FILES

    def read(self, entry: TableEntry) -> ModelRecord | None:
        name = self._name(entry)
        try:
            kept = msgspec.json.decode(_read_small(self.folder / name), type=_Kept)
            if kept.checksum != _checksum(name, kept.record):
                return None
            return msgspec.json.decode(kept.record, type=ModelRecord)
        except (OSError, ValueError, RecursionError, msgspec.DecodeError):
            return None

    def write(self, entry: TableEntry, record: ModelRecord) -> None:
        name = self._name(entry)
        encoded = msgspec.json.encode(record)
        kept = _Kept(checksum=_checksum(name, encoded), record=msgspec.Raw(encoded))
        with contextlib.suppress(OSError):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.folder.chmod(0o700)
            _replace(self.folder / name, msgspec.json.encode(kept))
            self._make_room()

    def _name(self, entry: TableEntry) -> str:
        key = repr((FORMAT, self.version, entry.provider, entry.model))
        return hashlib.sha256(key.encode()).hexdigest()[:32] + SUFFIX

    def _make_room(self) -> None:
        kept = [*self.folder.glob(f"*{SUFFIX}"), *self.folder.glob(f"*{UNFINISHED}")]
        if len(kept) <= self.max_files:
            return
        for path in sorted(kept, key=_written_at)[: len(kept) - self.max_files]:
            with contextlib.suppress(OSError):
                path.unlink()


@functools.cache
def installed_version() -> str | None:
    """The version of genai-prices, without loading it; None if that cannot be told.

    Its name beside the package says so. importlib.metadata does too, for 30 ms.
    """
    spec = find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        return None
    start, end = f"{PACKAGE}-", ".dist-info"
    beside = Path(spec.origin).parent.parent
    found = [path.name for path in beside.glob(f"{start}*{end}")]
    return found[0].removeprefix(start).removesuffix(end) if len(found) == 1 else None


def _checksum(name: str, record: bytes | msgspec.Raw) -> int:
    """Of the name too, so that a file under another's name is not taken for its."""
    return zlib.crc32(record, zlib.crc32(name.encode()))


def _read_small(path: Path) -> bytes:
    # A pipe or a device under this name must not make anybody wait.
    opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(opened, "rb", buffering=0) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            return b""
        return file.read(LARGEST_FILE) or b""


def _replace(path: Path, data: bytes) -> None:
    temporary = path.with_name(os.urandom(8).hex() + UNFINISHED)
    try:
        opened = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(opened, "wb") as file:
            file.write(data)
        temporary.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def _written_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0

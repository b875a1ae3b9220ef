"""Schemas that were fetched, one file each.

They save a request, and are all there is offline. A file that is missing, damaged or another's is
ignored, and a failure to write one fails nothing. A name is a hash, whatever the address is, and a
file is replaced whole.
"""

import contextlib
import hashlib
import os
import stat
from pathlib import Path

import msgspec

from cllm.core.errors import StoreUnavailableError

SUFFIX = ".json"
UNFINISHED = ".tmp"
MAX_FILES = 256
LARGEST_FILE = 256 * 1024 * 1024


class CachedSchema(msgspec.Struct, frozen=True, kw_only=True):
    """What an address gave, and when (seconds since 1970)."""

    address: str
    fetched_at: float
    text: str


class SchemaCache(msgspec.Struct, frozen=True, kw_only=True):
    """The fetched schemas in one folder; the oldest go first."""

    folder: Path
    max_files: int = MAX_FILES

    def read(self, address: str) -> CachedSchema | None:
        try:
            cached = msgspec.json.decode(_read_file(self._path(address)), type=CachedSchema)
        except (OSError, ValueError, msgspec.DecodeError):
            return None
        return cached if cached.address == address else None

    def write(self, cached: CachedSchema) -> None:
        with contextlib.suppress(OSError):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.folder.chmod(0o700)
            _replace(self._path(cached.address), msgspec.json.encode(cached))
            self._make_room()

    def clear(self) -> int:
        """Delete all of them; how many there were."""
        count = 0
        try:
            for path in self._files():
                path.unlink(missing_ok=True)
                count += path.suffix == SUFFIX
        except OSError as error:
            reason = os.strerror(error.errno or 0).lower()
            raise StoreUnavailableError(
                f"The cached schemas in {self.folder} cannot be deleted ({reason}).",
                path=str(self.folder),
            ) from error
        return count

    def _path(self, address: str) -> Path:
        return self.folder / (hashlib.sha256(address.encode()).hexdigest() + SUFFIX)

    def _files(self) -> list[Path]:
        return [*self.folder.glob(f"*{SUFFIX}"), *self.folder.glob(f"*{UNFINISHED}")]

    def _make_room(self) -> None:
        kept = self._files()
        if len(kept) <= self.max_files:
            return
        for path in sorted(kept, key=_written_at)[: len(kept) - self.max_files]:
            path.unlink(missing_ok=True)


def _read_file(path: Path) -> bytes:
    # A pipe or a device under this name must not make anybody wait.
    opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(opened, "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_size > LARGEST_FILE:
            return b""
        return file.read(LARGEST_FILE)


def _replace(path: Path, data: bytes) -> None:
    temporary = path.with_name(os.urandom(8).hex() + UNFINISHED)
    try:
        opened = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(opened, "wb") as file:
            file.write(data)
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def _written_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0

"""Slot files: what the model had computed of a conversation when its last turn ended.

They only save time. A file that is missing, damaged or another's is ignored and deleted, and a
failure to write one never fails a turn. llama.cpp dies of a damaged file, so each one carries
its checksum in its name and is checked before it is used.

A name is `<conversation>.<model>.<checksum>.bin`, hashes all three, so that a conversation's
files are found without knowing its models. A file is never changed under its name.
"""

import contextlib
import hashlib
import os
import secrets
import stat
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import msgspec

SUFFIX = ".bin"
UNFINISHED = ".saving"
DEFAULT_MAX_BYTES = 512 * 1024 * 1024
DEFAULT_MAX_FILES = 64
ABANDONED_AFTER_SECONDS = 3600
CHUNK_BYTES = 1024 * 1024


class SlotFiles(msgspec.Struct, frozen=True, kw_only=True):
    """The slot files in one folder, the least recently used of which go first."""

    folder: Path
    max_bytes: int = DEFAULT_MAX_BYTES
    max_files: int = DEFAULT_MAX_FILES

    def open_folder(self) -> None:
        """Make the folder, for the person alone."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.folder.chmod(0o700)

    def find(self, cache_key: str, model: str) -> Path | None:
        """The newest sound slot file of the conversation under that model; marks it as used."""
        for path in sorted(self._files(_stem(cache_key, model)), key=_used_at, reverse=True):
            if _checksum(path) == path.name.split(".")[2]:
                with contextlib.suppress(OSError):
                    os.utime(path)
                return path
            self.drop(path)
        return None

    def new_name(self) -> str:
        """A name in the folder, of its own, for a file that is being written."""
        return secrets.token_hex(8) + UNFINISHED

    def keep(self, unfinished: str, cache_key: str, model: str) -> Path | None:
        """Give a file that has been written its name; None if it is not there to be named."""
        written = self.folder / unfinished
        checksum = _checksum(written)
        if checksum is None:
            return None
        stem = _stem(cache_key, model)
        path = self.folder / f"{stem}.{checksum}{SUFFIX}"
        try:
            written.chmod(0o600)
            written.replace(path)
        except OSError:
            self.drop(written)
            return None
        for older in self._files(stem):
            if older != path:
                self.drop(older)
        self._make_room()
        return path

    def drop(self, path: Path) -> None:
        with contextlib.suppress(OSError):
            path.unlink()

    def forget(self, cache_key: str) -> None:
        """Delete what any model had computed of the conversation."""
        for path in self._files(_short_hash(cache_key)):
            self.drop(path)

    def _files(self, stem: str = "") -> Iterator[Path]:
        pattern = f"{stem}.*{SUFFIX}" if stem else f"*{SUFFIX}"
        yield from list(self.folder.glob(pattern))

    def _make_room(self) -> None:
        size = 0
        for count, path in enumerate(sorted(self._files(), key=_used_at, reverse=True), start=1):
            size += _size(path)
            if count > 1 and (count > self.max_files or size > self.max_bytes):
                self.drop(path)
        for path in self.folder.glob(f"*{UNFINISHED}"):
            if time.time() - _used_at(path) > ABANDONED_AFTER_SECONDS:
                self.drop(path)


def _stem(cache_key: str, model: str) -> str:
    return f"{_short_hash(cache_key)}.{_short_hash(model)}"


def _short_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _used_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _checksum(path: Path) -> str | None:
    """The file's checksum and length in hexadecimal; None if it cannot be read."""
    checksum = size = 0
    try:
        # A pipe or a device under this name must not make anybody wait.
        opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(opened, "rb", buffering=0) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return None
            while chunk := file.read(CHUNK_BYTES):
                checksum = zlib.crc32(chunk, checksum)
                size += len(chunk)
    except OSError:
        return None
    return f"{checksum:08x}{size:x}"

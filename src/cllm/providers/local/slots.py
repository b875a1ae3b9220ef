"""Slot files: the state of the model after the last turn of a conversation.

They only save time, so no failure here fails a turn. A damaged file crashes llama.cpp: a file is
named `<conversation>.<model>.<checksum>.bin`, never changes, and is verified before use.
"""

import contextlib
import hashlib
import os
import secrets
import stat
import time
import zlib
from pathlib import Path

import msgspec

SUFFIX = ".bin"
UNFINISHED = ".saving"
DEFAULT_MAX_BYTES = 512 * 1024 * 1024
DEFAULT_MAX_FILES = 64
ABANDONED_AFTER_SECONDS = 3600
CHUNK_BYTES = 1024 * 1024


class SlotFiles(msgspec.Struct, frozen=True, kw_only=True):
    """The slot files in one folder; the least recently used are deleted first."""

    folder: Path
    max_bytes: int = DEFAULT_MAX_BYTES
    max_files: int = DEFAULT_MAX_FILES

    def create_folder(self) -> None:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.folder.chmod(0o700)

    def find(self, cache_key: str, model: str) -> Path | None:
        """Return the newest valid file and update its time of use."""
        for path in sorted(self._files(_stem(cache_key, model)), key=_use_and_size, reverse=True):
            if _checksum(path) == path.name.split(".")[2]:
                with contextlib.suppress(OSError):
                    os.utime(path)
                return path
            self.delete(path)
        return None

    def new_name(self) -> str:
        return secrets.token_hex(8) + UNFINISHED

    def commit(self, unfinished: str, cache_key: str, model: str) -> Path | None:
        """Rename a complete file to its final name; None if that fails."""
        file = self.folder / unfinished
        checksum = _checksum(file)
        if checksum is None:
            return None
        stem = _stem(cache_key, model)
        path = self.folder / f"{stem}.{checksum}{SUFFIX}"
        try:
            file.chmod(0o600)
            file.replace(path)
        except OSError:
            self.delete(file)
            return None
        for older in self._files(stem):
            if older != path:
                self.delete(older)
        self._delete_surplus()
        return path

    def delete(self, path: Path) -> None:
        with contextlib.suppress(OSError):
            path.unlink()

    def delete_conversation(self, cache_key: str) -> None:
        """For all models."""
        for path in self._files(_short_hash(cache_key)):
            self.delete(path)

    def _files(self, stem: str = "*") -> list[Path]:
        return list(self.folder.glob(f"{stem}.*{SUFFIX}"))

    def _delete_surplus(self) -> None:
        size = 0
        for count, path in enumerate(
            sorted(self._files(), key=_use_and_size, reverse=True), start=1
        ):
            size += _use_and_size(path)[1]
            if count > 1 and (count > self.max_files or size > self.max_bytes):
                self.delete(path)
        for path in self.folder.glob(f"*{UNFINISHED}"):
            if time.time() - _use_and_size(path)[0] > ABANDONED_AFTER_SECONDS:
                self.delete(path)


def _stem(cache_key: str, model: str) -> str:
    return f"{_short_hash(cache_key)}.{_short_hash(model)}"


def _short_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _use_and_size(path: Path) -> tuple[float, int]:
    """Return the time of the last use and the size; zeros without a file."""
    try:
        status = path.stat()
    except OSError:
        return 0.0, 0
    return status.st_mtime, status.st_size


def _checksum(path: Path) -> str | None:
    """Return the CRC-32 and the size; None if the file cannot be read."""
    checksum = size = 0
    try:
        # Opening a pipe or a device must not block.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb", buffering=0) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return None
            while chunk := file.read(CHUNK_BYTES):
                checksum = zlib.crc32(chunk, checksum)
                size += len(chunk)
    except OSError:
        return None
    return f"{checksum:08x}{size:x}"

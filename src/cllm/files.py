"""Regular files up to a size, new private files, cache folders, and comparison of paths."""

import contextlib
import hashlib
import os
import stat
from collections.abc import Mapping
from pathlib import Path

import msgspec


class NotRegularFileError(OSError):
    """The path is a pipe or a device: opening could block, reading might not end."""


class FileTooLargeError(OSError):
    """The file is larger than the limit."""


def read_regular_file(path: str | Path, *, limit: int, flags: int = 0) -> bytes:
    """Raises NotRegularFileError, FileTooLargeError or another OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | flags)
    try:
        opened = os.fdopen(descriptor, "rb")
    except OSError:
        # A folder; os.fdopen leaves its descriptor open.
        os.close(descriptor)
        raise
    with opened as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise NotRegularFileError(path)
        data = file.read(limit + 1)
    if len(data) > limit:
        raise FileTooLargeError(path)
    return data


def write_new_file(path: Path, data: bytes) -> None:
    """Create a file that only its owner can read; FileExistsError if it exists."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        path.unlink(missing_ok=True)
        raise


def is_same_file(one: Path, other: Path) -> bool:
    """Whether two paths, with any links, lead to one file or folder, which may not exist."""
    try:
        return one.samefile(other)
    except OSError:
        return os.path.realpath(one) == os.path.realpath(other)


def find_cache_folder(environ: Mapping[str, str], *, home: Path) -> Path:
    """Return the user's cache folder of cllm, which may not exist."""
    base = Path(environ.get("XDG_CACHE_HOME", ""))
    return (base if base.is_absolute() else home / ".cache") / "cllm"


class CacheFolder(msgspec.Struct, frozen=True, kw_only=True):
    """A cache on disk. Deletes the oldest files above `max_files`; ignores I/O errors."""

    folder: Path
    max_files: int
    max_bytes: int

    def read(self, key: str) -> bytes | None:
        try:
            return read_regular_file(self._path(key), limit=self.max_bytes, flags=os.O_NOFOLLOW)
        except OSError:
            return None

    def read_all(self) -> list[bytes]:
        """Return the complete files, in any order."""
        contents: list[bytes] = []
        for path in self.folder.glob("*.json"):
            with contextlib.suppress(OSError):
                contents.append(read_regular_file(path, limit=self.max_bytes, flags=os.O_NOFOLLOW))
        return contents

    def write(self, key: str, data: bytes) -> None:
        with contextlib.suppress(OSError):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.folder.chmod(0o700)
            temporary = self.folder / f"{os.urandom(8).hex()}.tmp"
            try:
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
                with os.fdopen(os.open(temporary, flags, 0o600), "wb") as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                temporary.replace(self._path(key))
            finally:
                temporary.unlink(missing_ok=True)
            files = self._files()
            if len(files) > self.max_files:
                files.sort(key=lambda path: path.lstat().st_mtime)
                for path in files[: len(files) - self.max_files]:
                    path.unlink(missing_ok=True)

    def clear(self) -> int:
        """Delete all files; return the number of complete ones."""
        files = self._files()
        for path in files:
            path.unlink(missing_ok=True)
        return sum(path.suffix == ".json" for path in files)

    def _path(self, key: str) -> Path:
        return self.folder / f"{hashlib.sha256(key.encode()).hexdigest()}.json"

    def _files(self) -> list[Path]:
        return [*self.folder.glob("*.json"), *self.folder.glob("*.tmp")]

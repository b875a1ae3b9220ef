"""Durable writes: write a temporary file, fsync it, rename it, fsync the folder.

After `write_file` returns, a crash of the machine does not lose the file.
"""

import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cllm.core.errors import StoreUnavailableError

MAX_FILE_BYTES = 1 << 30

_REASONS = {
    errno.ENOSPC: "the disk is full; free some space and try again",
    errno.EDQUOT: "your disk quota is used up; free some space and try again",
    errno.EFBIG: "the file would be larger than allowed here; start another conversation",
    errno.EACCES: "permission denied; {advice}",
    errno.EPERM: "permission denied; {advice}",
    errno.EROFS: "the file system is read-only; {advice}",
    errno.ENOTDIR: "a file is in the way; {advice}",
    errno.EEXIST: "a file is in the way; {advice}",
    errno.ENAMETOOLONG: "its name is too long; choose a shorter one",
    errno.ELOOP: "a symbolic link is in the way; replace it with the file itself",
}


OTHER_FOLDER = "choose another folder with --conversations-path"
CHECK_FOLDER = "check the folder and its permissions"
"""Advice for files that are not conversations."""


class NotAFileError(OSError):
    """The path is not a regular file of a readable size."""


def file_error(
    error: OSError, path: Path, *, action: str, advice: str = OTHER_FOLDER
) -> StoreUnavailableError:
    reason = _REASONS.get(error.errno or 0, "{error}; {advice}")
    text = reason.format(error=error.strerror or error, advice=advice)
    return StoreUnavailableError(f"Cannot {action} {path}: {text}.", path=str(path))


def read_file(path: Path) -> tuple[bytes, float]:
    # Without O_NONBLOCK, opening a pipe would block.
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise NotAFileError("it is not a regular file")
        if status.st_size > MAX_FILE_BYTES:
            raise NotAFileError("it is larger than 1 GiB")
        pieces = []
        while piece := os.read(fd, max(status.st_size + 1, 65536)):
            pieces.append(piece)
    finally:
        os.close(fd)
    return b"".join(pieces), status.st_mtime


def write_file(folder: Path, name: str, data: bytes, *, advice: str = OTHER_FOLDER) -> None:
    """Replace the file. The caller holds its lock. `advice` is part of the error."""
    path = folder / name
    temporary = temporary_path(folder, name)
    try:
        fd = _open_new(temporary)
        try:
            try:
                _write_all(fd, data)
                os.fsync(fd)
            finally:
                os.close(fd)
            temporary.replace(path)
        except BaseException:
            with suppress(OSError):
                temporary.unlink()
            raise
        fsync_folder(folder)
    except OSError as error:
        raise file_error(error, path, action="write", advice=advice) from error


def remove_file(folder: Path, name: str) -> None:
    """Delete the file, and the temporary file that a killed process left."""
    path = folder / name
    try:
        with suppress(FileNotFoundError):
            temporary_path(folder, name).unlink()
        path.unlink()
        fsync_folder(folder)
    except OSError as error:
        raise file_error(error, path, action="delete") from error


def make_folder(path: Path, *, advice: str = OTHER_FOLDER) -> None:
    try:
        _make_folder(path.absolute())
    except OSError as error:
        raise file_error(error, path, action="create the folder", advice=advice) from error


def _make_folder(path: Path) -> None:
    if not path.parent.is_dir():
        _make_folder(path.parent)
    with suppress(FileExistsError):
        path.mkdir(0o700)
        # A folder without read permission cannot be opened for fsync.
        with suppress(PermissionError):
            fsync_folder(path.parent)


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Exclude other processes that change the files of a folder with this lock."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise file_error(error, folder, action="open") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def temporary_path(folder: Path, name: str) -> Path:
    """One temporary name per file: under its lock, an existing one is left over."""
    return folder / f".{name}.tmp"


def fsync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _open_new(path: Path) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        return os.open(path, flags, 0o600)
    except FileExistsError:
        path.unlink()
        return os.open(path, flags, 0o600)


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]

"""The files of a source: a ZIP archive, a folder or one file. Nothing is written to disk.

The names of an archive are only used to look up its entries. An archive has limits for its entries,
their sizes and their compression; archives inside an archive are not opened.
"""

import io
import lzma
import os
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

import msgspec

from cllm.core.errors import UsageError
from cllm.transfer.json_stream import DamagedFileError

MAX_ENTRIES = 200_000
MAX_DIRECTORY_BYTES = 64 * 1024 * 1024
"""The list of entries, which is read into memory as a whole."""
MAX_ENTRY_BYTES = 8 * 1024**3
MAX_TOTAL_BYTES = 64 * 1024**3
MAX_RATIO = 300
MIN_RATIO_BYTES = 4 * 1024 * 1024
"""Smaller entries can have any ratio."""
MAX_ATTACHMENT_BYTES = 64 * 1024 * 1024
DIRECTORY_ENTRY = b"PK\x01\x02"
SIGNATURE = b"PK\x03\x04"
"""The first bytes of a ZIP archive, also of one whose list of entries, at its end, is missing."""
UNREADABLE_ENTRY = (OSError, zipfile.BadZipFile, RuntimeError, NotImplementedError, EOFError)
UNREADABLE_DIRECTORY = (*UNREADABLE_ENTRY, ValueError, struct.error)
"""A name can be no UTF-8, an offset negative."""


class SourceFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of a source; `name` is its path in it, with slashes."""

    name: str
    size: int

    @property
    def base(self) -> str:
        return self.name.rpartition("/")[2]


class Archive:
    """The regular files of a source in order of their names.

    `can_read_neighbours`: a reader can also read files outside of the source that it refers to. A
    server that imports the file of a client sets it to False.
    """

    can_read_neighbours = True

    def __init__(self, path: Path, files: Sequence[SourceFile]) -> None:
        self.path = path
        self.files = tuple(sorted(files, key=lambda file: file.name))
        self._by_name = {file.name: file for file in self.files}

    def find(self, name: str) -> SourceFile | None:
        return self._by_name.get(name)

    @contextmanager
    def open(self, file: SourceFile) -> Iterator[BinaryIO]:
        """Open a file; raises DamagedFileError if it cannot be read."""
        try:
            with self._open(file) as stream:
                yield stream
        except UNREADABLE_ENTRY as error:
            raise DamagedFileError(_reason(error)) from error
        except (zlib.error, lzma.LZMAError) as error:
            raise DamagedFileError("its compressed data is damaged") from error

    def _open(self, file: SourceFile) -> BinaryIO:
        return Path(self.path, file.name).open("rb")

    def read(self, file: SourceFile, *, limit: int = MAX_ATTACHMENT_BYTES) -> bytes:
        if file.size > limit:
            raise DamagedFileError(f"it has more than {limit} bytes")
        with self.open(file) as stream:
            return stream.read(limit)

    def close(self) -> None:
        pass


class SingleFile(Archive):
    def __init__(self, path: Path) -> None:
        super().__init__(path, [SourceFile(name=path.name, size=path.stat().st_size)])

    def _open(self, file: SourceFile) -> BinaryIO:  # noqa: ARG002 - it has one
        return self.path.open("rb")


class _ZipFile(io.BufferedReader):
    """An archive on the disk. Checks the list of entries before objects are made of them."""

    def __init__(self, path: Path) -> None:
        super().__init__(io.FileIO(path))
        self.is_checked = False
        self._path = path

    def read(self, size: int | None = -1, /) -> bytes:
        if self.is_checked:
            return super().read(size)
        is_limited = size is not None and 0 <= size <= MAX_DIRECTORY_BYTES
        data = super().read(size if is_limited else MAX_DIRECTORY_BYTES + 1)
        if len(data) > MAX_DIRECTORY_BYTES:
            raise _too_large(self._path, f"a list of more than {MAX_DIRECTORY_BYTES} bytes")
        if data.count(DIRECTORY_ENTRY) > MAX_ENTRIES:
            raise _too_large(self._path, f"more than {MAX_ENTRIES} entries")
        return data

    def __del__(self) -> None:
        self.close()


class ZipArchive(Archive):
    def __init__(self, path: Path) -> None:
        self._file = _ZipFile(path)
        try:
            self._zip = zipfile.ZipFile(self._file)
            self._entries = self._read_entries(path)
            self._file.is_checked = True
        except UNREADABLE_DIRECTORY as error:
            self._file.close()
            raise UsageError(
                f"{path} is not a readable ZIP archive ({_reason(error)}); download it again."
            ) from error
        except UsageError:
            self._file.close()
            raise
        files = [
            SourceFile(name=name, size=entry.file_size) for name, entry in self._entries.items()
        ]
        super().__init__(path, files)

    def _read_entries(self, path: Path) -> dict[str, zipfile.ZipInfo]:
        """Return the regular files by their names. Of several with one name the last one counts."""
        entries = self._zip.infolist()
        if sum(entry.file_size for entry in entries) > MAX_TOTAL_BYTES:
            raise _too_large(path, f"more than {MAX_TOTAL_BYTES} bytes when unpacked")
        for entry in entries:
            _check_entry(path, entry)
        return {entry.filename: entry for entry in entries if _is_regular(entry)}

    def _open(self, file: SourceFile) -> BinaryIO:
        # It yields at most the size in the header, which is checked.
        return cast("BinaryIO", self._zip.open(self._entries[file.name]))

    def close(self) -> None:
        self._zip.close()
        self._file.close()


def _is_regular(entry: zipfile.ZipInfo) -> bool:
    kind = stat.S_IFMT(entry.external_attr >> 16)
    is_file = bool(entry.filename) and not entry.is_dir()
    return is_file and kind in (0, stat.S_IFREG)


def _check_entry(path: Path, entry: zipfile.ZipInfo) -> None:
    name = entry.filename
    if entry.file_size > MAX_ENTRY_BYTES:
        raise _too_large(path, f"'{name}' has more than {MAX_ENTRY_BYTES} bytes")
    ratio = entry.file_size / max(1, entry.compress_size)
    if entry.file_size > MIN_RATIO_BYTES and ratio > MAX_RATIO:
        raise _too_large(path, f"'{name}' is compressed more than {MAX_RATIO} times")


def _too_large(path: Path, reason: str) -> UsageError:
    return UsageError(f"{path} was not read: {reason}. Unpack it yourself and import the folder.")


def _reason(error: Exception) -> str:
    if isinstance(error, RuntimeError):
        return "it is encrypted" if "password" in str(error) else "its compression is not supported"
    if isinstance(error, OSError) and error.errno is not None:
        return os.strerror(error.errno).lower()
    return "it is damaged"


def open_archive(path: Path) -> Archive:
    """Open a ZIP archive, a folder or a file. Symbolic links inside a folder are left out."""
    try:
        if path.is_dir():
            return Archive(path, list(_list_folder(path)))
        if not stat.S_ISREG(path.stat().st_mode):
            raise UsageError(f"{path} is not a file or folder; choose another one.")
        if zipfile.is_zipfile(path) or _starts_as_zip(path):
            return ZipArchive(path)
        return SingleFile(path)
    except OSError as error:
        reason = os.strerror(error.errno or 0).lower()
        raise UsageError(f"Cannot read {path} ({reason}); check the path.") from error


def _starts_as_zip(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(SIGNATURE)) == SIGNATURE


def _list_folder(folder: Path) -> Iterator[SourceFile]:
    count = 0
    for parent, folders, names in os.walk(folder):
        folders.sort()
        for name in names:
            path = Path(parent, name)
            status = path.lstat()
            if stat.S_ISREG(status.st_mode):
                count += 1
                if count > MAX_ENTRIES:
                    raise UsageError(
                        f"{folder} has more than {MAX_ENTRIES} files; import its parts."
                    )
                yield SourceFile(name=path.relative_to(folder).as_posix(), size=status.st_size)

"""Files that are written completely or not at all, readable only by their owner."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from cllm.core.errors import UsageError


@contextmanager
def write_atomically(path: Path, *, force: bool = False) -> Iterator[BinaryIO]:
    """Write a new file, which appears when the block ends; `force`: replace an existing one.

    Raises UsageError if the file exists or cannot be written.
    """
    _check_target(path, force=force)
    try:
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    except OSError as error:
        raise _write_error(path, error) from error
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "w+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        _publish(temporary, path, force=force)
    except OSError as error:
        raise _write_error(path, error) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def _check_target(path: Path, *, force: bool) -> None:
    if path.is_dir():
        raise UsageError(f"{path} is a folder; name a file.")
    if path.exists() and not path.is_file():
        # Replacing a device such as /dev/null would damage the system.
        raise UsageError(f"{path} is a device, a pipe or a socket; name a file.")
    if os.path.lexists(path) and not force:
        raise UsageError(f"{path} already exists; choose another file, or replace it with --force.")


def _publish(temporary: Path, path: Path, *, force: bool) -> None:
    """Give the file its name. Without `force`, a file that exists by now is not replaced."""
    if force:
        temporary.replace(path)
    else:
        try:
            path.hardlink_to(temporary)
        except FileExistsError:
            raise
        except OSError:
            # The file system has no links.
            _check_target(path, force=False)
            temporary.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _write_error(path: Path, error: OSError) -> UsageError:
    reason = os.strerror(error.errno or 0).lower()
    return UsageError(f"Cannot write {path} ({reason}); choose another place.")


def make_output_folder(path: Path) -> None:
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise _write_error(path, error) from error

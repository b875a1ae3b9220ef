"""Reading files that could be anything: ordinary ones only, and never more than so much of them.

A pipe would be waited for, and a device has no end. How a refusal is worded is the caller's.
"""

import os
import stat
from pathlib import Path


class NotOrdinaryError(OSError):
    """It is there, and is no ordinary file."""


class TooLargeError(OSError):
    """It is larger than the caller takes."""


def read_ordinary(path: str | Path, *, limit: int) -> bytes:
    """The file's bytes; OSError, or one of its kinds above, if there are none to be had."""
    opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(opened, "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise NotOrdinaryError(path)
        data = file.read(limit + 1)
    if len(data) > limit:
        raise TooLargeError(path)
    return data

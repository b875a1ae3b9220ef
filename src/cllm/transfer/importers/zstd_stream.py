"""Decompression of zstd files: by Python 3.14, or a package if one is installed."""

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any, BinaryIO, cast

from cllm.transfer.json_stream import DamagedFileError

NO_ZSTD = (
    "it is compressed with zstd; install the package 'zstandard', use Python 3.14 or newer, or "
    "decompress it with: zstd -d FILE"
)
OPENERS: dict[str, Callable[[Any, BinaryIO], Any]] = {
    "compression.zstd": lambda module, stream: module.open(stream, "rb"),
    "backports.zstd": lambda module, stream: module.open(stream, "rb"),
    "zstandard": lambda module, stream: module.ZstdDecompressor().stream_reader(
        stream, read_across_frames=True
    ),
}
"""The modules that can read zstd, best first."""


@contextmanager
def open_zstd(stream: BinaryIO) -> Iterator[BinaryIO]:
    """Decompress a stream; raises DamagedFileError."""
    name, module = _find_module()
    try:
        with OPENERS[name](module, stream) as decompressed:
            yield cast("BinaryIO", io.BufferedReader(decompressed))
    except (module.ZstdError, EOFError):
        raise DamagedFileError("its compressed data is damaged") from None


def _find_module() -> tuple[str, ModuleType]:
    for name in OPENERS:
        try:
            return name, import_module(name)
        except ImportError:
            continue
    raise DamagedFileError(NO_ZSTD)

import gzip
import io
import sys
from types import ModuleType
from typing import Any, BinaryIO

import pytest

from cllm.transfer.importers import zstd_stream
from cllm.transfer.importers.zstd_stream import open_zstd
from cllm.transfer.json_stream import DamagedFileError


class GzipDecompressor:
    """Has the methods of zstandard.ZstdDecompressor; no version of Python before 3.14 has zstd."""

    def stream_reader(self, stream: BinaryIO, *, read_across_frames: bool) -> Any:
        assert read_across_frames
        return gzip.GzipFile(fileobj=stream)


def install_module(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    for known in zstd_stream.OPENERS:
        monkeypatch.setitem(sys.modules, known, None)
    module: Any = ModuleType(name)
    module.ZstdError = gzip.BadGzipFile
    module.open = gzip.open
    module.ZstdDecompressor = GzipDecompressor
    monkeypatch.setitem(sys.modules, name.partition(".")[0], ModuleType(name.partition(".")[0]))
    monkeypatch.setitem(sys.modules, name, module)


@pytest.mark.parametrize("name", list(zstd_stream.OPENERS))
def test_each_module_can_read(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    install_module(monkeypatch, name)
    with open_zstd(io.BytesIO(gzip.compress(b"a\nb\n"))) as stream:
        assert list(stream) == [b"a\n", b"b\n"]
    for damaged in (b"nope", gzip.compress(bytes(range(256)) * 99)[:-200]):
        with pytest.raises(DamagedFileError, match="damaged"), open_zstd(io.BytesIO(damaged)) as s:
            s.read()


def test_without_a_module_the_sentence_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in zstd_stream.OPENERS:
        monkeypatch.setitem(sys.modules, name, None)
    words = "install the package 'zstandard'.*zstd -d"
    with pytest.raises(DamagedFileError, match=words), open_zstd(io.BytesIO()):
        pass

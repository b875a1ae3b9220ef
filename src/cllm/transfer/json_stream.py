"""Reads the objects of a large JSON array one by one.

The memory needed is that of the largest object. The objects are returned as bytes, undecoded.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, BinaryIO

import msgspec

CHUNK_BYTES = 1024 * 1024
MAX_OBJECT_BYTES = 512 * 1024 * 1024
MAX_LINE_BYTES = 256 * 1024 * 1024
MAX_DEPTH = 200
"""Deeper values could be decoded here, but not encoded where the call stack is longer."""
TOO_DEEP = "it is nested too deeply"
BOM = b"\xef\xbb\xbf"
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|["\[\]{}]', re.DOTALL)
"""A whole string, the start of an incomplete string, or a bracket."""


class DamagedFileError(ValueError):
    """A file of a source cannot be read to its end; the message is a short reason."""


class TooLargeError(DamagedFileError):
    """A file has more bytes than a limit."""


def iter_objects(stream: BinaryIO, *, field: str | None = None) -> Iterator[bytes]:
    """Yield the objects of a top-level array, or of the array `field` of a top-level object.

    A single top-level object without that array is yielded itself. Raises DamagedFileError after
    the last whole object if the file is incomplete.
    """
    yield from _Scanner(stream, field).objects()


class _Scanner:
    def __init__(self, stream: BinaryIO, field: str | None) -> None:
        self._stream = stream
        self._name = None if field is None else msgspec.json.encode(field)
        self._depth = 0
        self._array_depth: int | None = None
        self._start: int | None = None
        self._last_text = b""
        self._has_brackets = False

    def objects(self) -> Iterator[bytes]:
        buffer = bytearray()
        position = 0
        whole: bytes | None = None
        has_array = False
        buffer += self._stream.read(CHUNK_BYTES).removeprefix(BOM)
        chunk = bytes(buffer)
        while chunk:
            for match in _TOKEN.finditer(buffer, position):
                if match[0] == b'"':
                    break
                position = match.end()
                found = self._read_token(match)
                has_array = has_array or self._array_depth is not None
                if found is None:
                    continue
                if self._depth == 0:
                    whole = bytes(buffer[slice(*found)])
                else:
                    yield bytes(buffer[slice(*found)])
            # Outside of strings the rest has no token; inside, it starts with a quote.
            quote = buffer.find(b'"', position)
            end = len(buffer) if quote < 0 else quote
            drop = end if self._start is None else self._start
            del buffer[:drop]
            position = end - drop
            if self._start is not None:
                self._start = 0
            if len(buffer) > MAX_OBJECT_BYTES:
                raise TooLargeError(f"an object has more than {MAX_OBJECT_BYTES} bytes")
            # A long string is read again from its start, so the chunks grow with it.
            chunk = self._stream.read(max(CHUNK_BYTES, len(buffer) - position))
            buffer += chunk
        if self._depth != 0 or not self._has_brackets or buffer[position:].strip():
            raise DamagedFileError("it is incomplete or not JSON")
        if whole is not None and not has_array:
            yield whole

    def _read_token(self, match: re.Match[bytes]) -> tuple[int, int] | None:
        """Return the range of an object that ends here."""
        token = match[0]
        kind = token[:1]
        if kind == b'"':
            if self._depth == 1:
                self._last_text = token
        elif kind in b"[{":
            self._open(match, kind)
        else:
            return self._close(match, kind)
        return None

    def _open(self, match: re.Match[bytes], kind: bytes) -> None:
        self._has_brackets = True
        if kind == b"[" and self._array_depth is None:
            is_field = self._depth == 1 and self._name is not None and self._last_text == self._name
            if self._depth == 0 or is_field:
                self._array_depth = self._depth + 1
                self._start = None
        if kind == b"{":
            in_array = self._array_depth is not None and self._depth == self._array_depth
            if in_array or (self._array_depth is None and self._depth == 0):
                self._start = match.start()
        self._depth += 1

    def _close(self, match: re.Match[bytes], kind: bytes) -> tuple[int, int] | None:
        self._depth -= 1
        if self._depth < 0:
            raise DamagedFileError("it is not JSON")
        if self._array_depth is not None and self._depth < self._array_depth:
            if kind == b"]" and self._depth == self._array_depth - 1:
                self._array_depth = -1
            return None
        ends_object = kind == b"}" and self._start is not None
        if ends_object and self._depth == (self._array_depth or 0):
            start, self._start = self._start, None
            return (start or 0, match.end())
        return None


def iter_lines(stream: BinaryIO, *, limit: int | None = None) -> Iterator[bytes]:
    """Yield the lines of a JSONL file that are not blank. `limit`: the bytes of all lines."""
    size = 0
    while line := stream.readline(MAX_LINE_BYTES + 1):
        if len(line) > MAX_LINE_BYTES:
            raise TooLargeError(f"a line has more than {MAX_LINE_BYTES} bytes")
        size += len(line)
        if limit is not None and size > limit:
            raise TooLargeError(f"it has more than {limit} bytes")
        if stripped := line.removeprefix(BOM).strip():
            yield stripped


def decode_object(data: bytes) -> dict[str, Any]:
    """Decode an object; lone surrogates, which some programs write, become question marks.

    NaN and the infinities, which are not JSON, become null.

    Raises DamagedFileError.
    """
    try:
        value = msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        value = _decode_leniently(data)
    except RecursionError:
        raise DamagedFileError(TOO_DEEP) from None
    if not isinstance(value, dict):
        raise DamagedFileError("it is not an object")
    if data.count(b"[") + data.count(b"{") > MAX_DEPTH and _is_deep(value):
        raise DamagedFileError(TOO_DEEP)
    return value


def _is_deep(value: Any) -> bool:
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            child
            for one in level
            for child in (one.values() if isinstance(one, dict) else one)
            if isinstance(child, dict | list)
        ]
        if not level:
            return False
    return True


def _decode_leniently(data: bytes) -> Any:
    try:
        value = json.loads(data.decode("utf-8", "replace"), parse_constant=lambda _: None)
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        return msgspec.json.decode(text.encode("utf-8", "replace"))
    except RecursionError:
        raise DamagedFileError(TOO_DEEP) from None
    except (ValueError, msgspec.MsgspecError):
        raise DamagedFileError("it is not valid JSON") from None

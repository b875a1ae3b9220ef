"""The proxy of a URL, the origin in error messages, and the size limit of a response."""

import pytest

from cllm.core.errors import BadReplyError
from cllm.providers.http.transport import HttpResponse, Timeouts, find_proxy, format_origin


class ChunkedResponse(HttpResponse):
    """A response of these chunks that records the timeout of each read."""

    status = 200

    def __init__(self, *chunks: bytes) -> None:
        super().__init__(provider="mine", timeouts=Timeouts(first_byte=7, idle=3))
        self.headers = {}
        self.limits: list[float] = []
        self._chunks = list(chunks)

    async def _read_chunk(self, limit: float) -> bytes:
        self.limits.append(limit)
        return self._chunks.pop(0) if self._chunks else b""

    async def close(self) -> None:
        pass


@pytest.fixture
def proxies(monkeypatch):
    for name in ("http_proxy", "https_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    monkeypatch.setenv("http_proxy", "http://proxy:1")
    monkeypatch.setenv("no_proxy", "internal.test")


@pytest.mark.parametrize(
    ("url", "proxy"),
    [
        ("http://x.test/v1", "http://proxy:1"),
        ("https://x.test/v1", None),
        ("http://internal.test/", None),
        ("http://localhost:8000/", None),
        ("http://127.0.0.1:8000/", None),
        ("http://[::1]:8000/", None),
    ],
)
def test_the_proxy_comes_from_the_environment_except_for_loopback(proxies, url, proxy):
    assert find_proxy(url) == proxy


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("https://user:secret@x.test/v1?key=secret", "https://x.test"),
        ("http://x.test:8000/v1", "http://x.test:8000"),
        ("http://x.test:port/", "its address"),
    ],
)
def test_the_origin_contains_no_credentials_and_no_path(url, origin):
    assert format_origin(url) == origin


async def test_the_first_chunk_has_a_longer_timeout_than_the_others():
    response = ChunkedResponse(b"a", b"b")

    assert await response.read() == b"ab"
    assert response.limits == [7, 3, 3]


async def test_a_response_above_the_size_limit_is_an_error():
    assert await ChunkedResponse(b"abc").read(max_bytes=3) == b"abc"
    with pytest.raises(BadReplyError, match="more than 3 bytes"):
        await ChunkedResponse(b"abc", b"d").read(max_bytes=3)

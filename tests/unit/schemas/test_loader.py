"""Schemas from text, files, URLs and the cache, and their download."""

import json
import threading
from urllib.request import Request

import pytest
from tests.schema_server import SchemaServer, body

from cllm.core.errors import SchemaError, SchemaUnavailableError
from cllm.schemas.loader import (
    CachedSchema,
    SchemaCache,
    SchemaReader,
    _SafeRedirects,
    check_url,
    fetch,
    redact_url,
)
from cllm.schemas.source import SchemaRules, SchemaSource

URL = "https://example.com/schema.json?v=2"
DAY = 24 * 60 * 60
HTTP = SchemaRules(allow_http=True)


class Web:
    """Returns `result`, or raises it if it is an error."""

    def __init__(self) -> None:
        self.requested: list[str] = []
        self.result: bytes | Exception = b'{"title": "from the web"}'

    def fetch(self, url: str, _rules: SchemaRules) -> bytes:
        self.requested.append(url)
        if isinstance(self.result, Exception):
            raise self.result
        return self.result


@pytest.fixture
def web():
    return Web()


@pytest.fixture
def cache(tmp_path):
    return SchemaCache(tmp_path / "cache" / "schemas", max_files=3)


@pytest.fixture
def read(web, cache):
    def read(source=None, *, at=0.0, **rules):
        reader = SchemaReader(
            rules=SchemaRules(**rules), cache=cache, clock=lambda: at, fetch=web.fetch
        )
        return reader.read(source or SchemaSource(name="--json-schema-file", file=URL))

    return read


def test_inline_text_and_mappings_are_loaded(read):
    assert read(SchemaSource(name="x", inline='{"type": "null"}')).content == {"type": "null"}
    assert read(SchemaSource(name="x", inline={"type": "null"})).content == {"type": "null"}


@pytest.mark.parametrize(
    "inline", [[1], "[1]", "null", {"minimum": float("inf")}, "{", "1" * 99, r'{"title": "\ud800"}']
)
def test_anything_but_a_json_object_is_refused(read, inline):
    with pytest.raises(SchemaError) as caught:
        read(SchemaSource(name="--json-schema", inline=inline))

    assert caught.value.source == "--json-schema"


def test_a_file_is_read_relative_to_the_folder_of_its_source(read, tmp_path):
    (tmp_path / "a.json").write_bytes(b'\xef\xbb\xbf{"title": "with a BOM"}')

    schema = read(SchemaSource(name="x", file="a.json", folder=tmp_path))

    assert schema.content == {"title": "with a BOM"}
    assert schema.source == "a.json"


def test_a_link_out_of_the_folder_is_refused_if_the_source_is_confined(read, tmp_path):
    inside = tmp_path / "inside"
    inside.mkdir()
    (tmp_path / "out.json").write_text("{}")
    (inside / "in.json").write_text("{}")
    (inside / "good").symlink_to("in.json")
    (inside / "bad").symlink_to("../out.json")

    assert read(SchemaSource(name="x", file="good", folder=inside, is_confined=True)).content == {}
    assert read(SchemaSource(name="x", file="bad", folder=inside)).content == {}
    with pytest.raises(SchemaError, match="outside its Cllmfile"):
        read(SchemaSource(name="x", file="bad", folder=inside, is_confined=True))


def test_an_invalid_path_is_refused(read, tmp_path):
    with pytest.raises(SchemaError, match="path is invalid"):
        read(SchemaSource(name="x", file="a\0b", folder=tmp_path))


def test_a_cached_schema_is_used_until_its_ttl_ends(read, web):
    assert read(at=100).content == {"title": "from the web"}
    read(at=100 + DAY - 1)
    assert len(web.requested) == 1

    read(at=100 + DAY)
    assert len(web.requested) == 2


def test_a_cached_schema_with_a_future_time_is_fetched_again(read, web):
    read(at=1_000_000)
    read(at=100)

    assert len(web.requested) == 2


def test_an_expired_copy_is_used_with_a_notice_if_the_url_fails(read, web):
    read(at=0)
    web.result = SchemaUnavailableError("it cannot be fetched (no route).", source="example.com")

    schema = read(at=2 * DAY)

    assert schema.content == {"title": "from the web"}
    [notice] = schema.notices
    assert notice.code == "schema_stale"
    assert "no route" in notice.message


@pytest.mark.parametrize("result", [b"<html>", b"[]", SchemaError("404", source="x")])
def test_an_expired_copy_is_not_used_if_the_response_is_wrong(read, web, result):
    read(at=0)
    web.result = result

    with pytest.raises(SchemaError):
        read(at=2 * DAY)


def test_a_url_that_fails_without_a_cached_copy_is_an_error(read, web):
    web.result = SchemaUnavailableError("no.", source="x")

    with pytest.raises(SchemaUnavailableError):
        read()


def test_offline_mode_sends_no_request(read, web):
    with pytest.raises(SchemaError, match="OFFLINE"):
        read(offline=True)
    assert web.requested == []

    read(at=0)
    assert read(at=100 * DAY, offline=True).notices == ()
    assert len(web.requested) == 1


def test_a_cached_copy_over_the_size_limit_is_not_used(read, web):
    read(at=0)
    read(at=1, max_bytes=5_000)
    assert len(web.requested) == 1

    read(at=2, max_bytes=10)
    assert len(web.requested) == 2


@pytest.mark.parametrize("url", ["http://example.com/x", "gopher://example.com/x"])
def test_only_https_is_fetched(read, web, url):
    with pytest.raises(SchemaError, match="https only"):
        read(SchemaSource(name="x", file=url))

    assert web.requested == []


def test_errors_do_not_show_the_query(read, web):
    web.result = b"{"

    with pytest.raises(SchemaError) as caught:
        read()

    assert "v=2" not in str(caught.value)
    assert "https://example.com/schema.json" in str(caught.value)


def write_to(cache: SchemaCache, number: int) -> None:
    cache.write(CachedSchema(url=f"https://x/{number}", fetched_at=0, text="{}"))


def test_the_cache_has_at_most_max_files(cache):
    for number in range(6):
        write_to(cache, number)

    assert len(list(cache.folder.iterdir())) == 3
    assert cache.read("https://x/5") is not None


def test_a_cache_file_of_another_url_is_ignored(cache):
    write_to(cache, 1)
    [file] = cache.folder.iterdir()
    write_to(cache, 2)
    other = next(path for path in cache.folder.iterdir() if path != file)
    other.write_bytes(file.read_bytes())

    assert cache.read("https://x/2") is None


def test_a_link_in_the_cache_is_not_followed(cache, tmp_path):
    write_to(cache, 1)
    [file] = cache.folder.iterdir()
    content = file.read_bytes()
    (tmp_path / "elsewhere").write_bytes(content)
    file.unlink()
    file.symlink_to(tmp_path / "elsewhere")

    assert cache.read("https://x/1") is None


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path, web):
    (tmp_path / "file").write_text("in the way")
    cache = SchemaCache(tmp_path / "file" / "schemas")
    reader = SchemaReader(rules=SchemaRules(), cache=cache, fetch=web.fetch)

    assert reader.read(SchemaSource(name="x", file=URL)).content["title"] == "from the web"


def test_clear_deletes_unfinished_files_and_counts_schemas(cache):
    write_to(cache, 1)
    write_to(cache, 2)
    (cache.folder / "x.tmp").write_text("half")

    assert cache.clear() == 2
    assert list(cache.folder.iterdir()) == []
    assert cache.clear() == 0


def test_the_cached_text_equals_the_fetched_text(cache, read, web):
    web.result = json.dumps({"title": "é" * 10}).encode()

    read()

    cached = cache.read(URL)
    assert cached is not None
    assert cached.text.encode() == web.result


@pytest.fixture
def server():
    with SchemaServer() as running:
        yield running


def test_the_body_is_returned_unchanged(server):
    assert fetch(server.put("/a?b=c", body(b"\xff{}")), HTTP) == b"\xff{}"
    assert server.asked == ["/a?b=c"]


def test_a_body_of_exactly_the_limit_is_accepted(server):
    rules = SchemaRules(allow_http=True, max_bytes=10)

    assert fetch(server.put("/a", body(b"x" * 10)), rules) == b"x" * 10
    with pytest.raises(SchemaError, match="larger than 10"):
        fetch(server.put("/a", body(b"x" * 11)), rules)


def test_a_download_that_takes_too_long_is_stopped(server):
    def send_slowly(request):
        request.send_response(200)
        request.end_headers()
        while True:
            request.wfile.write(b" ")
            request.wfile.flush()
            if done.wait(0.05):
                return

    done = threading.Event()
    try:
        with pytest.raises(SchemaUnavailableError, match=r"took more than 0\.5 s"):
            fetch(server.put("/a", send_slowly), HTTP, seconds=0.5)
    finally:
        done.set()


def test_a_refused_connection_is_reported(server):
    url = server.put("/a", body(b"{}"))
    server.stop()

    with pytest.raises(SchemaUnavailableError, match="refused"):
        fetch(url, HTTP)


@pytest.mark.parametrize(
    "url",
    ["https://", "https://a b/", "https://x:port/", "https://[::1/", "https://me:pw@x/", "x://y"],
)
def test_an_invalid_url_is_refused(url):
    with pytest.raises(SchemaError) as caught:
        check_url(url, HTTP)

    assert "pw" not in str(caught.value)


def test_a_redacted_url_has_no_secrets():
    assert redact_url("https://me:pw@example.com:8/a?token=t#f") == "https://example.com:8/a"


def test_a_redirect_never_leaves_https():
    request = Request("https://example.com/a")
    with pytest.raises(SchemaError, match="from https"):
        _SafeRedirects(HTTP).redirect_request(request, None, 302, "", {}, "http://example.com/a")

"""Where schemas come from: text, files, addresses and the cache."""

import json

import pytest

from cllm.core.errors import SchemaError, SchemaUnavailableError, SettingsError
from cllm.schemas.loader import CachedSchema, SchemaCache, SchemaReader
from cllm.schemas.source import SchemaRules, SchemaSource, schema_rules

ADDRESS = "https://example.com/schema.json?v=2"
DAY = 24 * 60 * 60


class Web:
    """Gives what it was told to, or fails as it was told to."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.given: bytes | Exception = b'{"title": "from the web"}'

    def fetch(self, address: str, _rules: SchemaRules) -> bytes:
        self.asked.append(address)
        if isinstance(self.given, Exception):
            raise self.given
        return self.given


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
        return reader.read(source or SchemaSource(name="--json-schema-file", file=ADDRESS))

    return read


def test_text_and_mappings_are_read_as_they_are(read):
    assert read(SchemaSource(name="x", inline='{"type": "null"}')).content == {"type": "null"}
    assert read(SchemaSource(name="x", inline={"type": "null"})).content == {"type": "null"}


@pytest.mark.parametrize(
    "inline", [[1], "[1]", "null", {"minimum": float("inf")}, "{", "1" * 99, r'{"title": "\ud800"}']
)
def test_what_is_no_json_object_is_refused(read, inline):
    with pytest.raises(SchemaError) as caught:
        read(SchemaSource(name="--json-schema", inline=inline))

    assert caught.value.source == "--json-schema"


def test_a_file_is_read_in_the_folder_of_its_source(read, tmp_path):
    (tmp_path / "a.json").write_bytes(b'\xef\xbb\xbf{"title": "with a mark"}')

    schema = read(SchemaSource(name="x", file="a.json", folder=tmp_path))

    assert schema.content == {"title": "with a mark"}
    assert schema.source == "a.json"


def test_a_link_inside_the_folder_is_followed_and_one_that_leads_out_is_not(read, tmp_path):
    inside = tmp_path / "inside"
    inside.mkdir()
    (tmp_path / "out.json").write_text("{}")
    (inside / "in.json").write_text("{}")
    (inside / "good").symlink_to("in.json")
    (inside / "bad").symlink_to("../out.json")

    assert read(SchemaSource(name="x", file="good", folder=inside, confined=True)).content == {}
    assert read(SchemaSource(name="x", file="bad", folder=inside)).content == {}
    with pytest.raises(SchemaError, match="leads out"):
        read(SchemaSource(name="x", file="bad", folder=inside, confined=True))


def test_a_path_that_cannot_be_one_is_refused(read, tmp_path):
    with pytest.raises(SchemaError, match="no path"):
        read(SchemaSource(name="x", file="a\0b", folder=tmp_path))


def test_a_young_copy_saves_the_request_and_an_old_one_does_not(read, web):
    assert read(at=100).content == {"title": "from the web"}
    read(at=100 + DAY - 1)
    assert len(web.asked) == 1

    read(at=100 + DAY)
    assert len(web.asked) == 2


def test_a_copy_from_the_future_is_not_young(read, web):
    read(at=1_000_000)
    read(at=100)

    assert len(web.asked) == 2


def test_an_old_copy_is_used_with_a_notice_when_the_address_fails(read, web):
    read(at=0)
    web.given = SchemaUnavailableError("it cannot be fetched (no route).", source="example.com")

    schema = read(at=2 * DAY)

    assert schema.content == {"title": "from the web"}
    [notice] = schema.notices
    assert notice.code == "schema_stale"
    assert "no route" in notice.message


@pytest.mark.parametrize("given", [b"<html>", b"[]", SchemaError("404", source="x")])
def test_an_old_copy_is_not_used_when_the_address_answers_otherwise(read, web, given):
    read(at=0)
    web.given = given

    with pytest.raises(SchemaError):
        read(at=2 * DAY)


def test_without_a_copy_a_failing_address_is_an_error(read, web):
    web.given = SchemaUnavailableError("no.", source="x")

    with pytest.raises(SchemaUnavailableError):
        read()


def test_offline_nobody_is_asked(read, web):
    with pytest.raises(SchemaError, match="OFFLINE"):
        read(offline=True)
    assert web.asked == []

    read(at=0)
    assert read(at=100 * DAY, offline=True).notices == ()
    assert len(web.asked) == 1


def test_a_copy_over_a_lower_limit_is_not_used(read, web):
    read(at=0)
    read(at=1, max_bytes=5_000)
    assert len(web.asked) == 1

    read(at=2, max_bytes=10)
    assert len(web.asked) == 2


@pytest.mark.parametrize("address", ["http://example.com/x", "gopher://example.com/x"])
def test_only_https_is_asked(read, web, address):
    with pytest.raises(SchemaError, match="https only"):
        read(SchemaSource(name="x", file=address))

    assert web.asked == []


def test_a_query_is_never_shown(read, web):
    web.given = b"{"

    with pytest.raises(SchemaError) as caught:
        read()

    assert "v=2" not in str(caught.value)
    assert "https://example.com/schema.json" in str(caught.value)


def kept(cache: SchemaCache, number: int) -> None:
    cache.write(CachedSchema(url=f"https://x/{number}", fetched_at=0, text="{}"))


def test_the_cache_keeps_only_so_many(cache):
    for number in range(6):
        kept(cache, number)

    assert len(list(cache.folder.iterdir())) == 3
    assert cache.read("https://x/5") is not None


def test_a_copy_under_another_addresss_name_is_not_taken_for_its_own(cache):
    kept(cache, 1)
    [file] = cache.folder.iterdir()
    kept(cache, 2)
    other = next(path for path in cache.folder.iterdir() if path != file)
    other.write_bytes(file.read_bytes())

    assert cache.read("https://x/2") is None


def test_a_link_in_the_cache_is_not_followed(cache, tmp_path):
    kept(cache, 1)
    [file] = cache.folder.iterdir()
    content = file.read_bytes()
    (tmp_path / "elsewhere").write_bytes(content)
    file.unlink()
    file.symlink_to(tmp_path / "elsewhere")

    assert cache.read("https://x/1") is None


def test_a_cache_that_cannot_be_written_fails_nothing(tmp_path, web):
    (tmp_path / "file").write_text("in the way")
    cache = SchemaCache(tmp_path / "file" / "schemas")
    reader = SchemaReader(rules=SchemaRules(), cache=cache, fetch=web.fetch)

    assert reader.read(SchemaSource(name="x", file=ADDRESS)).content["title"] == "from the web"


def test_clearing_deletes_unfinished_files_too_but_counts_schemas(cache):
    kept(cache, 1)
    kept(cache, 2)
    (cache.folder / "x.tmp").write_text("half")

    assert cache.clear() == 2
    assert list(cache.folder.iterdir()) == []
    assert cache.clear() == 0


def test_the_rules_come_from_the_environment():
    assert schema_rules({}) == SchemaRules()
    assert schema_rules(
        {
            "CLLM_ALLOW_HTTP_SCHEMAS": "TRUE",
            "CLLM_SCHEMA_CACHE_TTL": " 60 ",
            "CLLM_MAX_SCHEMA_SIZE": "2000",
            "CLLM_OFFLINE_MODE": "1",
        }
    ) == SchemaRules(allow_http=True, ttl=60, max_bytes=2000, offline=True)
    assert not schema_rules({"CLLM_OFFLINE_MODE": "0"}).offline


@pytest.mark.parametrize("value", ["-1", "1.5", "much", "٣", "9" * 40])
@pytest.mark.parametrize("name", ["CLLM_SCHEMA_CACHE_TTL", "CLLM_MAX_SCHEMA_SIZE"])
def test_a_number_that_is_none_is_refused(name, value):
    with pytest.raises(SettingsError, match=name):
        schema_rules({name: value})


def test_what_was_cached_is_what_was_fetched(cache, read, web):
    web.given = json.dumps({"title": "é" * 10}).encode()

    read()

    cached = cache.read(ADDRESS)
    assert cached is not None
    assert cached.text.encode() == web.given

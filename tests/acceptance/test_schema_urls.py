"""Schemas from URLs: https only, size limits, redirects, the cache and offline mode."""

import json
import shutil
import ssl
from pathlib import Path
from typing import Any

import pytest
from tests.fake_provider import FakeProvider
from tests.schema_server import (
    ALICE,
    HTTP,
    PERSON,
    SchemaServer,
    body,
    certificate,
    endless,
    redirect,
)


@pytest.fixture
def schemas():
    with SchemaServer() as running:
        yield running


def cached(home: Any) -> list[Path]:
    return sorted((home.cache / "cllm/schemas").glob("*"))


@pytest.fixture
def fetched(schemas):
    return schemas.put("/person.json", body(json.dumps(PERSON).encode()))


def ask_for(cllm: Any, provider: FakeProvider, url: str, **env: str) -> Any:
    provider.queue_reply(ALICE)
    return cllm("Who?", "--json-schema-file", url, env=HTTP | env)


def test_a_schema_is_fetched_once_and_cached(
    home, provider, settings, schemas, fetched, mode, cllm
):
    ask_for(cllm, provider, fetched).succeeded()
    ask_for(cllm, provider, fetched).succeeded()

    assert schemas.asked == ["/person.json"]
    assert [
        request.json["response_format"]["json_schema"]["schema"] for request in provider.requests
    ] == [PERSON, PERSON]
    [file] = cached(home)
    assert mode(file) == 0o600
    assert mode(file.parent) == 0o700
    assert "person" not in file.name


def test_http_is_refused_unless_it_is_allowed(provider, settings, schemas, fetched, cllm):
    result = cllm("Who?", "--json-schema-file", fetched)

    result.failed_with_one_sentence("https", "CLLM_ALLOW_HTTP_SCHEMAS")
    assert schemas.asked == []
    assert provider.requests == []


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://127.0.0.1/x", "https://"])
def test_other_schemes_are_refused(settings, cllm, url):
    result = cllm("Who?", "--json-schema-file", url, env=HTTP)

    result.failed_with_one_sentence("not a valid URL" if url == "https://" else "https")


def test_a_password_in_the_url_is_refused_and_not_shown(settings, secret, cllm):
    result = cllm("Who?", "--json-schema-file", f"https://me:{secret}@127.0.0.1:1/x")

    result.failed_with_one_sentence("remove the user name and the password")


def test_a_token_in_the_url_is_not_shown(settings, secret, cllm):
    result = cllm("Who?", "--json-schema-file", f"https://127.0.0.1:1/x?token={secret}")

    result.failed_with_one_sentence("cannot be fetched", "https://127.0.0.1:1/x")


def test_a_redirect_to_an_allowed_url_is_followed(provider, settings, schemas, fetched, cllm):
    moved = schemas.put("/old.json", redirect(fetched))

    ask_for(cllm, provider, moved).succeeded()

    assert schemas.asked == ["/old.json", "/person.json"]


@pytest.mark.parametrize("to", ["file:///etc/passwd", "ftp://127.0.0.1/x"])
def test_a_redirect_to_another_scheme_is_not_followed(provider, settings, schemas, cllm, to):
    result = ask_for(cllm, provider, schemas.put("/old.json", redirect(to)))

    result.failed_with_one_sentence("redirects")
    assert provider.requests == []


def test_a_redirect_loop_is_refused(provider, settings, schemas, cllm):
    url = schemas.put("/a", redirect("/b"))
    schemas.put("/b", redirect("/a"))

    ask_for(cllm, provider, url).failed_with_one_sentence("redirects")
    assert len(schemas.asked) < 20


def test_a_content_length_over_the_limit_is_refused(provider, settings, schemas, cllm):
    url = schemas.put("/x", body(b"{}" + b" " * 2_000_000))

    ask_for(cllm, provider, url).failed_with_one_sentence("larger than 1048576")


def test_an_endless_body_is_refused(home, provider, settings, schemas, cllm):
    result = ask_for(cllm, provider, schemas.put("/x", endless))

    result.failed_with_one_sentence("larger than 1048576")
    assert cached(home) == []


@pytest.mark.parametrize(
    ("response", "words"),
    [
        (body(b"<html>Log in</html>"), ["not JSON"]),
        (body(b"\xff\xfe"), ["UTF-8"]),
        (body(b"no", 404), ["404"]),
        (body(b"no", 503), ["503"]),
        (body(b"{}", Content_Length="99"), ["too early"]),
    ],
)
def test_an_invalid_schema_is_not_cached(home, provider, settings, schemas, cllm, response, words):
    ask_for(cllm, provider, schemas.put("/x", response)).failed_with_one_sentence(*words)

    assert cached(home) == []
    assert provider.requests == []


def test_an_expired_copy_is_fetched_again(provider, settings, schemas, fetched, cllm):
    ask_for(cllm, provider, fetched).succeeded()
    ask_for(cllm, provider, fetched, CLLM_SCHEMA_CACHE_TTL="0").succeeded()

    assert len(schemas.asked) == 2


def test_an_expired_copy_is_used_with_a_warning_if_the_server_fails(
    provider, settings, schemas, fetched, cllm
):
    ask_for(cllm, provider, fetched).succeeded()
    schemas.put("/person.json", body(b"no", 503))

    result = ask_for(cllm, provider, fetched, CLLM_SCHEMA_CACHE_TTL="0").succeeded()

    assert [line for line in result.warnings if "cached JSON schema" in line and "503" in line]
    assert len(provider.requests) == 2


def test_offline_mode_uses_an_expired_copy_without_a_request(
    provider, settings, schemas, fetched, cllm
):
    ask_for(cllm, provider, fetched).succeeded()

    offline = {"CLLM_OFFLINE_MODE": "1", "CLLM_SCHEMA_CACHE_TTL": "0"}
    result = ask_for(cllm, provider, fetched, **offline).succeeded()

    assert result.err == ""
    assert len(schemas.asked) == 1


def test_offline_mode_without_a_copy_is_an_error(provider, settings, schemas, fetched, cllm):
    result = ask_for(cllm, provider, fetched, CLLM_OFFLINE_MODE="true")

    result.failed_with_one_sentence("CLLM_OFFLINE_MODE", "never fetched")
    assert schemas.asked == []


@pytest.mark.parametrize("damage", [b"", b"{", b"\0" * 100, b'{"address": "x"}'])
def test_a_damaged_copy_is_fetched_again(home, provider, settings, schemas, fetched, cllm, damage):
    ask_for(cllm, provider, fetched).succeeded()
    cached(home)[0].write_bytes(damage)

    ask_for(cllm, provider, fetched).succeeded()

    assert len(schemas.asked) == 2


def test_the_cache_is_cleared(home, provider, settings, schemas, fetched, cllm):
    ask_for(cllm, provider, fetched).succeeded()

    assert cllm("--clear-schema-cache").succeeded().out == "Deleted 1 cached schema.\n"
    assert cached(home) == []
    assert cllm("--clear-schema-cache").succeeded().out == "Deleted 0 cached schemas.\n"


def test_clearing_an_empty_cache_creates_nothing(home, cllm):
    cllm("--clear-schema-cache").succeeded()

    assert home.entries() == []


@pytest.mark.parametrize(
    "name", ["CLLM_SCHEMA_CACHE_TTL", "CLLM_MAX_SCHEMA_SIZE", "CLLM_OFFLINE_MODE"]
)
def test_an_invalid_variable_is_reported(provider, settings, fetched, cllm, name):
    result = ask_for(cllm, provider, fetched, **{name: "soon"})

    result.failed_with_one_sentence(name, prefix="Configuration error: ")


@pytest.fixture
def secure(tmp_path):
    """A server with a self-signed certificate, and the variable that makes it trusted."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl, which makes the certificate, is not on this machine")
    path = certificate(tmp_path)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(path)
    with SchemaServer(tls) as running:
        yield running, {"SSL_CERT_FILE": str(tmp_path / "public.pem")}


def test_https_needs_no_permission(provider, settings, secure, cllm):
    server, trusted = secure
    url = server.put("/person.json", body(json.dumps(PERSON).encode()))
    provider.queue_reply(ALICE)

    cllm("Who?", "--json-schema-file", url, env=trusted).succeeded()

    assert url.startswith("https://")
    assert server.asked == ["/person.json"]


def test_an_untrusted_certificate_is_refused(provider, settings, secure, cllm):
    server, _ = secure
    url = server.put("/person.json", body(json.dumps(PERSON).encode()))

    result = cllm("Who?", "--json-schema-file", url)

    result.failed_with_one_sentence("certificate")
    assert server.asked == []
    assert provider.requests == []


def test_a_redirect_from_https_to_http_is_never_followed(
    provider, settings, secure, schemas, fetched, cllm
):
    server, trusted = secure
    url = server.put("/person.json", redirect(fetched))

    result = cllm("Who?", "--json-schema-file", url, env=HTTP | trusted)

    result.failed_with_one_sentence("redirects from https")
    assert schemas.asked == []
    assert provider.requests == []

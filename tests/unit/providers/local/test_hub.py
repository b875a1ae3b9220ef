"""Names on Hugging Face, and the choice of a file in a repository, on a loopback server."""

import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from cllm.core.errors import DownloadError, UsageError
from cllm.providers.local.download import DownloadSource, RefusedError
from cllm.providers.local.hub import HubMatch, HubQuery, find_file, parse_hub_name

DIGEST = hashlib.sha256(b"GGUF").hexdigest()
REVISION = "a" * 40


class Hub:
    """Answers with `pages`, else with HTTP 404; records the paths and the authorization."""

    def __init__(self) -> None:
        self.pages: dict[str, Any] = {}
        self.requests: list[tuple[str, str | None]] = []
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                hub.requests.append((self.path, self.headers.get("Authorization")))
                page = hub.pages.get(self.path)
                data = page if isinstance(page, bytes) else json.dumps(page).encode()
                self.send_response(404 if page is None else 200)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                """Log nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def add(self, *paths: str, tags: tuple[str, ...] = ("license:apache-2.0",)) -> None:
        entries: list[dict[str, Any]] = [{"type": "directory", "path": "folder.gguf"}]
        entries += [
            {"type": "file", "path": path, "size": 4, "lfs": {"oid": DIGEST, "size": 4}}
            for path in paths
        ]
        self.pages["/api/models/o/r"] = {"id": "o/r", "sha": REVISION, "tags": tags}
        self.pages[f"/api/models/o/r/tree/{REVISION}"] = entries

    def find(self, quantisation: str | None = None, **environ: str) -> HubMatch:
        query = HubQuery(repository="o/r", quantisation=quantisation)
        return find_file(query, {"HF_ENDPOINT": self.url, **environ})


@pytest.fixture
def hub() -> Iterator[Hub]:
    hub = Hub()
    yield hub
    hub.server.shutdown()
    hub.server.server_close()


def test_a_name_is_a_file_or_a_repository():
    assert isinstance(parse_hub_name("hf:o/r/a.gguf", {}), DownloadSource)
    assert parse_hub_name("hf:o/r:Q8_0", {}) == HubQuery(repository="o/r", quantisation="Q8_0")
    with pytest.raises(UsageError, match=r"hf:OWNER/REPO\[:QUANT\]"):
        parse_hub_name("hf:o", {})


def test_an_endpoint_without_tls_is_refused():
    query = HubQuery(repository="o/r")
    with pytest.raises(RefusedError, match="HTTPS"):
        find_file(query, {"HF_ENDPOINT": "http://hub.test"})


@pytest.mark.parametrize(
    ("names", "quantisation", "expected"),
    [
        (("m-Q8_0.gguf", "m-Q4_K_M.gguf", "README.md"), None, "m-Q4_K_M.gguf"),
        (("m-Q8_0.gguf", "m-Q2_K.gguf"), None, "m-Q8_0.gguf"),
        (("m.q4_k_m.gguf",), "Q4_K_M", "m.q4_k_m.gguf"),
        (("m-Q4_K_M.gguf", "m-UD-Q4_K_M.gguf"), None, "m-Q4_K_M.gguf"),
        (("m-IQ4_XS.gguf", "m-Q4_K_S.gguf"), "iq4_xs", "m-IQ4_XS.gguf"),
        (("mmproj-Q8_0.gguf", "m-Q8_0-00001-of-00002.gguf", "m-f16.gguf"), None, "m-f16.gguf"),
    ],
)
def test_the_file_of_a_quantisation_is_found(hub, names, quantisation, expected):
    hub.add(*names)

    match = hub.find(quantisation)

    assert match.source.name == expected
    assert match.source.sha256 == DIGEST
    assert match.source.url == f"{hub.url}/o/r/resolve/{REVISION}/{expected}"


@pytest.mark.parametrize(
    ("names", "quantisation", "message"),
    [
        (("m-Q2_K.gguf", "m-Q3_K.gguf"), None, "Q4_K_M or Q8_0.*m-Q2_K.gguf, m-Q3_K.gguf"),
        (("m-Q2_K.gguf",), "Q8_0", "quantisation Q8_0"),
        (("model.safetensors",), None, "no GGUF file"),
        (("../m-Q8_0.gguf", "a/m-Q8_0.gguf"), None, "no GGUF file"),
    ],
)
def test_a_repository_without_such_a_file_is_an_error(hub, names, quantisation, message):
    hub.add(*names)

    with pytest.raises(DownloadError, match=message):
        hub.find(quantisation)


@pytest.mark.parametrize(
    ("tags", "licence"),
    [
        (("gguf", "license:mit"), None),
        (("license:llama3.2",), "llama3.2"),
        (("license:mit", "license:other"), "mit, other"),
        ((), "unknown"),
    ],
)
def test_a_licence_that_is_not_permissive_is_reported(hub, tags, licence):
    hub.add("m-Q8_0.gguf", tags=tags)

    assert hub.find().licence == licence


def test_the_token_is_sent_and_a_missing_repository_names_it(hub):
    with pytest.raises(DownloadError, match=r"o/r does not exist.*HF_TOKEN"):
        hub.find(HF_TOKEN="secret")

    assert hub.requests == [("/api/models/o/r", "Bearer secret")]


@pytest.mark.parametrize("page", [b"<html>", b"[]", b'{"sha": 1}'])
def test_an_unexpected_response_is_one_sentence(hub, page):
    hub.pages["/api/models/o/r"] = page

    with pytest.raises(DownloadError, match="HF_ENDPOINT"):
        hub.find()


def test_an_unreachable_hub_is_one_sentence():
    with pytest.raises(DownloadError, match=r"\(connection refused\); check the network"):
        find_file(HubQuery(repository="o/r"), {"HF_ENDPOINT": "http://127.0.0.1:9"})

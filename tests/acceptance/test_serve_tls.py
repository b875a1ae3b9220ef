"""`cllm serve` with TLS, behind a proxy, and the warning without either."""

import http.client
import json
import os
import shutil
import ssl
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.fake_provider import FakeProvider
from tests.home import Home, write_settings
from tests.server_process import COMPLETIONS, Server, completion_body

KEYED = {"keys": [{"name": "ci", "owner": "team", "key": "key-of-the-caller-0123456789"}]}
WARNING = "travel unencrypted"
HELLO = ("user", "Hello.")


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """A self-signed certificate for localhost, and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl")
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    options = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    subprocess.run(
        [*command.split(), *options, "-out", cert, "-keyout", key], check=True, capture_output=True
    )
    return cert, key


@pytest.mark.parametrize("workers", ["1", "2"])
def test_whole_responses_and_streams_are_sent_over_https(
    serve: Callable[..., Server], certificate: tuple[Path, Path], workers: str
):
    cert, key = certificate
    server = serve("--tls-cert", str(cert), "--tls-key", str(key), "--workers", workers)
    context = ssl.create_default_context(cafile=cert)
    connection = http.client.HTTPSConnection(server.host, server.port, context=context, timeout=30)

    replies = []
    for stream in (False, True):
        body = json.dumps(completion_body(HELLO, stream=stream))
        connection.request("POST", COMPLETIONS, body)
        replies.append(connection.getresponse().read())
    connection.close()

    assert server.address.startswith("https://")
    assert json.loads(replies[0])["choices"][0]["message"]["content"] == "echo: Hello."
    assert replies[1].endswith(b"data: [DONE]\n\n")
    with pytest.raises((http.client.HTTPException, OSError)):
        server("GET", "/health")


def test_certificate_and_key_can_be_settings(
    serve: Callable[..., Server], certificate: tuple[Path, Path]
):
    cert, key = certificate

    server = serve(server={"tls_cert": str(cert), "tls_key": str(key)})

    assert server.address.startswith("https://")


def test_an_unusable_certificate_or_key_is_an_error_with_its_reason(
    cllm: Any, settings: Callable[..., Path], certificate: tuple[Path, Path], tmp_path: Path
):
    cert, key = certificate
    encrypted = tmp_path / "encrypted.pem"
    subprocess.run(
        ["openssl", "ec", "-in", key, "-out", encrypted, "-aes256", "-passout", "pass:secret"],
        check=True,
        capture_output=True,
    )
    serve = ("serve", "--port", "0", "--store", "memory:")

    other, junk, empty, pipe = (tmp_path / name for name in ("other", "junk", "empty", "pipe"))
    command = "openssl ecparam -name prime256v1 -genkey -noout -out"
    subprocess.run([*command.split(), other], check=True, capture_output=True)
    junk.write_text("junk", encoding="ascii")
    empty.touch()
    os.mkfifo(pipe)
    no_key = "has no private key"
    no_certificate = "has no certificate"
    regular = "is not a regular file"

    cllm(*serve, "--tls-key", str(key)).failed_with_one_sentence("--tls-cert", code=2)
    cllm(*serve, "--tls-cert", "missing.pem").failed_with_one_sentence("missing.pem", "no such")
    cllm(*serve, "--tls-cert", str(cert)).failed_with_one_sentence(f"{cert} {no_key}")
    for files, problem in (
        ((cert, cert), f"{cert} {no_key}"),
        ((cert, junk), f"{junk} {no_key}"),
        ((cert, empty), f"{empty} {no_key}"),
        ((cert, encrypted), f"{encrypted} has a password"),
        ((cert, other), "belongs to another certificate"),
        ((key, cert), f"{key} {no_certificate}"),
        ((junk, key), f"{junk} {no_certificate}"),
        ((empty, key), f"{empty} {no_certificate}"),
        ((pipe, key), f"{pipe} {regular}"),
        ((cert, pipe), f"{pipe} {regular}"),
    ):
        result = cllm(*serve, "--tls-cert", str(files[0]), "--tls-key", str(files[1]))
        result.failed_with_one_sentence(problem)


def start(home: Home, provider: FakeProvider, host: str, **server: Any) -> str:
    write_settings(home, provider, server=server)
    with Server(
        environment=home.environment,
        directory=home.work,
        store="memory:",
        arguments=("--host", host),
    ) as running:
        running("GET", "/health")
        running.terminate()
        running.wait()
        return running.log


def test_keys_without_tls_on_a_public_address_cause_a_warning(home: Home, provider: FakeProvider):
    assert WARNING in start(home, provider, "0.0.0.0", **KEYED)
    assert WARNING not in start(home, provider, "127.0.0.1", **KEYED)
    assert WARNING not in start(home, provider, "0.0.0.0", **KEYED, trusted_proxies=["10.0.0.0/8"])


def test_the_client_address_of_a_trusted_proxy_is_logged(
    serve: Callable[..., Server], until: Callable[..., bool]
):
    for proxies, address in (([], "127.0.0.1"), (["127.0.0.1"], "192.0.2.7")):
        server = serve(server={"trusted_proxies": proxies})
        server("GET", "/health", None, {"X-Forwarded-For": "192.0.2.7"})

        assert until(lambda: f'"client":"{address}"' in server.log)  # noqa: B023
        server.close()

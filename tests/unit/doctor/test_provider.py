"""Findings about packages and connections."""

import socket

import pytest

from cllm.core.installation import EXTRAS
from cllm.doctor.provider import _check_connection, check_machine


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)


def test_the_versions_and_all_extras_are_listed():
    versions, extras = check_machine()

    assert versions.message.startswith("cllm ")
    assert "msgspec" in versions.message
    assert all(name in extras.message for name in EXTRAS)


def test_a_listening_server_is_reachable():
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        finding = _check_connection("openai", url)

    assert (finding.level, finding.message) == ("ok", f"'openai' is reachable at {url}.")


def test_a_closed_port_is_a_problem_with_advice():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

    finding = _check_connection("openai", f"http://127.0.0.1:{port}")

    assert finding.level == "problem"
    assert "check the network" in finding.message


@pytest.mark.parametrize("url", ["nonsense", "http://[::1"])
def test_an_invalid_url_is_a_problem(url):
    assert "is not a URL" in _check_connection("openai", url).message

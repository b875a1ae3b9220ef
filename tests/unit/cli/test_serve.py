"""The options of `cllm serve`."""

from pathlib import Path

import pytest

from cllm.cli.serve import _load_settings, command, describe_clients
from cllm.core.errors import UsageError
from cllm.settings.sections import KeySettings, ServerSettings


def test_an_empty_host_is_an_error():
    with pytest.raises(UsageError, match="--host needs an address"):
        command.main(["--host", ""], standalone_mode=False)


@pytest.fixture
def options(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    names = ("cllm_path", "host", "port", "store", "workers", "record", "tls_cert", "tls_key")
    return {**dict.fromkeys(names), "trust": False}


def test_only_options_with_a_value_override_the_settings(options, tmp_path):
    (tmp_path / ".cllm").mkdir()
    text = "server: {host: localhost, port: 1}"
    Path(tmp_path, ".cllm/Cllmfile.yml").write_text(text, encoding="utf-8")

    server = _load_settings({**options, "port": 8080}).server

    assert (server.host, server.port) == ("localhost", 8080)


@pytest.mark.parametrize("keys", [(), (KeySettings(name="ci", owner="ci", key="k"),)])
def test_a_recording_server_says_how_to_connect_clients(keys):
    server = ServerSettings(record="auto", keys=keys)
    lines = list(describe_clients("http://127.0.0.1:3000", server))
    assert "  ANTHROPIC_BASE_URL=http://127.0.0.1:3000  (Claude Code, Anthropic SDKs)" in lines
    assert lines[-1] == ("  API key: one of server.keys" if keys else "  API key: any text")
    assert next(iter(describe_clients("x", ServerSettings()))).startswith("Recording is off")

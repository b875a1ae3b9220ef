"""The model that cllm chooses if none is configured."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import yaml

from cllm.default_model import SMALL_MODELS

MODEL = f"openai/{SMALL_MODELS['openai']}"
KEY = {"OPENAI_API_KEY": "sk-environment"}


@pytest.fixture
def no_model(home, provider):
    """Settings with the addresses of two providers, and no model."""
    rows = {name: {"api_base": provider.url} for name in ("openai", "mistral")}
    path = home.path / ".cllm/Cllmfile.yml"
    path.parent.mkdir(parents=True)
    path.write_text(yaml.safe_dump({"providers": rows, "num_retries": 0}), encoding="utf-8")


@pytest.fixture
def ollama_host():
    tags = {"models": [{"name": "llama9:1b", "modified_at": "2026-01-01T00:00:00Z"}]}
    body = json.dumps(tags).encode()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_args) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


@pytest.mark.usefixtures("no_model")
def test_a_key_chooses_its_provider_and_the_hint_appears_once(provider, cllm):
    first = cllm("Hello", env=KEY).succeeded()
    second = cllm("Hello", env=KEY).succeeded()

    assert provider.requests[0].json["model"] == SMALL_MODELS["openai"]
    assert first.err.startswith(f"Using {MODEL}: no model is configured, and OPENAI_API_KEY is set")
    assert second.err == ""
    assert "sk-environment" not in first.out + first.err


@pytest.mark.usefixtures("no_model")
def test_a_conversation_continues_with_its_model(home, provider, cllm):
    cllm("Hello", "--conversation", "demo", env=KEY).succeeded()
    mistral = {"providers": {name: {"api_base": provider.url} for name in ("openai", "mistral")}}
    mistral["providers"]["openai"]["api_key"] = "${SECOND_KEY}"
    (home.path / ".cllm/Cllmfile.yml").write_text(yaml.safe_dump(mistral), encoding="utf-8")
    other = {"MISTRAL_API_KEY": "x"}
    assert "model: mistral/" in cllm("--show-config", env=other).succeeded().out
    cllm("Again", "--conversation", "demo", env={**other, **KEY, "SECOND_KEY": "x"}).succeeded()

    assert home.load("demo")["model"] == MODEL
    assert [request.json["model"] for request in provider.requests] == [SMALL_MODELS["openai"]] * 2


@pytest.mark.usefixtures("no_model")
def test_the_chat_names_the_model_and_the_reason(cllm):
    result = cllm("chat", stdin=b"Hello\n", env=KEY).succeeded()

    assert f"Using {MODEL}: no model is configured" in result.err + result.out


@pytest.mark.usefixtures("no_model")
def test_the_settings_and_the_doctor_show_the_model_and_the_reason(cllm):
    shown = cllm("--show-config", env=KEY).succeeded().out
    report = cllm("doctor", env=KEY).out

    assert f"  model: {MODEL} (default, because OPENAI_API_KEY is set)\n" in shown
    assert "  openai: set (OPENAI_API_KEY)\n" in shown
    assert f"model: {MODEL} (the default, because OPENAI_API_KEY is set) uses" in report


def test_the_newest_model_of_a_running_ollama_is_chosen(cllm, ollama_host):
    shown = cllm("--show-config", env={"OLLAMA_HOST": ollama_host}).succeeded().out

    reason = "'llama9:1b' is the newest model of the running Ollama"
    assert f"  model: ollama/llama9:1b (default, because {reason})\n" in shown


def test_the_provider_ollama_is_called_at_ollama_host(provider, cllm):
    host = provider.url.removeprefix("http://").removesuffix("/v1")
    cllm("Hello", "-m", "ollama/llama9:1b", env={"OLLAMA_HOST": host}).succeeded()

    assert provider.requests[0].json["model"] == "llama9:1b"


def test_a_configured_model_is_not_replaced(provider, settings, cllm):
    result = cllm("Hello", env={"MISTRAL_API_KEY": "x"}).succeeded()

    assert provider.requests[0].json["model"] == "gpt-test"
    assert result.err == ""


def test_the_default_model_can_be_set_and_is_shown_with_its_source(home, settings, cllm):
    path = settings()
    path.write_text(f"# Mine.\n{path.read_text(encoding='utf-8')}", encoding="utf-8")

    cllm("models", "default", "openai/gpt-other").succeeded()
    shown = cllm("models", "default").succeeded().out

    assert shown == f"openai/gpt-other ({path})\n"
    text = path.read_text(encoding="utf-8")
    assert text.startswith("# Mine.\n")
    assert text.count("model:") == 1


def test_a_model_that_has_priority_is_named(home, settings, cllm):
    settings()
    result = cllm("models", "default", "openai/x", env={"CLLM_MODEL": "openai/y"}).succeeded()

    assert "Here openai/y has priority" in result.err


def test_a_default_model_of_an_unknown_provider_is_an_error(home, settings, cllm):
    path = settings()
    before = path.read_bytes()

    cllm("models", "default", "nonsense").failed_with_one_sentence("nonsense", "provider/model")

    assert path.read_bytes() == before


def test_the_default_model_of_a_folder(home, cllm):
    cllm("models", "default", "local/smollm2-135m", "--local").succeeded()

    assert (home.work / ".cllm/Cllmfile.yml").read_text() == "model: local/smollm2-135m\n"

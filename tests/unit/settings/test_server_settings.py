"""`server` of the settings."""

import pytest

from cllm.core.errors import SettingsError
from cllm.settings.layers import CommandLine
from cllm.settings.load import load_settings
from cllm.settings.sections import KeySettings, Limits, ServerSettings


def settings_of(world, text: str):
    world.write_home(text)
    return load_settings(world.place, CommandLine())


def test_without_the_key_everything_has_its_default(world):
    assert settings_of(world, "model: m").server == ServerSettings()


def test_what_is_given_is_read_and_the_rest_stays(world):
    server = settings_of(
        world,
        """
server:
  port: 8080
  silence_seconds: 2.5
  routes: {fast: openai/gpt-mini}
  limits: {depth: 8}
  keys: [{name: ci, owner: ann, key: 0123456789abcdef}]
""",
    ).server

    assert server.port == 8080
    assert server.silence_seconds == 2.5
    assert server.routes == {"fast": "openai/gpt-mini"}
    assert server.limits == Limits(depth=8)
    assert server.keys == (KeySettings(name="ci", owner="ann", key="0123456789abcdef"),)


def test_a_callers_key_is_never_shown(world):
    settings = settings_of(world, "server: {keys: [{name: ci, owner: ann, key: 0123456789abcdef}]}")

    assert "0123456789abcdef" not in repr(settings.server)
    assert "0123456789abcdef" in settings.secrets()


@pytest.mark.parametrize(
    "given",
    [
        "port: -1",
        "port: true",
        "port: '80'",
        "limits: {body_bytes: 0}",
        "limits: {depths: 1}",
        "silence_seconds: 0",
        "keys: {name: ci}",
        "routes: [a]",
        "allowed_hosts: here",
    ],
)
def test_what_is_wrong_is_named(world, given: str):
    with pytest.raises(SettingsError, match=f"server.*{given.split(':', maxsplit=1)[0]}"):
        settings_of(world, f"server: {{{given}}}")

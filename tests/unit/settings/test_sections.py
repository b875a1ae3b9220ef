"""The sections of a Cllmfile: schemas, `server`, `window`."""

import pytest

from cllm.core.errors import SettingsError, UntrustedFileError
from cllm.settings.layers import CommandLine
from cllm.settings.load import load_settings
from cllm.settings.sections import KeySettings, Limits, ServerSettings
from cllm.settings.trust import dangerous_settings, is_outside_folder


def test_without_a_schema_there_is_no_source(load):
    assert load("model: a/b").schema is None


def test_an_inline_schema_of_a_file(load):
    schema = load("json_schema: {type: object}").schema

    assert schema.inline == {"type": "object"}
    assert schema.name == "Cllmfile.yml: json_schema"


def test_a_schema_file_is_relative_to_the_folder_of_its_cllmfile(world, load):
    schema = load("json_schema_file: a.json").schema

    assert schema.file == "a.json"
    assert schema.folder == world.home / ".cllm"
    assert not schema.is_confined


def test_a_schema_file_of_the_command_line_is_relative_to_the_current_directory(world, load):
    schema = load("{}", values={"json_schema_file": "a.json"}).schema

    assert schema.name == "--json-schema-file"
    assert schema.folder == world.work


def test_a_schema_file_of_a_project_is_confined_to_its_folder(world):
    world.write_here("json_schema_file: schemas/a.json")

    schema = world.load().schema

    assert schema.folder == world.work
    assert schema.is_confined


@pytest.mark.parametrize("lower", ["json_schema: {a: 1, b: 2}", "json_schema_file: x.json"])
@pytest.mark.parametrize(
    ("key", "value"), [("json_schema", {"b": 3}), ("json_schema_file", "y.json")]
)
def test_a_higher_layer_replaces_the_whole_schema(world, lower, key, value):
    world.write_home(lower)

    schema = world.load(values={key: value}).schema

    assert (schema.inline, schema.file) == (
        (value, None) if key == "json_schema" else (None, value)
    )


def test_null_in_a_higher_layer_is_no_schema(world):
    world.write_home("json_schema: {type: object}")
    world.write_here("json_schema: null")

    assert world.load().schema is None


def test_a_schema_is_not_a_parameter_of_the_request(load):
    assert load("json_schema: {type: object}").parameters == {}
    assert load("json_schema_file: a.json").parameters == {}


def test_both_keys_in_one_file_are_refused(load):
    with pytest.raises(SettingsError, match="not both"):
        load("json_schema: {}\njson_schema_file: a.json")


@pytest.mark.parametrize("text", ["json_schema: 12", "json_schema: [a]", "json_schema_file: {}"])
def test_a_schema_of_the_wrong_type_is_refused_with_its_line(load, text):
    with pytest.raises(SettingsError) as caught:
        load(f"model: a/b\n{text}")

    assert caught.value.line == 2


def test_an_empty_schema_file_is_refused(load):
    with pytest.raises(SettingsError, match="json_schema_file"):
        load("json_schema_file: ' '")


@pytest.mark.parametrize(
    "file",
    [
        "https://example.com/x",
        "HTTP://example.com/x",
        "file:///etc/passwd",
        "/etc/passwd",
        "../x.json",
        "a/../../x.json",
        "~/.ssh/id_rsa",
        "~root/x",
        "${HOME}/x",
        "a/${B}.json",
    ],
)
def test_a_schema_file_outside_the_folder_needs_trust(world, file):
    assert is_outside_folder(file)
    assert dangerous_settings({"json_schema_file": file}) == {"json_schema_file": file}
    world.write_here(f"json_schema_file: '{file}'")
    with pytest.raises(UntrustedFileError):
        world.load()


@pytest.mark.parametrize("file", ["a.json", "./a.json", "a/b/c.json", "a..b.json", "a~.json"])
def test_a_schema_file_in_the_folder_needs_no_trust(file):
    assert not is_outside_folder(file)
    assert dangerous_settings({"json_schema_file": file}) == {}


def test_an_inline_schema_needs_no_trust():
    assert dangerous_settings({"json_schema": {"$ref": "https://example.com/x"}}) == {}


def load_server(world, text: str):
    world.write_home(text)
    return load_settings(world.env, CommandLine())


def test_without_a_server_section_the_defaults_apply(world):
    assert load_server(world, "model: m").server == ServerSettings()


@pytest.mark.parametrize(
    ("text", "record"),
    [("", "off"), ("record: auto", "auto"), ("record: off", "off"), ("record: 'off'", "off")],
)
def test_recording_is_off_unless_it_is_automatic(world, text: str, record: str):
    assert load_server(world, f"server: {{{text}}}").server.record == record


@pytest.mark.parametrize("text", ["on", "all", "true", "1"])
def test_another_value_of_record_is_reported(world, text: str):
    with pytest.raises(SettingsError, match=r"`server\.record` must be `auto` or `off`"):
        load_server(world, f"server: {{record: {text}}}")


def test_server_values_override_the_defaults(world):
    server = load_server(
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


def test_a_client_key_is_never_shown(world):
    settings = load_server(world, "server: {keys: [{name: ci, owner: ann, key: 0123456789abcdef}]}")

    assert "0123456789abcdef" not in repr(settings.server)
    assert "0123456789abcdef" in settings.secrets()


@pytest.mark.parametrize(
    "text",
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
def test_an_invalid_server_value_is_reported(world, text: str):
    with pytest.raises(SettingsError, match=f"server.*{text.split(':', maxsplit=1)[0]}"):
        load_server(world, f"server: {{{text}}}")


def window_error(world, window: str) -> str:
    world.write_here(f"window: {window}")
    with pytest.raises(SettingsError) as caught:
        world.load()
    return str(caught.value)


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        ("{max_turns: 3}", "`window.max_turns` needs `strategy: turns`."),
        ("{strategy: summarise, max_turns: 3}", "`window.max_turns` needs `strategy: turns`."),
        ("{summary_tokens: 9}", "`window.summary_tokens` needs `strategy: summarise`."),
        (
            "{strategy: turns, max_tokens: 9}",
            "`window.max_tokens` needs `strategy: blocks` or `strategy: summarise`.",
        ),
    ],
)
def test_a_key_of_another_strategy_is_reported_with_that_strategy(world, window, expected):
    assert expected in window_error(world, window)


def test_an_unknown_key_is_reported_with_the_known_ones(world):
    error = window_error(world, "{strategy: summarise, max_turn: 3}")

    assert "`window.max_turn` is not a known key" in error
    assert "`strategy: summarise` accepts `max_tokens` and `summary_tokens`" in error


def test_an_error_has_file_and_line(world):
    error = window_error(world, "{max_turns: 3}")

    assert "Cllmfile" in error
    assert "line 1" in error

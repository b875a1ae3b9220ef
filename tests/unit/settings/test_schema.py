"""Which schema the layers name, and which of them need trust."""

import pytest

from cllm.core.errors import SettingsError, UntrustedFileError
from cllm.settings.trust import dangerous_settings, is_outside_folder


def test_no_layer_names_a_schema(load):
    assert load("model: a/b").schema is None


def test_a_mapping_of_a_file(load):
    schema = load("json_schema: {type: object}").schema

    assert schema.inline == {"type": "object"}
    assert schema.name == "Cllmfile.yml: json_schema"


def test_a_file_is_named_from_the_folder_of_its_cllmfile(world, load):
    schema = load("json_schema_file: a.json").schema

    assert schema.file == "a.json"
    assert schema.folder == world.home / ".cllm"
    assert not schema.confined


def test_a_file_of_the_command_line_is_named_from_the_current_directory(world, load):
    schema = load("{}", values={"json_schema_file": "a.json"}).schema

    assert schema.name == "--json-schema-file"
    assert schema.folder == world.work


def test_a_project_s_file_stays_in_its_folder(world):
    world.write_here("json_schema_file: schemas/a.json")

    schema = world.load().schema

    assert schema.folder == world.work
    assert schema.confined


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


def test_a_schema_never_goes_into_the_body(load):
    assert load("json_schema: {type: object}").parameters == {}
    assert load("json_schema_file: a.json").parameters == {}


def test_both_keys_in_one_file_are_refused(load):
    with pytest.raises(SettingsError, match="not both"):
        load("json_schema: {}\njson_schema_file: a.json")


@pytest.mark.parametrize("text", ["json_schema: 12", "json_schema: [a]", "json_schema_file: {}"])
def test_a_schema_of_the_wrong_kind_is_refused_with_its_line(load, text):
    with pytest.raises(SettingsError) as caught:
        load(f"model: a/b\n{text}")

    assert caught.value.line == 2


def test_an_empty_name_of_a_file_is_refused(load):
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
def test_a_file_that_is_elsewhere_needs_trust(world, file):
    assert is_outside_folder(file)
    assert dangerous_settings({"json_schema_file": file}) == {"json_schema_file": file}
    world.write_here(f"json_schema_file: '{file}'")
    with pytest.raises(UntrustedFileError):
        world.load()


@pytest.mark.parametrize("file", ["a.json", "./a.json", "a/b/c.json", "a..b.json", "a~.json"])
def test_a_file_beside_the_cllmfile_needs_none(file):
    assert not is_outside_folder(file)
    assert dangerous_settings({"json_schema_file": file}) == {}


def test_a_schema_that_is_written_out_needs_no_trust():
    assert dangerous_settings({"json_schema": {"$ref": "https://example.com/x"}}) == {}

"""Which files apply, and how the layers are merged."""

import pytest

from cllm.core.errors import SettingsError, UsageError
from cllm.settings.layers import (
    CommandLine,
    expand_home,
    list_config_names,
    merge,
    merge_layers,
    read_files,
    settings_folders,
)


def test_an_explicit_folder_replaces_both_default_folders(world, tmp_path):
    default = settings_folders(world.env, CommandLine())
    explicit = settings_folders(world.env, CommandLine(cllm_path=tmp_path))

    assert default == [
        (world.home / ".cllm", True),
        (world.work / ".cllm", False),
        (world.work, False),
    ]
    assert explicit == [(tmp_path, True)]


def test_a_named_file_is_the_last_one(world):
    world.write_home("model: a")
    named = world.work / "review.Cllmfile.yml"
    named.write_text("model: b", encoding="utf-8")

    files = read_files(world.env, CommandLine(config="review"))

    assert [file.content["model"] for file in files] == ["a", "b"]
    assert list_config_names(world.env, CommandLine()) == ["review"]


@pytest.mark.parametrize("name", ["missing", "../review", "", ".."])
def test_a_missing_named_file_is_an_error(world, name):
    with pytest.raises(
        UsageError, match=r"does not exist in ~/\.cllm, \./\.cllm or the current directory"
    ):
        read_files(world.env, CommandLine(config=name))


def test_the_environment_overrides_files_and_the_command_line_both(world):
    world.write_home("{model: a, debug: false}")
    world.environment.update(CLLM_MODEL="b", CLLM_DEBUG="yes", CLLM_VERBOSITY="2")
    line = CommandLine(values={"model": "c"})

    merged = merge_layers(read_files(world.env, line), world.env, line)

    assert merged.values == {"model": "c", "debug": True, "verbosity": 2}
    assert merged.sources["debug"] == "CLLM_DEBUG"


def test_the_source_of_a_nested_value(world):
    path = world.write_home("window: {max_turns: 3}")
    merged = merge_layers(read_files(world.env, CommandLine()), world.env, CommandLine())

    assert merged.source_of("window.max_turns") == str(path)
    assert merged.source_of("window") == str(path)
    assert merged.source_of("model") is None
    assert merged.expectation_error("window.max_turns", "a number").line == 1


def test_only_mappings_are_merged():
    assert merge({"a": {"b": 1}, "c": [1]}, {"a": {"d": 2}, "c": [2]}) == {
        "a": {"b": 1, "d": 2},
        "c": [2],
    }


def test_an_unknown_home_is_an_error():
    with pytest.raises(SettingsError, match="does not exist"):
        expand_home("~no-such-user-exists/x")

"""One key of a Cllmfile, or of a mapping in it, changes; the rest stays as it is."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import yaml

from cllm.core.errors import SettingsError
from cllm.settings.cllmfile_edit import remove_entry, set_entry, set_key


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "model: a/b\n"),
        ("# Mine.\n", "# Mine.\nmodel: a/b\n"),
        ("temperature: 1", "temperature: 1\nmodel: a/b\n"),
        ("# A\nmodel: x/y  # old\nseed: 1\n", "# A\nmodel: a/b  # old\nseed: 1\n"),
        ("model: 'x/y'\n", "model: a/b\n"),
        ("model:\nseed: 1\n", "model: a/b\nseed: 1\n"),
        ("{model: x/y, seed: 1}\n", "{model: a/b, seed: 1}\n"),
        ("---\nseed: 1\n", "---\nseed: 1\nmodel: a/b\n"),
        (
            "api_key: ${KEY}\nvariables:\n  x: é\n",
            "api_key: ${KEY}\nvariables:\n  x: é\nmodel: a/b\n",
        ),
    ],
)
def test_only_the_key_changes(tmp_path, before, after):
    path = tmp_path / "Cllmfile.yml"
    path.write_text(before, encoding="utf-8")
    path.chmod(0o640)

    set_key(path, "model", "a/b")

    assert path.read_text(encoding="utf-8") == after
    assert path.stat().st_mode & 0o777 == 0o640
    assert [entry.name for entry in tmp_path.iterdir()] == ["Cllmfile.yml"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "aliases:\n  fast: a/b\n"),
        ("seed: 1", "seed: 1\naliases:\n  fast: a/b\n"),
        ("aliases:\nseed: 1\n", "aliases:\n  fast: a/b\nseed: 1\n"),
        ("aliases: {}\nseed: 1\n", "aliases: {fast: a/b}\nseed: 1\n"),
        ("aliases: {x: y/z} # A\n", "aliases: {x: y/z, fast: a/b} # A\n"),
        ("aliases: {fast: y/z}\n", "aliases: {fast: a/b}\n"),
        (
            "aliases: # A: b\n    x: y/z # B\n    # C\nseed: 1\n",
            "aliases: # A: b\n    x: y/z # B\n    fast: a/b\n    # C\nseed: 1\n",
        ),
        ("aliases:\n  x: y/z", "aliases:\n  x: y/z\n  fast: a/b\n"),
        (
            "aliases:\n  fast: 'y/z' # B\n  x: y/z\n",
            "aliases:\n  fast: a/b # B\n  x: y/z\n",
        ),
        ("{aliases: {x: y}, seed: 1}\n", "{aliases: {x: y, fast: a/b}, seed: 1}\n"),
    ],
)
def test_only_the_entry_changes(tmp_path, before, after):
    path = tmp_path / "Cllmfile.yml"
    path.write_text(before, encoding="utf-8")

    set_entry(path, "aliases", "fast", "a/b")

    assert path.read_text(encoding="utf-8") == after


@pytest.mark.parametrize("name", ["no", "1", "null", "a: b", "#x", "é", "${HOME}", "'"])
@pytest.mark.parametrize("before", ["", "aliases: {x: y}\n", "aliases:\n  x: y\n"])
def test_a_name_that_yaml_would_change_is_quoted_and_can_be_removed(tmp_path, before, name):
    path = tmp_path / "Cllmfile.yml"
    path.write_text(before, encoding="utf-8")

    set_entry(path, "aliases", name, "a/b")
    assert yaml.safe_load(path.read_text(encoding="utf-8"))["aliases"][name] == "a/b"

    remove_entry(path, "aliases", name)
    assert name not in yaml.safe_load(path.read_text(encoding="utf-8"))["aliases"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("aliases:\n  fast: a/b\n", "aliases: {}\n"),
        (
            "aliases: # A: b\n  # B\n  fast: a/b # C\nseed: 1\n",
            "aliases: {} # A: b\n  # B\nseed: 1\n",
        ),
        ("aliases:\n  fast: a/b\n  # B\n  x: y/z\n", "aliases:\n  # B\n  x: y/z\n"),
        ("aliases:\n  x: y/z\n  fast: |\n    a/b\nseed: 1\n", "aliases:\n  x: y/z\nseed: 1\n"),
        ("aliases: {fast: a/b, x: y/z} # A\n", "aliases: {x: y/z} # A\n"),
        ("aliases: {fast: a/b}", "aliases: {}"),
    ],
)
def test_only_the_entry_is_removed(tmp_path, before, after):
    path = tmp_path / "Cllmfile.yml"
    path.write_text(before, encoding="utf-8")

    remove_entry(path, "aliases", "fast")

    assert path.read_text(encoding="utf-8") == after


@pytest.mark.parametrize(
    "text",
    [
        "aliases: {\n  x: y # A\n}\n",
        "aliases: [a]\n",
        "x: &x {a: b}\naliases: *x\n",
        "x: &x\n  a: b\naliases:\n  <<: *x\n",
    ],
)
def test_a_mapping_that_cannot_be_edited_stays_as_it_is(tmp_path, text):
    path = tmp_path / "Cllmfile.yml"
    path.write_text(text, encoding="utf-8")

    with pytest.raises(SettingsError, match=r"yourself\."):
        set_entry(path, "aliases", "fast", "a/b")
    with pytest.raises(SettingsError, match=r"yourself\."):
        remove_entry(path, "aliases", "a")

    assert path.read_text(encoding="utf-8") == text


def test_a_missing_file_is_created_for_its_owner_only(tmp_path):
    path = tmp_path / ".cllm/Cllmfile.yml"

    set_key(path, "model", "ollama/llama3.2:1b")

    assert path.read_text(encoding="utf-8") == "model: ollama/llama3.2:1b\n"
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "text", ["{seed: 1}\n", "seed: 1\n...\n", "- a\n", "a: [\n", "model: &m x\nb: *m\n"]
)
def test_a_file_that_cannot_be_edited_stays_as_it_is(tmp_path, text):
    path = tmp_path / "Cllmfile.yml"
    path.write_text(text, encoding="utf-8")

    with pytest.raises(SettingsError):
        set_key(path, "model", "a/b")

    assert path.read_text(encoding="utf-8") == text


def test_the_target_of_a_link_is_written(tmp_path):
    target, link = tmp_path / "dotfiles.yml", tmp_path / "Cllmfile.yml"
    target.write_text("seed: 1\n", encoding="utf-8")
    link.symlink_to(target)

    set_key(link, "model", "a/b")

    assert link.is_symlink()
    assert target.read_text(encoding="utf-8") == "seed: 1\nmodel: a/b\n"


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("", encoding="utf-8")

    with pytest.raises(
        SettingsError, match=r"cannot be written \(.+\); check its folder"
    ) as raised:
        set_key(tmp_path / "file/Cllmfile.yml", "model", "a/b")

    assert "--conversations-path" not in str(raised.value)


def test_edits_at_the_same_time_are_all_saved(tmp_path):
    path, names = tmp_path / "new/Cllmfile.yml", [f"alias-{number}" for number in range(20)]

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda name: set_entry(path, "aliases", name, "a/b"), names))

    assert yaml.safe_load(path.read_text()) == {"aliases": dict.fromkeys(names, "a/b")}
    assert [entry.name for entry in path.parent.iterdir()] == ["Cllmfile.yml"]

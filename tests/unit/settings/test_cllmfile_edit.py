"""One key of a Cllmfile is set; the rest stays as it is."""

import pytest

from cllm.core.errors import SettingsError
from cllm.settings.cllmfile_edit import set_key


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

"""The text and the files that `cllm init` writes."""

import pytest
import yaml

from cllm.cli.init import (
    IGNORED,
    _add_to_gitignore,
    _backup_path,
    _set_value,
    _template_text,
    template_names,
)
from cllm.core.errors import UsageError


def test_the_default_is_not_a_template():
    assert "default" not in template_names()
    assert "code-review" in template_names()


@pytest.mark.parametrize("name", template_names())
def test_a_template_starts_with_a_description_and_sets_no_model(name):
    text = _template_text(name)

    assert text.startswith("# ")
    assert "model" not in yaml.safe_load(text)


def test_an_unknown_template_is_an_error_that_lists_the_known_ones():
    with pytest.raises(UsageError, match="code-review"):
        _template_text("nonsense")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("model: a # old\nstream: true\n", "model: b\nstream: true\n"),
        ("# model: a\nstream: true\n", "model: b\nstream: true\n"),
        ("model: |\n  a\n\n  c\nstream: true\n", "model: b\nstream: true\n"),
        ("# Only a comment.\n", "# Only a comment.\n\nmodel: b\n"),
    ],
)
def test_a_value_replaces_an_entry_or_is_appended(text, expected):
    assert _set_value(text, "model", "b") == expected


def test_a_backup_has_a_new_name(tmp_path):
    path = tmp_path / "Cllmfile.yml"

    assert _backup_path(path).name == "Cllmfile.yml.old"
    (tmp_path / "Cllmfile.yml.old").touch()
    assert _backup_path(path).name == "Cllmfile.yml.old.2"
    (tmp_path / "Cllmfile.yml.old.2").symlink_to("missing")
    assert _backup_path(path).name == "Cllmfile.yml.old.3"


class TestGitignore:
    def test_missing_lines_are_added_once(self, tmp_path):
        path = tmp_path / ".gitignore"
        path.write_text(f"build\n{IGNORED[0]}", encoding="utf-8")

        _add_to_gitignore(path)
        _add_to_gitignore(path)

        assert path.read_text(encoding="utf-8").splitlines() == ["build", *IGNORED]

    def test_a_symbolic_link_is_not_changed(self, tmp_path, capsys):
        target = tmp_path / "target"
        target.touch()
        path = tmp_path / ".gitignore"
        path.symlink_to(target)

        _add_to_gitignore(path)

        assert target.read_bytes() == b""
        assert IGNORED[0] in capsys.readouterr().err

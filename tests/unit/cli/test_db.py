"""The confirmations before an upgrade or a downgrade deletes data."""

import json

import pytest

from cllm.cli.db import _confirm_deletion, _confirm_downgrade
from cllm.core.errors import UsageError
from cllm.stores.sql.migrate import StoredPrompt

PROMPTS = [StoredPrompt(conversation="1", system_message="Be brief.")]


def test_the_prompts_are_saved_to_a_new_private_file(tmp_path, capsys):
    target = tmp_path / "prompts.jsonl"

    _confirm_deletion(PROMPTS, target)

    assert json.loads(target.read_text(encoding="utf-8"))["system_message"] == "Be brief."
    assert target.stat().st_mode & 0o777 == 0o600
    assert f"System prompts saved to {target}" in capsys.readouterr().err


def test_an_existing_file_is_not_overwritten(tmp_path):
    target = tmp_path / "prompts.jsonl"
    target.write_text("mine", encoding="utf-8")

    with pytest.raises(UsageError, match="already exists"):
        _confirm_deletion(PROMPTS, target, yes=True)

    assert target.read_text(encoding="utf-8") == "mine"


def test_without_a_terminal_the_options_are_required():
    with pytest.raises(UsageError, match="--save-system-prompts FILE, or delete them with --yes"):
        _confirm_deletion(PROMPTS, None)


def test_with_yes_the_deletion_is_only_announced(capsys):
    _confirm_deletion(PROMPTS, None, yes=True)

    assert "The upgrade will delete 1 system prompts" in capsys.readouterr().err


def test_without_a_terminal_a_downgrade_that_deletes_data_needs_yes():
    expected = r"cannot store \(variants: 2\).*--yes\. Nothing was changed"
    with pytest.raises(UsageError, match=expected):
        _confirm_downgrade("0002", ["variants: 2"])


def test_with_yes_a_downgrade_only_announces_what_it_deletes(capsys):
    _confirm_downgrade("0002", ["variants: 2", "stream events: 3"], yes=True)

    assert "(variants: 2, stream events: 3)" in capsys.readouterr().err

"""The warning before an upgrade deletes system prompts."""

import json

import pytest

from cllm.cli.db import _announce_deletion
from cllm.core.errors import UsageError
from cllm.stores.sql.migrate import StoredPrompt

PROMPTS = [StoredPrompt(conversation="1", system_message="Be brief.")]


def test_the_prompts_are_saved_to_a_new_private_file(tmp_path, capsys):
    target = tmp_path / "prompts.jsonl"

    _announce_deletion(PROMPTS, target)

    assert json.loads(target.read_text(encoding="utf-8"))["system_message"] == "Be brief."
    assert target.stat().st_mode & 0o777 == 0o600
    assert f"System prompts saved to {target}" in capsys.readouterr().err


def test_an_existing_file_is_not_overwritten(tmp_path):
    target = tmp_path / "prompts.jsonl"
    target.write_text("mine", encoding="utf-8")

    with pytest.raises(UsageError, match="already exists"):
        _announce_deletion(PROMPTS, target)

    assert target.read_text(encoding="utf-8") == "mine"


def test_without_a_file_the_option_is_named(capsys):
    _announce_deletion(PROMPTS, None)

    assert "save them first with --save-system-prompts FILE" in capsys.readouterr().err

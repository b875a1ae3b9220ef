"""Descriptions of templates."""

import os
from pathlib import Path

import pytest

from cllm.cli.templates import _describe
from cllm.settings.prompt_templates import TemplateFile


@pytest.mark.parametrize(
    ("text", "description"),
    [
        ("# Translates.\nprompt: x\n", "Translates."),
        ("prompt: |\n  First.\n  Second.\n", "First."),
        ("model: a/b\n", ""),
        ("prompt: [1]\n", "[1]"),
    ],
)
def test_the_description_is_a_comment_or_the_prompt(tmp_path: Path, text: str, description: str):
    (tmp_path / "x.yml").write_text(text)
    template = TemplateFile(name="x", path=tmp_path / "x.yml", is_own=True)
    assert _describe(template) == description


def test_a_broken_template_is_listed(tmp_path: Path):
    (tmp_path / "x.yml").write_text("prompt: [")
    template = TemplateFile(name="x", path=tmp_path / "x.yml", is_own=True)
    assert "cannot be read" in _describe(template)


def test_a_pipe_is_listed_and_not_opened(tmp_path: Path):
    os.mkfifo(tmp_path / "x.yml")
    template = TemplateFile(name="x", path=tmp_path / "x.yml", is_own=False)
    assert "it is not a regular file" in _describe(template)

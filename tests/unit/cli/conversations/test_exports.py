from pathlib import Path

import pytest

from cllm.cli.conversations.exports import _Target


def test_a_conversation_goes_to_a_file_a_folder_or_standard_output(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _Target(tmp_path / "x", "json", force=False).write("cats", b"1\n")
    _Target(tmp_path, "markdown", force=False).write("cats", b"2\n")
    _Target(None, "json", force=False).write("cats", b"3\n")
    assert (tmp_path / "x").read_bytes() == b"1\n"
    assert (tmp_path / "cats.md").read_bytes() == b"2\n"
    assert capsys.readouterr().out == "3\n"

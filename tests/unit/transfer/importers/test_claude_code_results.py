from pathlib import Path
from typing import Any

import pytest

from cllm.transfer.archive import open_archive
from cllm.transfer.importers.claude_code_results import StoredResults
from cllm.transfer.report import ImportReport

PREVIEW = (
    "<persisted-output>\nOutput too large (1MB). Full output saved to: {path}\n\n"
    "Preview (first 2KB):\nLu\n</persisted-output>"
)
MISSING = "the whole result of a tool is not in the source"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    results = tmp_path / "-work/5e55/tool-results"
    results.mkdir(parents=True)
    (results / "b1.txt").write_text("Luna is the cat.", encoding="utf-8")
    (results / "toolu_2.txt").write_bytes(b"caf\xe9")
    (tmp_path / "secret.txt").write_text("secret", encoding="utf-8")
    (tmp_path / "-work/5e55.jsonl").touch()
    (tmp_path / "-work/5e55/subagents").mkdir()
    (tmp_path / "-work/5e55/subagents/agent-1.jsonl").touch()
    return tmp_path


def complete(folder: Path, name: str, content: Any, call: str = "toolu_1") -> tuple[Any, Any]:
    archive, report = open_archive(folder), ImportReport()
    file = archive.find(name)
    assert file is not None
    results = StoredResults(archive, file, report)
    block = {"type": "tool_result", "tool_use_id": call, "content": content}
    return results.complete(block)["content"], report.notes


@pytest.mark.parametrize("name", ["-work/5e55.jsonl", "-work/5e55/subagents/agent-1.jsonl"])
@pytest.mark.parametrize("path", ["/home/ann/.claude/x/tool-results/b1.txt", "C:\\x\\b1.txt"])
def test_a_preview_is_replaced_by_the_result(folder: Path, name: str, path: str) -> None:
    preview = PREVIEW.format(path=path)
    assert complete(folder, name, preview) == ("Luna is the cat.", {})
    blocks = [{"type": "text", "text": preview}]
    assert complete(folder, name, blocks) == ("Luna is the cat.", {})


def test_a_result_can_have_the_name_of_its_call(folder: Path) -> None:
    preview = PREVIEW.format(path="/x/other.txt")
    content, _ = complete(folder, "-work/5e55.jsonl", preview, "toolu_2")
    assert content == "caf\N{REPLACEMENT CHARACTER}"


@pytest.mark.parametrize("path", ["../../../secret.txt", "/etc/passwd", "", ".."])
def test_no_other_file_is_read(folder: Path, path: str) -> None:
    preview = PREVIEW.format(path=path)
    assert complete(folder, "-work/5e55.jsonl", preview) == (preview, {MISSING: 1})


def test_other_results_stay(folder: Path) -> None:
    for content in ("Full output saved to: b1.txt", None, [], [{"type": "image"}]):
        assert complete(folder, "-work/5e55.jsonl", content) == (content, {})
    archive = open_archive(folder)
    text = {"type": "text", "text": PREVIEW.format(path="b1.txt")}
    assert StoredResults(archive, archive.files[0], ImportReport()).complete(text) is text

"""Results of tools that Claude Code stores outside of the session file.

A long result is only a preview in the session, with the path of `<session>/tool-results/<name>`.
The path is never opened: its last part is a name in the source.
"""

import re
from typing import Any

from cllm.transfer.archive import Archive, SourceFile
from cllm.transfer.importers.attachment_budget import AttachmentBudget
from cllm.transfer.importers.content import read_objects, read_text
from cllm.transfer.report import ImportReport

FOLDER = "tool-results"
SUBAGENTS = "subagents"
MARKS = ("<persisted-output>", "Output has been saved to")
SAVED_TO = re.compile(r"(?:Full output saved to|Output has been saved to):? *([^\n<]{1,4096})")
MAX_HEAD = 8192
"""How many characters of a result are searched for the path."""
Block = dict[str, Any]


class StoredResults:
    """The results of one session and its sub-agents, which have one folder."""

    def __init__(self, archive: Archive, file: SourceFile, report: ImportReport) -> None:
        folder = file.name.rpartition("/")[0]
        if folder.rpartition("/")[2] == SUBAGENTS:
            session = folder.removesuffix(SUBAGENTS)
        else:
            session = f"{file.name.removesuffix('.jsonl')}/"
        self._folder = f"{session}{FOLDER}/"
        self._archive = archive
        self._report = report
        self._budget = AttachmentBudget(report)

    def complete(self, block: Block) -> Block:
        """Return a block with the whole result in place of its preview."""
        if block.get("type") != "tool_result":
            return block
        head = _read_head(block)
        if not head.startswith(MARKS):
            return block
        found = SAVED_TO.search(head)
        name = re.split(r"[/\\]", found[1].strip().rstrip("."))[-1] if found is not None else ""
        names = [name, f"{read_text(block, 'tool_use_id')}.txt"]
        files = (self._archive.find(f"{self._folder}{one}") for one in names if one)
        file = next((one for one in files if one is not None), None)
        data = None if file is None else self._budget.read(self._archive, file)
        if data is None:
            self._report.note("the whole result of a tool is not in the source")
            return block
        return {**block, "content": data.decode("utf-8", "replace")}


def _read_head(block: Block) -> str:
    content = block.get("content")
    if isinstance(content, str):
        return content[:MAX_HEAD].lstrip()
    texts = [read_text(one, "text") for one in read_objects(block, "content")]
    return texts[0][:MAX_HEAD].lstrip() if len(texts) == 1 else ""

"""The bytes that the attachments of one conversation can have.

A small archive can refer to one large file many times. Without a limit each reference would be a
copy in memory.
"""

from cllm.transfer.archive import MAX_ATTACHMENT_BYTES, Archive, SourceFile
from cllm.transfer.json_stream import DamagedFileError
from cllm.transfer.report import ImportReport

MAX_CONVERSATION_BYTES = 4 * MAX_ATTACHMENT_BYTES
TOO_MANY_BYTES = (
    f"a file was left out, as the files of a conversation have more than "
    f"{MAX_CONVERSATION_BYTES} bytes"
)


class AttachmentBudget:
    def __init__(self, report: ImportReport) -> None:
        self._report = report
        self._left = MAX_CONVERSATION_BYTES

    def reset(self) -> None:
        """Start another conversation."""
        self._left = MAX_CONVERSATION_BYTES

    def take(self, size: int) -> bool:
        """Whether a file of this size can be added; reports one that cannot."""
        if size > self._left:
            self._report.note(TOO_MANY_BYTES)
            return False
        self._left -= size
        return True

    def read(self, archive: Archive, file: SourceFile) -> bytes | None:
        """Return the content of a file; None, with a note, if it cannot be read."""
        if not self.take(file.size):
            return None
        try:
            return archive.read(file)
        except DamagedFileError as error:
            self._report.note(f"a file cannot be read: {error}")
            return None

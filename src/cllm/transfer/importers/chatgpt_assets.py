"""The images and files in an export of ChatGPT, by the IDs in its messages."""

from bisect import bisect_left
from typing import Any

import msgspec

from cllm.core.message import Document, Image
from cllm.transfer.archive import Archive, SourceFile
from cllm.transfer.importers.attachment_budget import AttachmentBudget
from cllm.transfer.importers.content import build_attachment, read_text
from cllm.transfer.json_stream import DamagedFileError
from cllm.transfer.report import ImportReport

NAMES_FILE = "conversation_asset_file_names.json"
LIBRARY_FILE = "library_files.json"
MAX_INDEX_BYTES = 64 * 1024 * 1024
SCHEMES = ("file-service://", "sediment://")


class ChatGptAssets:
    """Older exports name a file by its ID and its name, newer ones by `<ID>.dat`."""

    def __init__(self, archive: Archive, report: ImportReport) -> None:
        self._archive = archive
        self._report = report
        self._files = sorted(archive.files, key=lambda file: file.base)
        self._bases = [file.base for file in self._files]
        self.budget = AttachmentBudget(report)
        self._types: dict[str, str] = {}
        self._names = self._read_names()

    def find(
        self, pointer: str, *, name: str | None = None, media_type: str | None = None
    ) -> Image | Document | None:
        """Return the attachment; None if the export does not contain it."""
        ref = pointer
        for scheme in SCHEMES:
            ref = ref.removeprefix(scheme)
        ref = ref.partition("#")[0].rpartition("/")[2]
        file = self._find_file(ref)
        if file is None:
            self._report.note("a file is not in the export")
            return None
        data = self.budget.read(self._archive, file)
        if data is None:
            return None
        known = self._names.get(file.base) or self._names.get(ref)
        shown = name or known or file.base.removeprefix(ref).lstrip("-") or file.base
        kind = media_type or self._types.get(ref)
        return build_attachment(data, name=shown.rpartition("/")[2], media_type=kind)

    def _find_file(self, ref: str) -> SourceFile | None:
        """Return the file whose name is the ID, or starts with it."""
        if not ref:
            return None
        at = bisect_left(self._bases, ref)
        while at < len(self._bases) and self._bases[at].startswith(ref):
            if not self._bases[at][len(ref) : len(ref) + 1].isalnum():
                return self._files[at]
            at += 1
        return None

    def _read_names(self) -> dict[str, str]:
        """Return the names of files by their IDs or file names; record their types."""
        names: dict[str, str] = {}
        listed = self._read_index(NAMES_FILE)
        if isinstance(listed, dict):
            names |= {key: name for key, name in listed.items() if isinstance(name, str)}
        library = self._read_index(LIBRARY_FILE)
        for entry in library if isinstance(library, list) else ():
            ref, name = read_text(entry, "file_id"), read_text(entry, "file_name")
            if ref and name:
                names.setdefault(ref, name)
            if ref and (kind := read_text(entry, "mime_type")):
                self._types[ref] = kind
        return names

    def _read_index(self, base: str) -> Any:
        at = bisect_left(self._bases, base)
        if at == len(self._bases) or self._bases[at] != base:
            return None
        try:
            return msgspec.json.decode(self._archive.read(self._files[at], limit=MAX_INDEX_BYTES))
        except (DamagedFileError, msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            self._report.note(f"{base} cannot be read")
            return None

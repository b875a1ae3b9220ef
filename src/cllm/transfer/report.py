"""The result of an import: numbers of conversations and messages, and what was left out."""

from typing import Any

import msgspec

MAX_TEXT = 1000
MAX_REASONS = 1000
"""How many different reasons are counted; those of a hostile source could be without number."""
OTHER_REASON = "other reasons"


class SkippedConversation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A conversation, or a file, that was not imported. `path` is the file in the source."""

    reason: str
    damaged: bool = False
    id: str | None = None
    title: str | None = None
    path: str | None = None

    @property
    def name(self) -> str:
        return " ".join(filter(None, (self.path, self.id, self.title and f"'{self.title}'")))


class ImportReport(msgspec.Struct, kw_only=True):
    """`branches` and `messages` count what was added; `notes` counts smaller losses by reason."""

    imported: int = 0
    branches: int = 0
    continued: int = 0
    unchanged: int = 0
    messages: int = 0
    skipped: list[SkippedConversation] = msgspec.field(default_factory=list)
    skipped_messages: dict[str, int] = msgspec.field(default_factory=dict)
    notes: dict[str, int] = msgspec.field(default_factory=dict)

    def skip(self, reason: str, *, damaged: bool = False, **names: str | None) -> None:
        """Report a conversation or file that is not imported, or only in part if `damaged`."""
        cleaned = {key: None if name is None else _clean(name) for key, name in names.items()}
        self.skipped.append(SkippedConversation(reason=_clean(reason), damaged=damaged, **cleaned))

    def skip_message(self, reason: str) -> None:
        _count(self.skipped_messages, reason)

    def note(self, text: str) -> None:
        _count(self.notes, text)

    def fields(self) -> dict[str, Any]:
        """Return the report as JSON for programs."""
        return {
            "conversations": {
                "imported": self.imported,
                "branches": self.branches,
                "continued": self.continued,
                "unchanged": self.unchanged,
                "skipped": len(self.skipped),
            },
            "messages": {
                "imported": self.messages,
                "skipped": sum(self.skipped_messages.values()),
            },
            "skipped_conversations": self.skipped,
            "skipped_messages": self.skipped_messages,
            "notes": self.notes,
        }


def _clean(text: Any) -> str:
    """Return a text of a source for a report: names of files can have bytes that are not UTF-8."""
    return str(text)[:MAX_TEXT].encode("utf-8", "replace").decode()


def _count(counts: dict[str, int], reason: str) -> None:
    reason = _clean(reason)
    if reason not in counts and len(counts) >= MAX_REASONS:
        reason = OTHER_REASON
    counts[reason] = counts.get(reason, 0) + 1

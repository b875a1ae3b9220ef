"""Replaces values that always differ between two runs by stable tokens.

The token of an ID names the section where it first occurred, so that the reuse of an ID remains
visible. IDs that the case itself sends are not replaced. Times around now, paths, ports and the
version get fixed tokens, because two times can be equal by chance. Nothing is deleted.
"""

import re
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

ID = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|\bc-\d{8}-\d{6}-[0-9a-f]{4}\b"
)
"""A UUID, or the automatic ID of a conversation."""
ISO = re.compile(
    r"(\d{4}-\d\d-\d\d)([T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?: ?(?:Z|[+-]\d\d:?\d\d|UTC))?)?"
)
HTTP_DATE = re.compile(r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT")
EPOCH = re.compile(r"(?<![\w.])1\d{9}(?:\d{3}|\d{6})?(?:\.\d+)?(?![\w])")
MEASUREMENTS = (
    (re.compile(r"(\bseconds\"?[=:] ?)\d+(?:\.\d+)?"), r"\1<seconds>"),
    (re.compile(r"· \d+\.\d s\b"), "· <seconds> s"),
    (re.compile(r"\d+ MB( are)? free"), r"<number> MB\1 free"),
    (re.compile(r"\b\d{8}T\d{6}Z\b"), "<amazon-time>"),
    (re.compile(r"(Credential=\w+/)\d{8}/"), r"\1<day>/"),
    (re.compile(r"(Signature=)[0-9a-f]{64}"), r"\1<signature>"),
)
"""Durations, free disk space, and signatures that contain the time."""
HASH = re.compile(r"\b[0-9a-f]{64}\b")
SECTIONS_WITH_HASHES = ("rows", "trusted.json", ".db")
"""Sections with hashes of an ID or of the folder's path."""
NOW_RANGE = timedelta(days=1)
SECONDS_DIGITS = 10


class Normaliser:
    """The tokens of one version in one case."""

    def __init__(self, *, literals: Mapping[str, str], version: str, known: str = "") -> None:
        """`literals` maps texts to tokens; `known` is the text that the case itself sends."""
        self._literals = sorted(literals.items(), key=lambda item: -len(item[0]))
        self._version = re.compile(rf"(?<![\w.]){re.escape(version)}(?![\w.])")
        self._known = frozenset(ID.findall(known))
        self._ids: dict[str, str] = {}
        self._now = datetime.now(UTC)

    def __call__(self, section: str, text: str) -> str:
        """Return the normalised text. The section's name is part of the tokens of new IDs."""
        count = 0

        def token(match: re.Match[str]) -> str:
            nonlocal count
            if match[0] in self._known:
                return match[0]
            if match[0] not in self._ids:
                count += 1
                self._ids[match[0]] = f"<id {section}.{count}>"
            return self._ids[match[0]]

        for literal, replacement in self._literals:
            text = text.replace(literal, replacement)
        text = self._version.sub("<version>", text)
        for pattern, replacement in MEASUREMENTS:
            text = pattern.sub(replacement, text)
        text = HTTP_DATE.sub("<http-date>", text)
        text = ISO.sub(self._replace_time, text)
        text = EPOCH.sub(self._replace_epoch, text)
        if section.endswith(SECTIONS_WITH_HASHES):
            text = HASH.sub(token, text)
        return ID.sub(token, text)

    def _replace_time(self, match: re.Match[str]) -> str:
        try:
            day = datetime.strptime(match[1], "%Y-%m-%d").replace(tzinfo=UTC)
        except ValueError:
            return match[0]
        if not -NOW_RANGE * 2 <= day - self._now <= NOW_RANGE:
            return match[0]
        return "<time>" if match[2] else "<day>"

    def _replace_epoch(self, match: re.Match[str]) -> str:
        digits = match[0].partition(".")[0]
        seconds = int(digits) / 10 ** (len(digits) - SECONDS_DIGITS)
        return "<epoch>" if abs(seconds - time.time()) <= NOW_RANGE.total_seconds() else match[0]

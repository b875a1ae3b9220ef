"""Replaces what must differ between two runs by stable tokens, and nothing else.

An id gets a token that says where in a case it was first seen, so that using an id again, or
another one, still shows. Ids that the case itself sends are left as they are. Times around now,
paths of the side, ports and the version get fixed tokens: two times may or may not be equal by
chance. Nothing is deleted.
"""

import re
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

ID = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|\bc-\d{8}-\d{6}-[0-9a-f]{4}\b"
)
"""A UUID, or the id that the command gives a conversation."""
ISO = re.compile(
    r"(\d{4}-\d\d-\d\d)([T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?: ?(?:Z|[+-]\d\d:?\d\d|UTC))?)?"
)
HTTP_DATE = re.compile(r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT")
EPOCH = re.compile(r"(?<![\w.])1\d{9}(?:\d{3}|\d{6})?(?:\.\d+)?(?![\w])")
MEASURED = (
    (re.compile(r"(\bseconds\"?[=:] ?)\d+(?:\.\d+)?"), r"\1<seconds>"),
    (re.compile(r"· \d+\.\d s\b"), "· <seconds> s"),
    (re.compile(r"\d+ MB are free"), "<number> MB are free"),
    (re.compile(r"\b\d{8}T\d{6}Z\b"), "<amazon-time>"),
    (re.compile(r"(Credential=\w+/)\d{8}/"), r"\1<day>/"),
    (re.compile(r"(Signature=)[0-9a-f]{64}"), r"\1<signature>"),
)
"""Durations, free space, and signatures that the time is part of."""
HASH = re.compile(r"\b[0-9a-f]{64}\b")
HASHED = ("rows", "trusted.json", ".db")
"""Sections with hashes that an id or the path of the folder is part of."""
AROUND = timedelta(days=1)
SECONDS_DIGITS = 10


class Normaliser:
    """The tokens of one side in one case."""

    def __init__(self, *, literals: Mapping[str, str], version: str, known: str = "") -> None:
        """`literals` are texts with their tokens; `known` is all that the case itself sends."""
        self._literals = sorted(literals.items(), key=lambda item: -len(item[0]))
        self._version = re.compile(rf"(?<![\w.]){re.escape(version)}(?![\w.])")
        self._known = frozenset(ID.findall(known))
        self._ids: dict[str, str] = {}
        self._now = datetime.now(UTC)

    def __call__(self, section: str, text: str) -> str:
        """The text of a section, whose name is part of the tokens of new ids."""
        found = 0

        def token(match: re.Match[str]) -> str:
            nonlocal found
            if match[0] in self._known:
                return match[0]
            if match[0] not in self._ids:
                found += 1
                self._ids[match[0]] = f"<id {section}.{found}>"
            return self._ids[match[0]]

        for literal, replacement in self._literals:
            text = text.replace(literal, replacement)
        text = self._version.sub("<version>", text)
        for pattern, replacement in MEASURED:
            text = pattern.sub(replacement, text)
        text = HTTP_DATE.sub("<http-date>", text)
        text = ISO.sub(self._moment, text)
        text = EPOCH.sub(self._epoch, text)
        if section.endswith(HASHED):
            text = HASH.sub(token, text)
        return ID.sub(token, text)

    def _moment(self, match: re.Match[str]) -> str:
        try:
            day = datetime.strptime(match[1], "%Y-%m-%d").replace(tzinfo=UTC)
        except ValueError:
            return match[0]
        if not -AROUND * 2 <= day - self._now <= AROUND:
            return match[0]
        return "<time>" if match[2] else "<day>"

    def _epoch(self, match: re.Match[str]) -> str:
        digits = match[0].partition(".")[0]
        seconds = int(digits) / 10 ** (len(digits) - SECONDS_DIGITS)
        return "<epoch>" if abs(seconds - time.time()) <= AROUND.total_seconds() else match[0]

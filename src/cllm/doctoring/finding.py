"""What a check found, for a person and for a program. Types only."""

import os
from collections.abc import Sequence
from typing import Literal

import msgspec

Level = Literal["ok", "warning", "problem"]
SHOWN_NAMES = 5


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One line: what was looked at, how it is, and what to do. `fixed` is what was just mended."""

    check: str
    level: Level
    message: str
    fixed: bool = False


def ok(check: str, message: str) -> Finding:
    return Finding(check=check, level="ok", message=message)


def warning(check: str, message: str) -> Finding:
    return Finding(check=check, level="warning", message=message)


def problem(check: str, message: str) -> Finding:
    return Finding(check=check, level="problem", message=message)


def fixed(check: str, message: str) -> Finding:
    return Finding(check=check, level="ok", message=message, fixed=True)


def some(names: Sequence[str]) -> str:
    """The first few of many names."""
    more = len(names) - SHOWN_NAMES
    shown = ", ".join(names[:SHOWN_NAMES])
    return f"{shown} and {more} more" if more > 0 else shown


def reason_of(error: OSError) -> str:
    return os.strerror(error.errno or 0).lower()

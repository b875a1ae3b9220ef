"""The checks of `cllm doctor`, one module per subject, and their findings.

A check changes nothing without `fix`. It sends no data and prints no key.
"""

import os
from collections.abc import Sequence
from typing import Literal

import msgspec

Level = Literal["ok", "warning", "problem"]
SHOWN_NAMES = 5


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a check with advice. `fixed`: the check has just repaired the problem."""

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


def report_fix(check: str, message: str) -> Finding:
    return Finding(check=check, level="ok", message=message, fixed=True)


def join_names(names: Sequence[str]) -> str:
    """Join the first names of a list and the count of the others."""
    more = len(names) - SHOWN_NAMES
    text = ", ".join(names[:SHOWN_NAMES])
    return f"{text} and {more} more" if more > 0 else text


def os_error_reason(error: OSError) -> str:
    return os.strerror(error.errno or 0).lower()

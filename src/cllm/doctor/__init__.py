"""The checks of `cllm doctor`, a module per subject, and their findings.

A check changes nothing unless it is called to fix. It sends no data and shows no key.
"""

import os
from collections.abc import Sequence
from typing import Literal

import msgspec

Level = Literal["ok", "warning", "problem"]
SHOWN_NAMES = 5


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a check with its advice. `fixed`: the check has just repaired it."""

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


def join_names(names: Sequence[str]) -> str:
    """The first names of a list, and how many follow."""
    more = len(names) - SHOWN_NAMES
    shown = ", ".join(names[:SHOWN_NAMES])
    return f"{shown} and {more} more" if more > 0 else shown


def os_error_reason(error: OSError) -> str:
    return os.strerror(error.errno or 0).lower()

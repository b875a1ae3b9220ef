"""Sizes of stress and crash tests: small by default, full with CLLM_TORTURE=1."""

import os
from typing import TypeVar

TORTURE = os.environ.get("CLLM_TORTURE", "0") not in {"", "0"}

T = TypeVar("T")


def choose_size(ordinary: T, full: T) -> T:
    """Return the size for this run."""
    return full if TORTURE else ordinary

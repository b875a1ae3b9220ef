"""Which names may stand for a conversation. Checked before a path is built or a query is made."""

import re

from cllm.core.errors import InvalidIdError

VALID_ID = re.compile(r"[A-Za-z0-9_-]{1,128}", re.ASCII)


def is_valid_id(ref: str) -> bool:
    return VALID_ID.fullmatch(ref) is not None


def check_id(ref: str) -> str:
    """The id itself, if it is one."""
    if not is_valid_id(ref):
        raise InvalidIdError(ref)
    return ref

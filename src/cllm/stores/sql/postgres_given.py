"""What an operation is given: checked before anything is asked of PostgreSQL, and waited for."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from cllm.core.identity import check_id
from cllm.core.ports import NewConversation, Opening, Tail
from cllm.stores.sql.postgres_statements import MOST
from cllm.stores.sql.rows import check_json, check_messages, check_text

T = TypeVar("T")

_FIRST_PAUSE = 0.01
_LONGEST_PAUSE = 0.1


async def wait_until(attempt: Callable[[], Awaitable[T | None]], *, wait: float | None) -> T | None:
    """Try until it gives something or `wait` seconds are over (None: for ever)."""
    loop = asyncio.get_running_loop()
    deadline = None if wait is None else loop.time() + wait
    pause = _FIRST_PAUSE
    while (found := await attempt()) is None:
        left = pause if deadline is None else deadline - loop.time()
        if left <= 0:
            return None
        await asyncio.sleep(min(pause, left))
        pause = min(pause * 1.5, _LONGEST_PAUSE)
    return found


def tail_count(tail: Tail) -> int | None:
    """The parameter of a tail: so many messages, or NULL for those of the window."""
    return min(tail, MOST) if isinstance(tail, int) else None


def check_opening(opening: Opening | None) -> None:
    """UsageError if it has text that no database keeps."""
    if opening is not None:
        check_messages(() if opening.system is None else (opening.system,))
        check_json(opening.system_record, opening.context_record)


def check_new(new: NewConversation) -> None:
    """UsageError if it is under a name that cannot be, or has text that no database keeps."""
    for ref in {new.id, new.name or new.id}:
        check_id(ref)
    check_text(new.title, new.model)
    check_json(new.metadata)

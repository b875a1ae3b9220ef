"""What an error says of a prompt's length, where the provider has no type of its own for it.

Anthropic calls a prompt that its model cannot hold an invalid request, like any other. What tells
it apart is that it counts: so many tokens, and that they are more than so many. The counts are
looked at, and never the words around them, which may change.
"""

import re

TOKENS = re.compile(r"\b(\d{1,12}) tokens > (\d{1,12})\b")
TOKENS_AND_LIMIT = re.compile(r"\b(\d{1,12}) \+ (\d{1,12}) > (\d{1,12})\b")


def counts_too_many(message: str) -> bool:
    """Whether a prompt is said to have more tokens than its model holds, perhaps with its answer's.

    A limit on the answer that is too high by itself is no such thing: no larger window helps there.
    """
    return _has_more(TOKENS, message) or _has_more(TOKENS_AND_LIMIT, message)


def _has_more(pattern: re.Pattern[str], message: str) -> bool:
    found = pattern.search(message)
    if found is None:
        return False
    *counts, most = map(int, found.groups())
    return sum(counts) > most

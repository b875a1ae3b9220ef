"""What the models of the Claude family can be told, whoever serves them.

A table and the functions that read it; gathered in November 2026 from the models' documentation.
Says nothing about a service: which of them has a model, and under which id, is told elsewhere.
"""

import re
from functools import lru_cache
from typing import Literal

import msgspec

UNKNOWN_VERSION, NEWEST_VERSION = (0, 0), (99, 0)
UP_TO_HIGH = ("low", "medium", "high")


class ClaudeModel(msgspec.Struct, frozen=True, kw_only=True):
    """What one model takes.

    `thinking` is how it is asked for: never, up to a budget, with a budget or as the model sees
    fit, only as it sees fit, or it cannot be switched off. `sampling` is whether temperature and
    top_p can be set, together or one of them. `efforts` is empty where none can be asked for.
    """

    max_output: int
    thinking: Literal["none", "budget", "either", "adaptive", "always"] = "none"
    sampling: Literal["all", "one", "none"] = "all"
    efforts: tuple[str, ...] = ()
    forced_tools: bool = True


_V4_5 = ClaudeModel(max_output=64_000, thinking="budget", sampling="one")
_V4_6 = ClaudeModel(
    max_output=128_000, thinking="either", sampling="one", efforts=(*UP_TO_HIGH, "max")
)
_V4_7 = ClaudeModel(
    max_output=128_000, thinking="adaptive", sampling="none", efforts=(*UP_TO_HIGH, "xhigh", "max")
)
_ALWAYS = msgspec.structs.replace(_V4_7, thinking="always")
_UNFORCED = msgspec.structs.replace(_ALWAYS, forced_tools=False)

# The first row that fits "family major.minor" counts.
ROWS: tuple[tuple[re.Pattern[str], ClaudeModel], ...] = (
    (re.compile(r"instant"), ClaudeModel(max_output=4_096)),
    (re.compile(r"(fable|mythos) (5\.[1-9]|[6-9]\.)"), _UNFORCED),
    (re.compile(r"opus (5\.[5-9]|[6-9]\.)"), _UNFORCED),
    (re.compile(r"fable|mythos"), _ALWAYS),
    (re.compile(r" (4\.[7-9]|[5-9]\.|\d\d\.)"), _V4_7),
    (re.compile(r" 4\.6"), _V4_6),
    (re.compile(r"opus 4\.5"), msgspec.structs.replace(_V4_5, efforts=UP_TO_HIGH)),
    (re.compile(r" 4\.5"), _V4_5),
    (re.compile(r" 4\.[1-4]"), msgspec.structs.replace(_V4_5, max_output=32_000)),
    (re.compile(r"opus 4\.0"), ClaudeModel(max_output=32_000, thinking="budget")),
    (re.compile(r" (4\.0|3\.7)"), ClaudeModel(max_output=64_000, thinking="budget")),
    (re.compile(r" 3\.5"), ClaudeModel(max_output=8_192)),
    (re.compile(r""), ClaudeModel(max_output=4_096)),
)
BEDROCK_REVISION = re.compile(r"(?<=\w)-v\d+(:\w+)*$")
FAMILIES = re.compile(r"opus|sonnet|haiku|fable|mythos|instant")


@lru_cache(maxsize=256)
def claude_model(name: str) -> ClaudeModel | None:
    """The row of a model by any of its names; None for a name that is not Claude's.

    A Claude model that is not known counts as one of the newest.
    """
    version = version_of(name)
    if version == UNKNOWN_VERSION:
        return None
    family = FAMILIES.search(name.lower())
    key = f"{family[0] if family else ''} {version[0]}.{version[1]}"
    return next(row for pattern, row in ROWS if pattern.search(key))


@lru_cache(maxsize=256)
def version_of(model: str) -> tuple[int, int]:
    """The version in the name of a Claude model: 4.6 of claude-opus-4-6-20260205.

    A Claude model without a number counts as the newest, a name of another kind as none.
    """
    _, claude, name = model.lower().partition("claude")
    if not claude:
        return UNKNOWN_VERSION
    words = re.split(r"[^0-9a-z]", BEDROCK_REVISION.sub("", name))
    numbers = [int(word) for word in words if re.fullmatch(r"\d{1,2}", word)]
    return (numbers[0], numbers[1] if len(numbers) > 1 else 0) if numbers else NEWEST_VERSION

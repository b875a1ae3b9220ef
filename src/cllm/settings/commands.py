"""`dynamic_commands` of the settings: what the model may run. Runs nothing."""

from collections.abc import Sequence
from typing import Any

import msgspec

from cllm.commands.permission import CommandRules
from cllm.commands.tool import CommandSettings, Offer
from cllm.settings.layers import Layered

KEY = "dynamic_commands"
FIELDS = (
    "available_commands",
    "allow",
    "deny",
    "require_confirmation",
    "timeout",
    "max_commands",
)
LONGEST_TIMEOUT = 3600
MOST_COMMANDS = 1000


def read_command_settings(layered: Layered) -> CommandSettings:
    """What the files say; an error that says what to write where one is wrong."""
    given = layered.values.get(KEY)
    if given is None:
        return CommandSettings()
    if not isinstance(given, dict):
        raise layered.wrong(KEY, f"a mapping of {', '.join(FIELDS)}")
    unknown = [key for key in given if key not in FIELDS]
    if unknown:
        raise layered.wrong(f"{KEY}.{unknown[0]}", f"one of {', '.join(FIELDS)}")
    offers = _offers(given.get("available_commands") or [], layered)
    confirm = given.get("require_confirmation") or False
    if not isinstance(confirm, bool):
        raise layered.wrong(f"{KEY}.require_confirmation", "true or false")
    return CommandSettings(
        offers=offers,
        rules=CommandRules(
            deny=split_patterns(_patterns(given, "deny", layered)),
            allow=_allowed(given, offers, layered),
        ),
        confirm=confirm,
        timeout=_number(given, "timeout", 30, LONGEST_TIMEOUT, layered),
        most=_count(given, "max_commands", 10, MOST_COMMANDS, layered),
    )


def with_flags(
    settings: CommandSettings, *, allow: Sequence[str], deny: Sequence[str], confirm: bool
) -> CommandSettings:
    """The settings with the flags of the command line. Each flag may have several patterns."""
    rules = CommandRules(
        deny=(*settings.rules.deny, *split_patterns(deny)),
        allow=(*(settings.rules.allow or ()), *split_patterns(allow)) or settings.rules.allow,
    )
    return msgspec.structs.replace(settings, rules=rules, confirm=settings.confirm or confirm)


def split_patterns(lists: Sequence[str]) -> tuple[str, ...]:
    """The patterns of lists that are separated by commas."""
    return tuple(pattern for one in lists for part in one.split(",") if (pattern := part.strip()))


def _offers(given: Any, layered: Layered) -> tuple[Offer, ...]:
    try:
        rows = [{"command": row} if isinstance(row, str) else row for row in given]
        return tuple(msgspec.convert(rows, list[Offer]))
    except (msgspec.ValidationError, TypeError):
        expected = "a list such as [{command: git log, description: …}]"
        raise layered.wrong(f"{KEY}.available_commands", expected) from None


def _allowed(
    given: dict[str, Any], offers: Sequence[Offer], layered: Layered
) -> tuple[str, ...] | None:
    """The configured list; None if there is none."""
    if given.get("allow") is None and given.get("available_commands") is None:
        return None
    return (*_patterns(given, "allow", layered), *(offer.command for offer in offers))


def _patterns(given: dict[str, Any], name: str, layered: Layered) -> tuple[str, ...]:
    patterns = given.get(name) or []
    if not isinstance(patterns, list) or not all(isinstance(one, str) for one in patterns):
        raise layered.wrong(f"{KEY}.{name}", "a list of patterns such as [git log*]")
    return tuple(patterns)


def _number(
    given: dict[str, Any], name: str, default: float, most: float, layered: Layered
) -> float:
    value = given.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= most:
        raise layered.wrong(f"{KEY}.{name}", f"a number above 0 and at most {most}")
    return float(value)


def _count(given: dict[str, Any], name: str, default: int, most: int, layered: Layered) -> int:
    value = given.get(name)
    if value is None:
        return default
    if type(value) is not int or not 0 < value <= most:
        raise layered.wrong(f"{KEY}.{name}", f"a whole number above 0 and at most {most}")
    return value

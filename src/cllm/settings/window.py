"""`window` of the settings: how much of a conversation is sent."""

from typing import Any, Literal

import msgspec

from cllm.settings.layers import Layered

KEY = "window"
AUTO = "auto"
LARGEST = 100_000_000


class WindowSettings(msgspec.Struct, frozen=True, kw_only=True):
    """By tokens in blocks, up to what the model takes or less; or by turns."""

    strategy: Literal["blocks", "turns"] = "blocks"
    max_tokens: int | None = None
    max_turns: int = 10


def read_window(layered: Layered) -> WindowSettings:
    """The window that the files ask for."""
    given = layered.values.get(KEY)
    if given is None:
        return WindowSettings()
    if not isinstance(given, dict):
        raise layered.wrong(KEY, "a mapping such as {strategy: turns, max_turns: 10}")
    strategy = given.get("strategy", "blocks")
    if strategy not in ("blocks", "turns"):
        raise layered.wrong(f"{KEY}.strategy", "`blocks` or `turns`")
    known = {"blocks": ("strategy", "max_tokens"), "turns": ("strategy", "max_turns")}[strategy]
    unknown = [key for key in given if key not in known]
    if unknown:
        raise layered.wrong(f"{KEY}.{unknown[0]}", f"one of {', '.join(known)} with `{strategy}`")
    if strategy == "turns":
        turns = _whole(given, "max_turns", layered)
        return WindowSettings(strategy="turns", max_turns=10 if turns is None else turns)
    return WindowSettings(max_tokens=_whole(given, "max_tokens", layered))


def _whole(given: dict[str, Any], name: str, layered: Layered) -> int | None:
    value = given.get(name)
    if value is None or (value == AUTO and name == "max_tokens"):
        return None
    if type(value) is not int or not 0 < value <= LARGEST:
        more = ", or `auto`" if name == "max_tokens" else ""
        raise layered.wrong(f"{KEY}.{name}", f"a whole number from 1 to {LARGEST}{more}")
    return value

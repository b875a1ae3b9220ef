"""`window` of the settings: how much of a conversation is sent."""

from typing import Any, Literal, get_args

import msgspec

from cllm.settings.layers import Layered

KEY = "window"
AUTO = "auto"
LARGEST = 100_000_000
StrategyName = Literal["blocks", "turns", "summarise"]
STRATEGIES: tuple[StrategyName, ...] = get_args(StrategyName)
KEYS = {
    "blocks": ("max_tokens",),
    "turns": ("max_turns",),
    "summarise": ("max_tokens", "summary_tokens"),
}


class WindowSettings(msgspec.Struct, frozen=True, kw_only=True):
    """By tokens in blocks, up to what the model takes or less; by turns; or with a summary.

    `is_given` tells what somebody chose from what nobody did.
    """

    strategy: StrategyName = "blocks"
    max_tokens: int | None = None
    max_turns: int = 10
    summary_tokens: int = 1000
    is_given: bool = False


def read_window(layered: Layered) -> WindowSettings:
    """The window that the files ask for."""
    given = layered.values.get(KEY)
    if given is None:
        return WindowSettings()
    if not isinstance(given, dict):
        raise layered.wrong(KEY, "a mapping such as {strategy: turns, max_turns: 10}")
    strategy = given.get("strategy", "blocks")
    if strategy not in STRATEGIES:
        raise layered.wrong(f"{KEY}.strategy", "`blocks`, `turns` or `summarise`")
    _check_keys(given, strategy, layered)
    numbers = {name: _whole(given, name, layered) for name in KEYS[strategy]}
    chosen = {name: number for name, number in numbers.items() if number is not None}
    return msgspec.convert({"strategy": strategy, "is_given": True, **chosen}, WindowSettings)


def _check_keys(given: dict[str, Any], strategy: StrategyName, layered: Layered) -> None:
    """An error for a key that goes with another strategy, or with none."""
    for name in given:
        if name == "strategy" or name in KEYS[strategy]:
            continue
        others = [f"`strategy: {other}`" for other in STRATEGIES if name in KEYS[other]]
        if others:
            raise layered.mistake(f"{KEY}.{name}", f"goes with {' or '.join(others)}")
        known = " and ".join(f"`{key}`" for key in KEYS[strategy])
        what = f"is no key of a window; `strategy: {strategy}` takes {known}"
        raise layered.mistake(f"{KEY}.{name}", what)


def _whole(given: dict[str, Any], name: str, layered: Layered) -> int | None:
    value = given.get(name)
    if value is None or (value == AUTO and name == "max_tokens"):
        return None
    if type(value) is not int or not 0 < value <= LARGEST:
        more = ", or `auto`" if name == "max_tokens" else ""
        raise layered.wrong(f"{KEY}.{name}", f"a whole number from 1 to {LARGEST}{more}")
    return value

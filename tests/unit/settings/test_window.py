"""`window` in a Cllmfile: what is said of a key that stands in the wrong place."""

import pytest

from cllm.core.errors import SettingsError


def complaint(world, window: str) -> str:
    world.write_here(f"window: {window}")
    with pytest.raises(SettingsError) as caught:
        world.load()
    return str(caught.value)


@pytest.mark.parametrize(
    ("window", "said"),
    [
        ("{max_turns: 3}", "`window.max_turns` goes with `strategy: turns`."),
        ("{strategy: summarise, max_turns: 3}", "`window.max_turns` goes with `strategy: turns`."),
        ("{summary_tokens: 9}", "`window.summary_tokens` goes with `strategy: summarise`."),
        (
            "{strategy: turns, max_tokens: 9}",
            "`window.max_tokens` goes with `strategy: blocks` or `strategy: summarise`.",
        ),
    ],
)
def test_a_key_of_another_strategy_names_the_one_that_it_goes_with(world, window, said):
    assert said in complaint(world, window)


def test_a_key_that_nobody_knows_names_those_that_there_are(world):
    said = complaint(world, "{strategy: summarise, max_turn: 3}")

    assert "`window.max_turn` is no key of a window" in said
    assert "`strategy: summarise` takes `max_tokens` and `summary_tokens`" in said


def test_the_place_to_mend_is_said(world):
    said = complaint(world, "{max_turns: 3}")

    assert "Cllmfile" in said
    assert "line 1" in said

"""The JSON of `cllm conversations stats`."""

import pytest

from cllm.cli.conversations.stats import _amount_as_json, _as_json
from cllm.window.cache_report import Amount, CacheReport


@pytest.mark.parametrize(
    ("amount", "dollars"),
    [
        (Amount(), 0),
        (Amount(dollars=0.5, known=1), 0.5),
        (Amount(dollars=0.5, known=1, unknown=2), 0.5),
        (Amount(unknown=2), None),
    ],
)
def test_dollars_are_null_only_if_no_price_is_known(amount, dollars):
    assert _amount_as_json(amount) == {"dollars": dollars, "unknown_answers": amount.unknown}


def test_only_the_report_of_one_conversation_has_its_id():
    assert "conversation" not in _as_json(CacheReport(), None)
    assert _as_json(CacheReport(), "cats")["conversation"] == "cats"

"""A secret is never printed or saved by accident."""

import copy
import json
import pickle
from typing import Any

import msgspec
import pytest

from cllm.core.secret import Secret, redact_secrets

KEY = "sk-0123456789"


@pytest.mark.parametrize(
    "show",
    [repr, str, "{}".format, "{!r}".format, "%s".__mod__, lambda s: f"{[s]} { ({'key': s}) }"],
)
def test_a_secret_cannot_be_printed(show):
    assert KEY not in show(Secret(KEY))


@pytest.mark.parametrize(
    "write",
    [
        json.dumps,
        msgspec.json.encode,
        msgspec.to_builtins,
        pickle.dumps,
        copy.copy,
        copy.deepcopy,
        vars,
    ],
)
def test_a_secret_cannot_be_pickled_or_encoded(write: Any):
    with pytest.raises(TypeError) as caught:
        write(Secret(KEY))
    assert KEY not in str(caught.value)


def test_reveal_returns_the_text():
    assert Secret(KEY).reveal() == KEY


def test_secrets_with_equal_texts_are_equal():
    assert Secret(KEY) == Secret(KEY)
    assert hash(Secret(KEY)) == hash(Secret(KEY))
    assert Secret(KEY) != Secret("other")
    assert Secret(KEY) != KEY


def test_the_name_of_an_unset_variable_is_not_hidden():
    text = f"The key is ${{MASTER_KEY}}, not {KEY}."

    assert redact_secrets(text, ["${MASTER_KEY}", KEY]) == "The key is ${MASTER_KEY}, not ***."

"""The parts of a turn request."""

from typing import get_type_hints

import pytest
from tests.turn_requests import make_turn_request

from cllm.core.message import plain_message
from cllm.engine.optional_steps import OptionalSteps
from cllm.engine.request import InputChanges, StorageChanges, TurnInput, TurnStorage
from cllm.window.strategies import ByTurns

HELLO = plain_message("user", "Hello")


@pytest.mark.parametrize(
    ("policy", "tail"),
    [(TurnStorage(), None), (TurnStorage(window=lambda _: ByTurns()), "window")],
)
def test_only_a_request_with_a_window_loads_a_part(policy, tail):
    assert policy.tail == tail


def test_changes_of_one_part_leave_the_others():
    request = make_turn_request(model="m", messages=(HELLO,), ref="demo")

    changed = request.with_storage(read_only=True).with_input(prefix="Be brief.")

    assert (changed.storage.ref, changed.storage.read_only) == ("demo", True)
    assert (changed.input.messages, changed.input.prefix) == ((HELLO,), "Be brief.")
    assert changed.target is request.target
    assert request.input.prefix is None


@pytest.mark.parametrize(
    ("changes", "part"), [(StorageChanges, TurnStorage), (InputChanges, TurnInput)]
)
def test_the_keywords_of_changes_are_the_fields_of_their_part(changes, part):
    names = {"OptionalSteps": OptionalSteps}
    assert get_type_hints(changes, localns=names) == get_type_hints(part, localns=names)

"""The parameters that are stored with a turn: a selection, of bounded size."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from cllm.core.conversation import Turn, WindowRecord
from cllm.server.api.response_parameters import (
    MAX_FIELD_BYTES,
    STORED_PARAMETERS,
    read_parameters,
    select_parameters,
)

LONG = "x" * (MAX_FIELD_BYTES + 1)


def store(parameters: dict[str, Any], *, named: bool = False) -> Any:
    """Return the parameters as they are read after they are stored."""
    return read_parameters(make_turn(select_parameters(parameters, names_conversation=named)))


def make_turn(parameters: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET) -> Turn:
    window = WindowRecord(first_sequence=1, sent_messages=0, parameters=parameters)
    now = datetime(2026, 11, 16, tzinfo=UTC)
    return Turn(id="1", place="1", state="complete", messages=(), started_at=now, window=window)


def test_system_text_is_not_selected():
    secrets = {"instructions": "Secret.", "prompt": {"id": "pmpt_1"}, "input": "Hi.", "store": True}

    assert store({**secrets, "user": "anne"}) == {"user": "anne"}


def test_null_counts_as_absent():
    assert store({"temperature": None, "top_p": 0.5}) == {"top_p": 0.5}


def test_a_named_conversation_is_marked():
    assert store({}, named=True) == {"conversation": True}


@pytest.mark.parametrize("name", [name for name in STORED_PARAMETERS if name != "tools"])
def test_a_field_has_a_limit(name: str):
    assert store({name: {"a": LONG}}) == {}


def test_large_tools_have_types_and_names():
    tools = [{"type": "custom", "name": "patch", "description": LONG}, "no tool"]

    assert store({"tools": tools}) == {"tools": [{"type": "custom", "name": "patch"}, None]}
    assert store({"tools": [{"type": "custom", "name": LONG}]}) == {}


def test_nul_is_not_stored():
    assert store({"metadata": {"a": "\0"}, "user": "anne"}) == {"user": "anne"}


def test_a_turn_of_another_api_has_no_parameters():
    assert read_parameters(make_turn()) is None
    assert read_parameters(msgspec.structs.replace(make_turn(), window=None)) is None


def test_values_of_an_imported_file():
    assert read_parameters(make_turn(msgspec.Raw(b"[1]"))) is None
    assert read_parameters(make_turn(msgspec.Raw(b'{"instructions":"x","user":7}'))) == {"user": 7}

"""References to stored items."""

from typing import Any

import pytest

from cllm.server.api.item_references import is_reference


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        ({"type": "item_reference", "id": "msg_1"}, True),
        ({"id": "msg_1"}, True),
        ({"type": "message", "role": "user", "content": "item_reference"}, False),
        ("item_reference", False),
    ],
)
def test_references_are_recognised(item: Any, expected: bool):
    assert is_reference(item) is expected

"""The choice between OpenAI's and this server's format of a new conversation."""

import pytest

from cllm.server.api.openai_conversations import has_items


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"items": []}', True),
        (b'{"items": null, "metadata": {}}', True),
        (b'{"metadata": {"items": []}}', False),
        (b'["items"]', False),
        (b'{"items": ', False),
        (b'{"items": "\xff"}', False),
        (b"[" * 100_000, False),
        (b"", False),
    ],
)
def test_items_are_found_in_the_body(body: bytes, expected: bool):
    assert has_items(body) is expected

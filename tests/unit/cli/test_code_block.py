"""The first code block of a reply."""

import pytest

from cllm.cli.code_block import find_code_block


@pytest.mark.parametrize(
    ("text", "block"),
    [
        ("```\na\n```", "a"),
        ("Text\n```py\na\n\nb\n```\n```\nc\n```", "a\n\nb"),
        ("~~~\na\n```\nb\n~~~\n", "a\n```\nb"),
        ("````\n```\na\n```\n````", "```\na\n```"),
        ("```\na\n``` b\nc\n```", "a\n``` b\nc"),
        ("   ```\na\n  ```", "a"),
        ("```\nopen", "open"),
        ("```\n```", ""),
        ("    ```\nindented\n", None),
        ("``` a ` b\ntext", None),
        ("`inline` and ``more``", None),
        ("", None),
    ],
)
def test_find(text, block):
    assert find_code_block(text) == block

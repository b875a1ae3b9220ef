"""The lines of `cllm conversations list`."""

from datetime import UTC, datetime

from cllm.cli.conversations.list import _summary_columns
from cllm.core.conversation import Summary
from cllm.terminal import align_columns

THEN = datetime(2026, 1, 1, tzinfo=UTC)


def test_a_summary_line_ends_with_its_last_value():
    summary = Summary(id="demo", created_at=THEN, updated_at=THEN, message_count=1)

    (line,) = align_columns([_summary_columns(summary)])
    assert line.endswith("1 message  -")

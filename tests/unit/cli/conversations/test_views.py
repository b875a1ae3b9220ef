"""Lists of conversations as lines, tables and JSON."""

from datetime import UTC, datetime

from cllm.cli.conversations.views import summary_columns, summary_fields, table_lines
from cllm.core.conversation import Branch, Summary
from cllm.terminal import align_columns, count_cells

THEN = datetime(2026, 1, 1, tzinfo=UTC)


def make_summary(**fields) -> Summary:
    return Summary(
        **{"id": "demo", "created_at": THEN, "updated_at": THEN, "message_count": 1, **fields}
    )


def test_a_summary_line_ends_with_its_last_value():
    (line,) = align_columns([summary_columns(make_summary())])

    assert line.endswith("1 message  -")


def test_a_parent_has_its_kind_and_number():
    fields = summary_fields(make_summary(parent=Branch(conversation="cats", sequence=2)))

    assert fields["parent"] == {
        "conversation_id": "cats",
        "sequence_number": 2,
        "kind": "branch",
    }
    assert summary_fields(make_summary())["parent"] is None


def test_a_table_fits_the_terminal():
    summaries = [
        make_summary(title="猫" * 100, model="openai/gpt-4o"),
        make_summary(id="c-20260101-000000-abcd", title="word " * 50),
    ]

    for columns in (80, 120):
        heading, *lines = table_lines(summaries, columns)
        assert heading.split() == ["ID", "UPDATED", "MESSAGES", "MODEL", "TITLE"]
        assert all(count_cells(line) <= columns for line in lines)
        assert "gpt-4o" in lines[0]


def test_a_narrow_table_has_no_models():
    heading, _ = table_lines([make_summary(id="x" * 28, model="a/b", title="T")], 76)

    assert heading.split() == ["ID", "UPDATED", "MESSAGES", "TITLE"]


def test_a_narrower_table_has_no_counts():
    heading, line = table_lines([make_summary(id="x" * 36, model="a/b", title="T" * 99)], 80)

    assert heading.split() == ["ID", "UPDATED", "TITLE"]
    assert count_cells(line) == 80

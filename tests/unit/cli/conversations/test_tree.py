"""The tree of branches."""

from datetime import UTC, datetime

from cllm.cli.conversations.tree import tree_lines
from cllm.core.conversation import Branch, Summary
from cllm.engine.conversation_tree import TreeNode, TreeVariant

THEN = datetime(2026, 1, 1, tzinfo=UTC)


def make_summary(name: str, parent: str | None = None, sequence: int = 2, kind="branch") -> Summary:
    branch = None if parent is None else Branch(conversation=parent, sequence=sequence, kind=kind)
    return Summary(id=name, created_at=THEN, updated_at=THEN, message_count=4, parent=branch)


def test_the_lines_are_in_the_order_of_the_messages():
    variant = TreeVariant(
        label="cats@3.1",
        sequence_number=3,
        turn_id="t",
        model="a/b",
        state="complete",
        text="Hi.\nYou",
    )
    late = TreeNode(summary=make_summary("late", "cats", 4, "compaction"))
    early = TreeNode(
        summary=make_summary("early", "cats", 0),
        branches=(TreeNode(summary=make_summary("inner", "early")),),
    )
    node = TreeNode(summary=make_summary("cats"), variants=(variant,), branches=(late, early))

    heads = [line.split("  4 messages")[0] for line in tree_lines(node, selected="inner")]

    assert heads == [
        "cats",
        "├─ early  without shared messages",
        "│  └─ * inner  after 2",
        "├─ cats@3.1  variant, a/b: Hi. You",
        "└─ late  compaction at 4",
    ]

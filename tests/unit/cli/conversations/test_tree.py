"""The tree of branches."""

from datetime import UTC, datetime

from cllm.cli.conversations.tree import (
    TreeNode,
    TreeVariant,
    find_children,
    find_root,
    tree_lines,
)
from cllm.core.conversation import Branch, Summary

THEN = datetime(2026, 1, 1, tzinfo=UTC)


def make_summary(name: str, parent: str | None = None, sequence: int = 2, kind="branch") -> Summary:
    branch = None if parent is None else Branch(conversation=parent, sequence=sequence, kind=kind)
    return Summary(id=name, created_at=THEN, updated_at=THEN, message_count=4, parent=branch)


def test_the_root_is_the_first_ancestor_that_exists():
    summaries = {
        one.id: one
        for one in (make_summary("b", "a"), make_summary("c", "b"), make_summary("d", "c"))
    }

    assert find_root(summaries["d"], summaries).id == "b"
    assert [one.id for one in find_children(summaries)["b"]] == ["c"]


def test_a_circle_of_parents_ends():
    summaries = {one.id: one for one in (make_summary("a", "b"), make_summary("b", "a"))}

    assert find_root(summaries["a"], summaries).id == "b"


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

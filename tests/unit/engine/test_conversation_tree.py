"""The tree of branches and variants."""

from datetime import UTC, datetime

from cllm.core.conversation import Branch, Summary
from cllm.engine.conversation_tree import (
    TreeNode,
    TreeVariant,
    build_node,
    find_children,
    find_root,
    list_descendants,
)

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


def test_descendants_of_a_circle_end():
    summaries = {one.id: one for one in (make_summary("a", "b"), make_summary("b", "a"))}
    children = find_children(summaries)

    listed = list(list_descendants(summaries["a"], children, set()))
    node = build_node(summaries["a"], children, {})

    assert [one.id for one in listed] == ["a", "b"]
    assert [one.summary.id for one in node.branches] == ["b"]
    assert node.branches[0].branches == ()


def test_variants_and_branches_are_in_the_order_of_their_messages():
    variant = TreeVariant(
        label="cats@3.1", sequence_number=3, turn_id="t", model=None, state="complete", text=""
    )
    late = TreeNode(summary=make_summary("late", "cats", 4))
    early = TreeNode(summary=make_summary("early", "cats", 2))
    root = TreeNode(summary=make_summary("cats"), variants=(variant,), branches=(late, early))

    assert root.inner == [early, variant, late]

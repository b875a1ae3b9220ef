from datetime import UTC, datetime, timedelta

from cllm.core.message import plain_message
from cllm.transfer.message_tree import ImportedNode, MessageTree

START = datetime(2025, 1, 1, tzinfo=UTC)


def node(key: str, parent: str | None = None, *, empty: bool = False, at: int = 0) -> ImportedNode:
    messages = () if empty else (plain_message("user", key),)
    return ImportedNode(id=key, parent=parent, messages=messages, at=START + timedelta(seconds=at))


def test_the_children_of_a_dropped_node_belong_to_its_parent() -> None:
    tree = MessageTree([node("a"), node("b", "a", empty=True), node("c", "b"), node("d", "c")])
    assert tree.path_to("d") == ["a", "c", "d"]
    assert tree.nearest("b") == "a"
    assert tree.nearest("unknown") is None


def test_the_newest_leaf_is_chosen_by_time() -> None:
    tree = MessageTree([node("a"), node("b", "a", at=9), node("c", "a", at=2), node("d", at=3)])
    assert tree.newest_leaf(None) == "b"
    assert tree.newest_leaf("c") == "c"
    assert tree.leaves(None) == ["d", "c", "b"]
    assert tree.children["a"] == ["c", "b"]
    assert tree.is_below("b", "a")
    assert not tree.is_below("d", "a")


def test_cycles_are_cut() -> None:
    tree = MessageTree([node("a", "c"), node("b", "a"), node("c", "b"), node("d", "d")])
    assert tree.path_to("c") == ["a", "b", "c"]
    assert tree.path_to("d") == ["d"]
    dropped = MessageTree([node("a", "b", empty=True), node("b", "a", empty=True), node("c", "a")])
    assert dropped.path_to("c") == ["c"]


def test_a_long_chain_needs_no_recursion() -> None:
    nodes = [node(str(number), str(number - 1) if number else None) for number in range(5000)]
    tree = MessageTree([*nodes, node("4999", "0")])
    assert len(tree.path_to(tree.newest_leaf(None))) == 5000

"""The neutral form of an imported conversation: a tree of messages.

`MessageTree` has no dropped messages and no cycles. It never recurses, as trees can be deep.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from cllm.core.conversation import Branch
from cllm.core.message import Message
from cllm.core.reply import Usage

EARLIEST = datetime.min.replace(tzinfo=UTC)


class ImportedNode(msgspec.Struct, frozen=True, kw_only=True):
    """One message of a source.

    Without `messages` and `thinking` it is dropped, and its children belong to its parent.
    `thinking` is reasoning that the source has as a message of its own; it becomes part of the
    next reply.
    """

    id: str
    parent: str | None = None
    messages: tuple[Message, ...] = ()
    thinking: str = ""
    at: datetime | None = None
    model: str | None = None
    usage: Usage | None = None
    is_complete: bool = True

    @property
    def is_empty(self) -> bool:
        return not self.messages and not self.thinking


class ImportedConversation(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation of a source; `current` is the last message of its selected path.

    `source` is the name of the format, `id` the ID in the source. `parent` refers to another
    conversation of the source by its ID there.
    """

    source: str
    id: str
    nodes: tuple[ImportedNode, ...]
    current: str | None = None
    title: str | None = None
    model: str | None = None
    system: str | None = None
    created_at: datetime | None = None
    updated_at: datetime | None = None
    is_archived: bool = False
    is_side: bool = False
    parent: Branch | None = None
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)


class MessageTree:
    """The nodes that have content, with their parents and children, oldest child first."""

    def __init__(self, nodes: Sequence[ImportedNode]) -> None:
        by_id: dict[str, ImportedNode] = {}
        for node in nodes:
            by_id.setdefault(node.id, node)
        self.nodes = {key: node for key, node in by_id.items() if not node.is_empty}
        self._order = {key: index for index, key in enumerate(self.nodes)}
        self._all = by_id
        self._above: dict[str, str | None] = {}
        """The nearest ancestor with content of nodes without."""
        self.parents = {key: self._find_parent(key) for key in self.nodes}
        self.children: dict[str | None, list[str]] = {}
        self.breadth_first = self._arrange()
        self._newest = self._find_newest_leaves()

    def _find_parent(self, key: str) -> str | None:
        """Return the nearest ancestor with content."""
        passed: set[str] = set()
        parent = self._all[key].parent
        while parent in self._all and parent not in self.nodes and parent not in passed:
            if parent in self._above:
                parent = self._above[parent]
                break
            passed.add(parent)
            parent = self._all[parent].parent
        found = parent if parent in self.nodes else None
        self._above.update(dict.fromkeys(passed, found))
        return None if found == key else found

    def _arrange(self) -> list[str]:
        """Fill `children` and return the nodes, parents first. A cycle is cut at its first node."""
        for key, parent in self.parents.items():
            self.children.setdefault(parent, []).append(key)
        for keys in self.children.values():
            keys.sort(key=self._age)
        arranged = list(self._iter_below(None))
        reached = set(arranged)
        for key in self.nodes:
            if key not in reached:
                parent = self.parents[key]
                self.children[parent].remove(key)
                self.parents[key] = None
                self.children.setdefault(None, []).append(key)
                below = [key, *self._iter_below(key)]
                reached.update(below)
                arranged += below
        return arranged

    def _iter_below(self, key: str | None) -> Iterator[str]:
        waiting = list(self.children.get(key, ()))
        for node in waiting:
            yield node
            waiting += self.children.get(node, ())

    def _age(self, key: str) -> tuple[datetime, int]:
        return self.nodes[key].at or EARLIEST, self._order[key]

    def _find_newest_leaves(self) -> dict[str, str]:
        newest: dict[str, str] = {}
        for key in reversed(self.breadth_first):
            leaves = [newest[child] for child in self.children.get(key, ())]
            newest[key] = max(leaves, key=self._age) if leaves else key
        return newest

    def newest_leaf(self, key: str | None) -> str:
        """Return the newest leaf at or below a node; None: of the whole tree."""
        if key is not None:
            return self._newest[key]
        return max((self._newest[root] for root in self.children[None]), key=self._age)

    def leaves(self, key: str | None) -> list[str]:
        """Return the leaves at or below a node."""
        below = ([] if key is None else [key]) + list(self._iter_below(key))
        return [each for each in below if not self.children.get(each)]

    def nearest(self, key: str | None) -> str | None:
        """Return the node itself if it has content, else its nearest ancestor with content."""
        if key is None or key in self.nodes:
            return key
        return None if key not in self._all else self._find_parent(key)

    def path_to(self, key: str | None) -> list[str]:
        path: list[str] = []
        while key is not None:
            path.append(key)
            key = self.parents[key]
        return path[::-1]

    def is_below(self, key: str, ancestor: str | None) -> bool:
        return ancestor is None or ancestor in self.path_to(key)

"""Turns an imported tree of messages into conversations with turns, variants and branches.

The selected path becomes the conversation. Another reply to the same input becomes a variant. Every
other path becomes a branch. IDs depend only on the source, so that a repeated import finds what
exists. A conversation that exists only grows at its end: what else is new becomes a branch.
"""

import hashlib
import uuid
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from itertools import islice, takewhile
from typing import Any

import msgspec

from cllm.core.conversation import (
    MAX_TITLE_LENGTH,
    MAX_TITLE_MESSAGES,
    Branch,
    StoredConversation,
    SystemRecord,
    Turn,
    choose_title,
    cut_text,
    make_branch_title,
)
from cllm.core.errors import UsageError
from cllm.core.message import Message, plain_message
from cllm.transfer.message_tree import ImportedConversation, ImportedNode, MessageTree
from cllm.wire.convert import has_user_input

NAMESPACE = uuid.UUID("5f0c3e0e-9d0a-5b0c-8a51-6f1f8d9c2b7e")
IMPORTED = "imported"
"""The metadata key of an imported conversation: its source, its ID there, and its messages."""
MAX_BRANCHES = 1000
MAX_COPIED_BYTES = 1024**3
"""Every branch has a copy of the messages before it. A conversation with more is not imported."""
FindStored = Callable[[str], Awaitable[StoredConversation | None]]


def make_id(source: str, *names: str) -> str:
    return str(uuid.uuid5(NAMESPACE, "\n".join((source, *names))))


async def plan_import(
    imported: ImportedConversation, find_stored: FindStored, *, now: datetime
) -> list[StoredConversation]:
    """Return the conversation and its branches; empty if no message has content."""
    tree = MessageTree(imported.nodes)
    if not tree.nodes:
        return []
    planner = _Planner(imported, tree, find_stored, now=now)
    await planner.add_conversations()
    return [planner.build(path) for path in planner.paths]


class _Path(msgspec.Struct):
    """The path of one conversation; `key` is the node where it leaves its host."""

    id: str
    key: str | None
    nodes: list[str]
    turns: list[Turn]
    variants: list[Turn]
    stored: StoredConversation | None
    host: "_Path | None" = None
    places: dict[str, str] = msgspec.field(default_factory=dict)
    """The turn of each node."""
    stored_turns: frozenset[str] = frozenset()


class _Planner:
    def __init__(
        self,
        imported: ImportedConversation,
        tree: MessageTree,
        find_stored: FindStored,
        *,
        now: datetime,
    ) -> None:
        self._imported = imported
        self._tree = tree
        self._find_stored = find_stored
        times = [node.at for node in tree.nodes.values() if node.at is not None]
        self._created_at = min([*times, imported.created_at or max(times, default=now)])
        self._updated_at = max([*times, imported.updated_at or self._created_at])
        self.paths: list[_Path] = []
        self._hosts: dict[str, _Path] = {}
        """The conversation that first contains each node."""
        self._turn_keys: dict[str, str] = {}
        """The node that names the turn of each node."""
        self._copied_bytes = 0
        self._is_user = {key: _is_user(node) for key, node in tree.nodes.items()}

    async def add_conversations(self) -> None:
        await self._add_path(None, host=None)
        for key in self._tree.breadth_first:
            if key in self._hosts:
                continue
            parent = self._tree.parents[key]
            host = self.paths[0] if parent is None else self._hosts[parent]
            if not self._add_variant(key, host):
                await self._add_path(key, host=host)

    async def _add_path(self, key: str | None, *, host: _Path | None) -> None:
        source, ref = self._imported.source, self._imported.id
        conversation_id = make_id(source, ref) if key is None else make_id(source, ref, key)
        stored = await self._find_stored(conversation_id)
        nodes = self._choose_path(key, stored)
        if host is not None:
            self._check_branch(nodes)
        path = _Path(conversation_id, key, nodes, [], [], stored, host)
        self._cover(nodes, path, start=key)
        for segment in self._split(nodes):
            turn = self._build_turn(segment)
            path.turns.append(turn)
            path.places |= dict.fromkeys(segment, turn.id)
        if stored is not None:
            path.stored_turns = frozenset(turn.id for turn in stored.turns + stored.variants)
        self.paths.append(path)

    def _check_branch(self, nodes: Sequence[str]) -> None:
        """Raise UsageError if the branches of a conversation are too many or too large."""
        if len(self.paths) > MAX_BRANCHES:
            raise UsageError(f"it has more than {MAX_BRANCHES} branches")
        messages = (message for key in nodes for message in self._tree.nodes[key].messages)
        self._copied_bytes += sum(len(message.raw) for message in messages)
        if self._copied_bytes > MAX_COPIED_BYTES:
            raise UsageError(f"its branches have more than {MAX_COPIED_BYTES} bytes")

    def _choose_path(self, key: str | None, stored: StoredConversation | None) -> list[str]:
        """Return the path through a node: that of the stored conversation, or the selected one."""
        tree = self._tree
        current = tree.nearest(self._imported.current)
        preferred = tree.newest_leaf(key)
        if current is not None and tree.is_below(current, key):
            preferred = tree.newest_leaf(current)
        if stored is None:
            return tree.path_to(preferred)
        messages = path_messages(stored.turns)

        def rank(leaf: str) -> tuple[int, bool]:
            built = [self._build_turn(each) for each in self._split(tree.path_to(leaf))]
            return count_shared(messages, path_messages(built)), leaf == preferred

        leaves = tree.leaves(key)
        return tree.path_to(leaves[0] if len(leaves) == 1 else max(leaves, key=rank))

    def _cover(self, nodes: Sequence[str], path: _Path, *, start: str | None) -> None:
        """Record who contains the nodes that no other path contains."""
        previous: str | None = None
        for key in nodes:
            if key not in self._hosts:
                self._hosts[key] = path
                if previous is None or key == start or self._starts_turn(key, previous):
                    self._turn_keys[key] = key
                else:
                    self._turn_keys[key] = self._turn_keys[previous]
            previous = key

    def _starts_turn(self, key: str, previous: str) -> bool:
        return self._is_user[key] and not self._is_user[previous]

    def _split(self, nodes: Sequence[str]) -> list[list[str]]:
        """Split a path into turns."""
        segments: list[list[str]] = []
        for key in nodes:
            if not segments or self._starts_turn(key, segments[-1][-1]):
                segments.append([])
            segments[-1].append(key)
        return segments

    def _add_variant(self, key: str, host: _Path) -> bool:
        """Add the path below a node as a variant, if it is only another reply."""
        segment = self._find_last_turn(self._tree.newest_leaf(key))
        first = segment[0]
        place = host.places.get(first)
        if first == key or key not in segment or place is None:
            return False
        if host.stored is not None and self._turn_id(key) not in host.stored_turns:
            return False
        self._cover(segment, host, start=key)
        variant = self._build_turn(segment)
        host.variants.append(msgspec.structs.replace(variant, place=place))
        return True

    def _find_last_turn(self, leaf: str) -> list[str]:
        """Return the nodes of the turn that ends at a leaf."""
        segment = [leaf]
        parent = self._tree.parents[leaf]
        while parent is not None and not self._starts_turn(segment[-1], parent):
            segment.append(parent)
            parent = self._tree.parents[parent]
        return segment[::-1]

    def _turn_id(self, key: str) -> str:
        return make_id(self._imported.source, self._imported.id, "turn", key)

    def _build_turn(self, segment: Sequence[str]) -> Turn:
        nodes = [self._tree.nodes[key] for key in segment]
        turn_id = self._turn_id(self._turn_keys.get(segment[-1], segment[0]))
        times = [node.at for node in nodes if node.at is not None] or [self._created_at]
        models = [_remove_nuls(node.model) for node in nodes if node.model]
        usages = [node.usage for node in nodes if node.usage is not None]
        return Turn(
            id=turn_id,
            place=turn_id,
            state="complete" if all(node.is_complete for node in nodes) else "incomplete",
            messages=tuple(_join_messages(nodes)),
            started_at=min(times),
            ended_at=max(times),
            model=models[-1] if models else None,
            usage=sum(usages[1:], start=usages[0]) if usages else None,
        )

    def build(self, path: _Path) -> StoredConversation:
        imported, host = self._imported, path.host
        turns = tuple(path.turns)
        title = _make_title(imported.title, turns)
        models = [turn.model for turn in turns if turn.model]
        system = imported.system
        updated_at, parent, family = self._updated_at, imported.parent, None
        if parent is not None:
            family = make_id(imported.source, parent.conversation)
            parent = msgspec.structs.replace(parent, conversation=family)
        if host is not None:
            shared = count_shared(path_messages(turns), path_messages(host.turns))
            parent = Branch(conversation=host.id, sequence=shared)
            family = self.paths[0].id
            title = make_branch_title(title)
            updated_at = max(turn.ended_at or turn.started_at for turn in turns)
        return StoredConversation(
            id=path.id,
            title=title,
            model=models[-1] if models else _remove_nuls(imported.model),
            created_at=self._created_at,
            updated_at=max(updated_at, self._created_at),
            system=None if system is None else plain_message("system", system),
            system_record=SystemRecord(policy="captured", source=imported.source),
            turns=turns,
            variants=tuple(path.variants),
            parent=parent,
            family=family,
            source=imported.source,
            is_side=imported.is_side,
            archived_at=max(updated_at, self._created_at) if imported.is_archived else None,
            metadata=_remove_nuls(
                {
                    **imported.metadata,
                    IMPORTED: describe_import(imported.source, imported.id, turns),
                }
            ),
        )


def _remove_nuls(value: Any) -> Any:
    """Return a value without NUL characters, which no database stores outside of messages."""
    if isinstance(value, str):
        return value.replace("\0", " ")
    if isinstance(value, dict):
        return {_remove_nuls(key): _remove_nuls(one) for key, one in value.items()}
    return [_remove_nuls(one) for one in value] if isinstance(value, list) else value


def describe_import(source: str, ref: str, turns: Sequence[Turn]) -> dict[str, Any]:
    messages = path_messages(turns)
    digest = digest_messages(messages)
    return {"from": source, "id": ref, "messages": len(messages), "digest": digest}


def digest_messages(messages: Sequence[Message]) -> str:
    """Return a digest of messages, to find out whether the source or the copy changed."""
    digest = hashlib.sha256()
    for message in messages:
        digest.update(b"%d:" % len(message.raw))
        digest.update(message.raw)
    return digest.hexdigest()[:16]


def path_messages(turns: Sequence[Turn]) -> list[Message]:
    return [message for turn in turns for message in turn.messages]


def count_shared(one: Sequence[Message], other: Sequence[Message]) -> int:
    """Return the number of equal messages at the start of both."""
    pairs = zip(one, other, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _is_user(node: ImportedNode) -> bool:
    return bool(node.messages) and has_user_input(node.messages)


def _join_messages(nodes: Sequence[ImportedNode]) -> list[Message]:
    """Return the messages of a turn; reasoning becomes part of the reply that follows it."""
    messages: list[Message] = []
    thinking: list[str] = []
    for node in nodes:
        if node.thinking:
            thinking.append(node.thinking)
        for message in node.messages:
            if thinking and message.role == "assistant" and message.dialect == "openai":
                messages.append(_with_reasoning(message.json(), thinking))
                thinking = []
            else:
                messages.append(message)
    if thinking:
        messages.append(_with_reasoning({"role": "assistant", "content": ""}, thinking))
    return messages


def _with_reasoning(fields: dict[str, Any], thinking: Sequence[str]) -> Message:
    earlier = fields.pop("reasoning_content", None)
    texts = [*thinking, earlier] if earlier else thinking
    fields["reasoning_content"] = "\n\n".join(texts)
    return Message(role="assistant", raw=msgspec.json.encode(fields))


def _make_title(title: str | None, turns: Sequence[Turn]) -> str | None:
    line = " ".join(_remove_nuls(title or "").split())
    if line:
        return cut_text(line, MAX_TITLE_LENGTH)
    users = (message.text for message in path_messages(turns) if message.role == "user")
    return choose_title(islice(users, MAX_TITLE_MESSAGES))

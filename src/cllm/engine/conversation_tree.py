"""The branches of a conversation and the variants of its turns, as a tree."""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from cllm.core.conversation import StoredConversation, Summary, Turn


class TreeVariant(msgspec.Struct, frozen=True, kw_only=True):
    """A turn off the default path; `text` is the start of its reply."""

    label: str
    sequence_number: int
    turn_id: str
    model: str | None
    state: str
    text: str


class TreeNode(msgspec.Struct, frozen=True, kw_only=True):
    summary: Summary
    variants: tuple[TreeVariant, ...] = ()
    branches: tuple["TreeNode", ...] = ()

    @property
    def inner(self) -> "list[TreeVariant | TreeNode]":
        """Variants and branches in the order of the messages where they start."""
        return sorted((*self.variants, *self.branches), key=_get_position)


def find_children(summaries: Mapping[str, Summary]) -> dict[str, list[Summary]]:
    """Return the branches of each conversation, by the message where they start."""
    children: dict[str, list[Summary]] = {}
    for summary in summaries.values():
        if summary.parent is not None and has_parent(summary, summaries):
            children.setdefault(summary.parent.conversation, []).append(summary)
    for branches in children.values():
        branches.sort(key=lambda one: (one.parent and one.parent.sequence, one.created_at))
    return children


def find_root(summary: Summary, summaries: Mapping[str, Summary]) -> Summary:
    """Return the first ancestor that exists; a circle of parents ends the search."""
    seen = {summary.id}
    while summary.parent is not None and has_parent(summary, summaries):
        parent = summaries[summary.parent.conversation]
        if parent.id in seen:
            break
        seen.add(parent.id)
        summary = parent
    return summary


def has_parent(summary: Summary, summaries: Mapping[str, Summary]) -> bool:
    return summary.parent is not None and summary.parent.conversation in summaries


def list_descendants(
    summary: Summary, children: Mapping[str, Sequence[Summary]], seen: set[str]
) -> Iterator[Summary]:
    if summary.id in seen:
        return
    seen.add(summary.id)
    yield summary
    for child in children.get(summary.id, ()):
        yield from list_descendants(child, children, seen)


def build_node(
    summary: Summary,
    children: Mapping[str, Sequence[Summary]],
    loaded: Mapping[str, StoredConversation],
    above: frozenset[str] = frozenset(),
) -> TreeNode:
    here = above | {summary.id}
    conversation = loaded.get(summary.id)
    return TreeNode(
        summary=summary,
        variants=() if conversation is None else tuple(_list_variants(conversation)),
        branches=tuple(
            build_node(child, children, loaded, here)
            for child in children.get(summary.id, ())
            if child.id not in here
        ),
    )


def _list_variants(conversation: StoredConversation) -> Iterator[TreeVariant]:
    for (first, number), turn in number_variants(conversation).items():
        replies = [message.text for message in turn.messages if message.role == "assistant"]
        yield TreeVariant(
            label=f"{conversation.ref}@{first}.{number}",
            sequence_number=first,
            turn_id=turn.id,
            model=turn.model,
            state=turn.state,
            text=" ".join(replies),
        )


def _get_position(one: TreeVariant | TreeNode) -> int:
    if isinstance(one, TreeVariant):
        return one.sequence_number
    return 0 if one.summary.parent is None else one.summary.parent.sequence


def number_variants(conversation: StoredConversation) -> dict[tuple[int, int], Turn]:
    """Return the variants by the number of their turn's first message, and their number there."""
    starts: dict[str, int] = {}
    first = conversation.first_sequence
    for turn in conversation.turns:
        starts.setdefault(turn.place, first)
        first += len(turn.messages)
    counts: dict[int, int] = {}
    variants: dict[tuple[int, int], Turn] = {}
    for turn in conversation.variants:
        start = starts.get(turn.place)
        if start is not None:
            counts[start] = counts.get(start, 0) + 1
            variants[start, counts[start]] = turn
    return dict(sorted(variants.items()))

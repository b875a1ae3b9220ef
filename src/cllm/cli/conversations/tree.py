"""`cllm conversations tree`: branches and variants as a tree."""

import sys
from collections.abc import Iterator
from typing import Any

import click

from cllm.app import App
from cllm.cli import completion, output
from cllm.cli.conversations.views import summary_fields
from cllm.cli.inputs import HelpCommand, json_option, store_options
from cllm.cli.trust import open_app
from cllm.core.conversation import Summary
from cllm.engine.conversation_tree import (
    TreeNode,
    TreeVariant,
    build_node,
    find_children,
    find_root,
    has_parent,
    list_descendants,
)
from cllm.settings.load import CommandLine
from cllm.terminal import cut_cells, local_time, one_line, pluralize

HELP = """Print branches and variants as a tree.

With ID, the command prints the conversation, its parents and branches, and the variants of their
turns. Without ID, it prints every conversation that has branches. A variant such as cats@3.1 is the
first variant of the turn that starts with message 3; `diff` accepts it."""
EXAMPLES = ("cllm conversations tree cats", "cllm conversations tree")
MIDDLE, LAST, LINE, SPACE = "├─ ", "└─ ", "│  ", "   "


@click.command(cls=HelpCommand, name="tree", help=HELP, examples=EXAMPLES)
@completion.optional_ref_argument
@json_option
@store_options
def command(line: CommandLine, *, ref: str | None, as_json: bool) -> None:
    app = open_app(line)
    nodes = app.run(_read_trees(app, ref))
    if as_json:
        output.print_json(list(map(_build_node_fields, nodes)))
        return
    columns = output.terminal_columns()
    for node in nodes:
        for text in tree_lines(node, selected=ref):
            output.print_line(text if columns is None else cut_cells(text, columns))
    if not nodes:
        output.note("No conversation has branches; create one with: cllm conversations branch ID")


async def _read_trees(app: App, ref: str | None) -> list[TreeNode]:
    page = await app.store.list_conversations(archive_filter="all", side=True, limit=sys.maxsize)
    summaries = {summary.id: summary for summary in page.items}
    children = find_children(summaries)
    if ref is None:
        roots = [one for one in summaries.values() if not has_parent(one, summaries)]
        return [build_node(root, children, {}) for root in roots if root.id in children]
    chosen = await app.store.summary(ref)
    summaries.setdefault(chosen.id, chosen)
    root = find_root(chosen, summaries)
    family = list(list_descendants(root, children, set()))
    loaded = {one.id: await app.store.load(one.id) for one in family}
    return [build_node(root, children, loaded)]


def tree_lines(node: TreeNode, *, selected: str | None = None) -> Iterator[str]:
    yield _format_conversation(node.summary, selected)
    yield from _format_inner(node, "", selected)


def _format_inner(node: TreeNode, indent: str, selected: str | None) -> Iterator[str]:
    inner = node.inner
    for index, one in enumerate(inner):
        is_last = index == len(inner) - 1
        head = indent + (LAST if is_last else MIDDLE)
        if isinstance(one, TreeVariant):
            text = one_line(one.text) or one.state
            yield f"{head}{one.label}  variant, {one.model or '-'}: {text}"
            continue
        parent = one.summary.parent
        start = "" if parent is None else f"  {_start_text(parent.kind, parent.sequence)}"
        yield f"{head}{_format_conversation(one.summary, selected, start)}"
        yield from _format_inner(one, indent + (SPACE if is_last else LINE), selected)


def _start_text(kind: str, sequence: int) -> str:
    if kind != "branch":
        return f"{kind} at {sequence}"
    return f"after {sequence}" if sequence else "without shared messages"


def _format_conversation(summary: Summary, selected: str | None, start: str = "") -> str:
    mark = "* " if selected in (summary.ref, summary.id) else ""
    archived = ", archived" if summary.archived_at is not None else ""
    title = one_line(summary.title or "")
    count = pluralize(summary.message_count, "message")
    when = local_time(summary.updated_at)
    return f"{mark}{summary.ref}{start}  {count}, {when}{archived}  {title}".rstrip()


def _build_node_fields(node: TreeNode) -> dict[str, Any]:
    return {
        **summary_fields(node.summary),
        "variants": node.variants,
        "branches": list(map(_build_node_fields, node.branches)),
    }

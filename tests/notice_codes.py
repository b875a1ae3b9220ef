"""Collects the notice codes from the source: calls that create notices, and message tables."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "cllm"
CONSTRUCTORS = ("Notice",)
COLLECTIONS = ("notes", "_notes", "notices")
ADD_METHODS = ("add",)


@cache
def collect_notice_codes() -> frozenset[str]:
    """Return every code that the source can produce."""
    files = SOURCE.rglob("*.py")
    texts = (path.read_text(encoding="utf-8") for path in files)
    return frozenset(code for text in texts for code in find_codes(text))


def find_codes(source: str) -> Iterator[str]:
    tree = ast.parse(source)
    for node in ast.walk(ConstantInliner(tree).visit(tree)):
        match node:
            case ast.Call():
                yield from _codes_of_call(node)
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Dict() as table):
                yield from _codes_of_table(name, table)


class ConstantInliner(ast.NodeTransformer):
    """Replaces names of module-level string constants by their values."""

    def __init__(self, tree: ast.Module) -> None:
        self._texts = {
            node.targets[0].id: node.value
            for node in tree.body
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
            if isinstance(node.value, ast.Constant)
        }

    def visit_Name(self, node: ast.Name) -> ast.expr:
        is_constant = isinstance(node.ctx, ast.Load) and node.id in self._texts
        return self._texts[node.id] if is_constant else node


def _codes_of_call(call: ast.Call) -> Iterator[str]:
    if _name_of(call.func) in CONSTRUCTORS:
        yield from _texts(*(word.value for word in call.keywords if word.arg == "code"))
    match call.func:
        case ast.Attribute(attr=method, value=target) if (
            method in ADD_METHODS and _name_of(target) in COLLECTIONS
        ):
            yield from _texts(*call.args[:1])


def _codes_of_table(name: str, table: ast.Dict) -> Iterator[str]:
    if name == "SENTENCES":
        yield from _texts(*(v.elts[0] for v in table.values if isinstance(v, ast.Tuple)))
    if name == "NOTICES":
        yield from _texts(*table.keys)


def _name_of(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(attr=name):
            return name
    return ""


def _texts(*nodes: ast.expr | None) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.IfExp):
            yield from _texts(node.body, node.orelse)
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value

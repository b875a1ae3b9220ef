"""Finds strings in the source, for subjects without a list: variables and headers."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "src" / "cllm"


@cache
def strings() -> frozenset[str]:
    """Return all strings in the source, except in `__all__` and tables of public names."""
    return frozenset(value for value, _ in _find_strings())


@cache
def lookups() -> frozenset[str]:
    """Return the strings that the source uses as keys of lookups."""
    return frozenset(value for value, is_key in _find_strings() if is_key)


@cache
def _find_strings() -> frozenset[tuple[str, bool]]:
    strings: set[tuple[str, bool]] = set()
    for path in PACKAGE.rglob("*.py"):
        if "testing" not in path.parts:
            tree = ast.parse(path.read_text(encoding="utf-8"))
            for node in _walk(tree):
                strings.update(_strings(node))
    return frozenset(strings)


def _walk(tree: ast.Module) -> Iterator[ast.AST]:
    for statement in tree.body:
        if not _is_table_of_names(statement):
            yield from ast.walk(statement)


def _is_table_of_names(statement: ast.stmt) -> bool:
    match statement:
        case ast.Assign(targets=[ast.Name(id="__all__")]):
            return True
        case ast.Assign(value=ast.Dict(keys=names)):
            return any(isinstance(name, ast.Constant) and name.value == "Answer" for name in names)
    return False


def _strings(node: ast.AST) -> Iterator[tuple[str, bool]]:
    """Yield the strings of a node, each with whether it is the key of a lookup."""
    match node:
        case ast.Call(func=ast.Attribute(attr="get"), args=[ast.Constant(value=str(value)), *_]):
            yield value, True
        case ast.Subscript(slice=ast.Constant(value=str(value))):
            yield value, True
        case ast.Dict(keys=names):
            for name in names:
                if isinstance(name, ast.Constant) and isinstance(name.value, str):
                    yield name.value, True
        case ast.Constant(value=str(value)):
            yield value, False
        case ast.Constant(value=bytes(value)):
            yield value.decode("latin-1"), False

"""The error tree in docs/reference/library.md matches the classes of `cllm.core.errors`."""

import inspect
import re
from pathlib import Path

from cllm.core import errors

REFERENCE = Path(__file__).parents[2] / "docs/reference/library.md"
LINE = re.compile(r"^(?P<indent>(?:│   |    )*)(?:[├└]── )?(?P<name>[A-Z]\w+Error)\b")


def documented_tree() -> dict[str, str | None]:
    """Return the parent of each class in the reference."""
    parents: dict[str, str | None] = {}
    path: list[str] = []
    for line in REFERENCE.read_text(encoding="utf-8").splitlines():
        match = LINE.match(line)
        if match is None:
            continue
        depth = 0 if match["name"] == "CllmError" else len(match["indent"]) // 4 + 1
        parents[match["name"]] = path[depth - 1] if depth else None
        path[depth:] = [match["name"]]
    return parents


def class_tree() -> dict[str, str | None]:
    classes = inspect.getmembers(errors, inspect.isclass)
    return {
        name: None if kind is errors.CllmError else kind.__mro__[1].__name__
        for name, kind in classes
        if kind.__module__ == errors.__name__ and issubclass(kind, Exception)
    }


def test_the_documented_tree_matches_the_classes():
    assert documented_tree() == class_tree()


def test_the_classes_are_in_the_documented_order():
    source = inspect.getsource(errors)
    positions = [source.index(f"class {name}(") for name in documented_tree()]

    assert positions == sorted(positions)

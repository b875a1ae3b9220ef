"""The error tree in the docstring of `cllm.core.errors` matches its classes."""

import inspect
import re

from cllm.core import errors

LINE = re.compile(r"^    (?P<indent>(?:│   |    )*)(?:[├└]── )?(?P<name>[A-Z]\w+Error)\b")


def documented_tree() -> dict[str, str | None]:
    """Return the parent of each class in the docstring."""
    parents: dict[str, str | None] = {}
    path: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
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
